// The fabric as a picture: routers above, their nodes below, a line per router along each row of nodes and a drop per
// session.  Nodes that have the same routers stand together; hundreds of them are drawn smaller, not differently.
import { Component, h } from "./lib/preact.js";
import { isMarked, marked } from "./cursor.js";
import { fabric, isCut, matching, routerOf, sessionState } from "./derived.js";
import { sinceWhen } from "./head.js";
import { model, now } from "./model.js";
import { put, select, selected } from "./place.js";
import { age, icon, many, mark, state, STATES } from "./words.js";

const CROWD = 40; // nodes from which on tiles are small
const LANE = 9; // px between the lines of two routers
const GUTTER = 8;
const FIRST = 48, MORE = 32; // tiles drawn at once, and in each frame that follows
const OLD = 8; // seconds from which on the age of a status is shown

export function Fabric({ given }) {
  const drawn = fabric(model);
  const query = given.get("q") ?? "", ill = given.get("only") === "ill";
  const crowded = model.nodes.size > CROWD;
  if (!model.nodes.size) return h("p", { class: "empty" }, model.hello ? "no node is known yet" : "");
  return h(
    "div",
    { class: `fabric ${crowded ? "crowded" : ""}` },
    h(
      "div",
      { class: "tools" },
      h("h2", null, "Fabric"),
      h("label", null, h("span", { class: "hidden" }, "Show nodes"), h("input", { type: "search", value: query, placeholder: "node, state, reason…", onInput: (event) => put({ q: event.target.value }) })),
      h("button", { type: "button", "aria-pressed": String(ill), onClick: () => put({ only: ill ? null : "ill" }) }, "only what is not well"),
      h("p", { class: "legend" }, ["up", "down", "cut", "degraded", "drained", "dead", "away"].map((kind) => state(kind))),
    ),
    drawn.above.length ? h(Spine, { names: drawn.above, turn: model.turn }) : null,
    drawn.groups.map((group) => h(Rack, { key: group.key, group, query, ill, turn: model.turn })),
  );
}

function hayOf({ node, state: word, sessions }) {
  const reasons = [...(node.status?.not_ready ?? []), ...(node.status?.degraded ?? []), ...sessions.map((s) => `${s.peer} ${s.state} ${s.last_error}`)];
  return [node.name, STATES[word][2], node.problem, ...reasons].join(" ").toLowerCase();
}

// Routers that have sessions with routers only, above those, and a curve per session.
class Spine extends Component {
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.wire());
    this.watch.observe(this.box.parentElement);
    this.wire();
  }

  componentDidUpdate() {
    this.wire();
  }

  componentWillUnmount() {
    this.watch.disconnect();
  }

  wire() {
    const box = this.wires.getBoundingClientRect();
    const card = (name) => this.box.parentElement.querySelector(`.router[data-router="${CSS.escape(name)}"]`)?.getBoundingClientRect();
    for (const path of this.wires.children) {
      const [top, below] = [card(path.dataset.from), card(path.dataset.to)];
      if (!top || !below) continue;
      const [x1, y1, x2, y2] = [top.left + top.width / 2 - box.left, top.bottom - box.top, below.left + below.width / 2 - box.left, below.top - box.top];
      path.setAttribute("d", `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`);
    }
  }

  render({ names }) {
    const sessions = names.flatMap((name) => model.routers.get(name).sessions.map((session) => ({ ...session, node: name })));
    return [
      h("svg", { class: "wires spine", ref: (svg) => (this.wires = svg), "aria-hidden": "true" }, sessions.map((s) => h("path", { key: `${s.node} ${s.peer}`, class: sessionState(s, model.cut), "data-from": s.node, "data-to": s.peer }))),
      h("div", { class: "above", ref: (box) => (this.box = box) }, names.map((name) => h(Router, { key: name, name }))),
    ];
  }
}

class Rack extends Component {
  state = { first: FIRST }; // the others follow frame by frame, so that whoever opens the view need not wait for all

  componentDidMount() {
    this.more();
    this.watch = new ResizeObserver(() => this.wire());
    this.watch.observe(this.box);
    this.wire();
  }

  componentDidUpdate() {
    const drawn = `${this.props.group.key}\n${this.list.childElementCount}`;
    if (drawn !== this.drawn) this.wire();
    this.drawn = drawn;
    this.more();
  }

  componentWillUnmount() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
  }

  more() {
    if (this.frame || this.state.first >= this.props.group.nodes.length) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.setState(({ first }) => ({ first: first + MORE }));
    });
  }

  // From each router down to its trunk at the left, and the trunks down to the last row: only the layout knows where.
  wire() {
    const last = [...this.list.querySelectorAll(".tile")].at(-1);
    const depth = last ? last.offsetTop : 0; // told to the trunks alone: what all tiles inherit is worked out anew for all
    this.list.querySelectorAll(".trunk").forEach((line, at) => (line.style.height = `${depth + lane(at)}px`));
    const box = this.box.getBoundingClientRect();
    [...this.box.querySelectorAll(".routers .router")].forEach((router, at) => {
      const place = router.getBoundingClientRect();
      const path = this.wires.children[at];
      const down = 6 + at * 5, x = place.left - box.left + place.width / 2, from = place.bottom - this.wires.getBoundingClientRect().top;
      path?.setAttribute("d", `M${x} ${from}V${down}H${trunk(at)}V30`);
    });
  }

  // Arrows go from node to node; Tab leaves.
  move(event) {
    const tiles = [...this.list.querySelectorAll("button.node")], at = tiles.indexOf(document.activeElement);
    if (at < 0) return;
    const columns = Math.max(1, tiles.filter((tile) => tile.offsetParent.offsetTop === tiles[0].offsetParent.offsetTop).length);
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: tiles.length - 1 - at };
    if (!(event.key in moves)) return;
    event.preventDefault();
    tiles[Math.min(tiles.length - 1, Math.max(0, at + moves[event.key]))].focus();
  }

  render({ group, query, ill }) {
    const wanted = (tile) => (!ill || tile.state !== "ready") && (!query || matching([{ hay: hayOf(tile) }], query).length);
    const shown = group.nodes.filter(wanted);
    const lanes = group.routers.length;
    return h(
      "section",
      { class: "rack", ref: (box) => (this.box = box), "aria-label": lanes ? `Nodes of ${group.routers.join(", ")}` : "Nodes without sessions" },
      h("div", { class: "routers" }, group.routers.map((name) => h(Router, { key: name, name }))),
      h("svg", { class: "wires", ref: (svg) => (this.wires = svg), "aria-hidden": "true" }, group.routers.map((name) => h("path", { key: name }))),
      h(
        "ul",
        { class: "nodes", ref: (list) => (this.list = list), style: { paddingLeft: `${lanes * GUTTER + 6}px` }, onKeyDown: (event) => this.move(event) },
        shown.slice(0, this.state.first).map((tile) => h(Tile, { key: tile.node.name, tile, routers: group.routers, stamp: stamp(tile) })),
        group.routers.map((name, at) => h("li", { class: "trunk", "aria-hidden": "true", key: `trunk ${name}`, style: { left: `${trunk(at)}px` } })).filter(() => shown.length > 1),
      ),
      shown.length ? null : h("p", { class: "empty" }, ill && !query ? "all nodes here are well" : "no node here is like that"),
    );
  }
}

const trunk = (at) => 3.5 + at * GUTTER;
const lane = (at) => 5 + at * LANE;

function Router({ name }) {
  const router = routerOf(model, name);
  const told = router.told;
  const down = router.seen.filter((s) => !s.up).length + (told?.sessions ?? []).filter((s) => !s.up && !model.nodes.has(s.peer)).length;
  const known = told ? many(Object.keys(told.routes ?? {}).length, "prefix", "prefixes") : many(router.seen.length, "session");
  const kind = told?.trouble ? "dead" : down ? "session down" : "up";
  const word = told?.trouble || (down ? `${many(down, "session")} down` : known);
  return h(
    "button",
    { type: "button", class: `router ${isSelected("router", name)}`, "data-router": name, onClick: () => select("router", name) },
    h("strong", null, name),
    router.asn ? h("span", { class: "quiet" }, `AS${router.asn}`) : null,
    state(kind, word),
  );
}

// All that a tile shows: the same again is not drawn again, however often its node tells it.
function stamp({ node, sessions, state: kind }) {
  const marks = marked() ? sessions.map((s) => isMarked(`session ${node.name} ${s.peer}`)).concat(isMarked(`node ${node.name}`)) : "";
  const chosen = selected()[1] === node.name ? selected().join() : "";
  const said = sessions.map((s) => [s.peer, sessionState(s, model.cut), s.state, s.bfd, s.guessed]);
  return [kind, reason(node, kind), node.status?.pods?.committed, said, marks, chosen, node.reached ? old(node) : sinceWhen(node)].join();
}

class Tile extends Component {
  shouldComponentUpdate(next) {
    return next.stamp !== this.props.stamp;
  }

  render({ tile: { node, sessions, state: kind }, routers }) {
    const sessionWith = (router) => sessions.find((s) => s.peer === router);
    const height = routers.length ? lane(routers.length - 1) + 12 : 4;
    const at = (place) => `${((place + 0.5) / routers.length) * 100}%`;
    const status = node.status;
    return h(
      "li",
      { class: `tile ${isMarked(`node ${node.name}`) ? "marked" : ""}` },
      h(
        "svg",
        { class: "lanes", height, "aria-hidden": "true" },
        routers.map((router, place) => [
          h("line", { class: "lane", x1: trunk(place) - routers.length * GUTTER - 6, x2: "100%", y1: lane(place), y2: lane(place) }),
          h("line", { class: `drop ${sessionWith(router) ? sessionState(sessionWith(router), model.cut) : "none"}`, x1: at(place), x2: at(place), y1: lane(place), y2: height }),
        ]),
      ),
      h("div", { class: "ports" }, routers.map((router) => h(Port, { key: router, node, session: sessionWith(router) }))),
      h(
        "button",
        { type: "button", class: `node ${kind.replace(" ", "-")} ${isSelected("node", node.name)}`, onClick: () => select("node", node.name) },
        h("strong", null, node.name, mark(isMarked(`node ${node.name}`))),
        state(kind),
        h("span", { class: "quiet facts" }, node.reached ? `${many(status?.pods?.committed ?? 0, "pod")}${old(node)}` : sinceWhen(node)),
        reason(node, kind) ? h("span", { class: "why" }, reason(node, kind)) : null,
      ),
    );
  }
}

// Of a large cluster not all nodes are followed at a time: how old is what is shown?
const old = (node) => (model.hello.live && now() - node.seen > OLD ? `, as of ${age(now() - node.seen)} ago` : "");

export function reason(node, kind) {
  const status = node.status;
  if (kind === "away" || kind === "dead") return node.problem;
  if (kind === "not ready") return status.not_ready?.[0] ?? "";
  if (kind === "drained") return String(status.withdrawn);
  if (kind === "session down") return status.sessions.filter((s) => !s.up).map((s) => `${s.peer} ${s.last_error || s.state}`)[0];
  return status?.degraded?.[0] ?? "";
}

function Port({ node, session }) {
  if (!session) return h("span", { class: "port" });
  const kind = isCut(model.cut, node.name, session.peer) ? "cut" : session.up ? "up" : "down";
  const bfd = session.bfd ? `, BFD ${session.bfd}` : "";
  const guess = session.guessed ? ", a guess" : "";
  return h(
    "button",
    {
      type: "button",
      class: `port ${kind} ${isSelected("session", node.name, session.peer)} ${session.guessed ? "guessed" : ""}`,
      "aria-label": `session of ${node.name} with ${session.peer}: ${STATES[kind][2]}, ${session.state}${bfd}${guess}`,
      title: `${session.peer}: ${session.state}${bfd}`,
      onClick: () => select("session", node.name, session.peer),
    },
    icon(STATES[kind][0], STATES[kind][1]),
    h("span", { class: "peer" }, session.peer),
    session.bfd ? h("span", { class: `bfd ${session.bfd === "up" ? "good" : "bad"}` }, session.bfd === "up" ? "bfd" : "no bfd") : null,
    mark(isMarked(`session ${node.name} ${session.peer}`)),
  );
}

function isSelected(...parts) {
  return selected().join("\n") === parts.join("\n") ? "selected" : "";
}
