// What was chosen, beside the view: a node, a router, a session or a pod, with reasons, since when and what happened.
import { h } from "./lib/preact.js";
import { isMarked } from "./cursor.js";
import { nodeState, podState, routerOf, sessionsOf } from "./derived.js";
import { known, sinceWhen } from "./head.js";
import { model } from "./model.js";
import { address, put, select, selected } from "./place.js";
import { clock, count, day, many, mark, since, state } from "./words.js";

const KINDS = { node: ["Node", Node], router: ["Router", Router], session: ["Session", Session], pod: ["Pod", Pod] };

export function Detail() {
  const [kind, ...names] = selected();
  if (!(kind in KINDS)) return null;
  const [title, Content] = KINDS[kind];
  return h(
    "aside",
    { class: "detail", "aria-label": `${title} ${names.join(" – ")}` },
    h("div", { class: "title" }, h("h2", null, h("span", { class: "quiet" }, title), " ", names.join(" – ")), h("button", { type: "button", class: "close", "aria-label": "Close", onClick: () => put({ sel: null }, { step: true }) }, "✕")),
    h("div", { class: "content", key: selected().join("\n") }, h(Content, { names })),
  );
}

export function facts(pairs) {
  return h("dl", null, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))));
}

const list = (title, texts, tone = "") => (texts?.length ? h("section", null, h("h3", null, title), h("ul", { class: `plain ${tone}` }, texts.map((text) => h("li", { key: text }, text)))) : null);

function table(title, columns, rows) {
  if (!rows.length) return null;
  return h(
    "section",
    null,
    h("h3", null, title),
    h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell))))))),
  );
}

function lately(wanted) {
  const found = model.past.newest(25, wanted);
  if (!found.length) return null;
  return h("section", null, h("h3", null, "What happened"), h("ol", { class: "happened" }, found.map((one) => h("li", { key: one.order, class: isMarked(`node ${one.node}`) ? "marked" : "" }, h("time", null, clock(one.time, { millis: true })), " ", one.said))));
}

const opener = (kind, ...names) => h("button", { type: "button", class: "link", onClick: () => select(kind, ...names) }, names.at(-1));

function Node({ names: [name] }) {
  const node = model.nodes.get(name);
  if (!node) return h("p", { class: "empty" }, "no such node any more");
  const status = node.status ?? {};
  const kind = nodeState(node, model.routers);
  const config = status.config?.spec ?? {};
  return [
    facts([
      ["State", state(kind)],
      ["Known", known(node)],
      ["Problem", node.problem],
      ["Withdrawn", String(status.withdrawn || "")],
      ["Agent", status.version && `flock ${status.version}, started ${day(status.started)}`],
      ["AS", config.bgp?.asn],
      ["MTU", status.mtu],
      ["Pods", status.pods && `${count(status.pods.committed)} attached, ${count(status.pods.pending)} pending, ${count(status.pods.dead)} dead`],
      ["ADD", status.latencies?.ADD && `p50 ${ms(status.latencies.ADD.p50)}, p95 ${ms(status.latencies.ADD.p95)}`],
    ]),
    list("Not ready", status.not_ready, "bad"),
    list("Degraded", status.degraded, "warn"),
    list("Problems", (status.problems ?? []).map((p) => `${p.where}: ${p.message}`), "warn"),
    table("Sessions", ["Router", "State", "Received", "Sent", "Since"], sessionsOf(node, model.routers).map((s) => [opener("session", name, s.peer), state(s.up ? "up" : "down", s.state), count(s.imported), count(s.exported), since(s.since)])),
    table("Pools", ["Prefix", "Used", "At rest", "In all"], (status.pools ?? []).map((p) => [p.cidr, count(p.used), count(p.cooling), size(p.size)])),
    list("Announced beside its prefixes", status.announced),
    Object.keys(status.repairs ?? {}).length ? table("Repairs since it started", ["Kind", "Count"], Object.entries(status.repairs).map(([what, number]) => [what, count(number)])) : null,
    h("p", null, h("a", { href: address("pods", { q: name }) }, "its pods"), " · ", h("a", { href: address("timeline", { q: name }) }, "its past")),
    status.config?.origins ? table("Configuration", ["Field", "From"], Object.entries(status.config.origins)) : null,
    lately((one) => one.node === name && one.kind !== "Dropped"),
  ];
}

const ms = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
const size = (number) => (number > 1e6 ? `2^${Math.round(Math.log2(number))}` : count(number));

function Session({ names: [name, peer] }) {
  const node = model.nodes.get(name);
  const session = node && sessionsOf(node, model.routers).find((s) => s.peer === peer);
  if (!session) return h("p", { class: "empty" }, "no such session any more");
  const other = model.routers.get(peer)?.sessions.find((s) => s.peer === name);
  const families = Object.entries(session.families ?? {}).map(([family, told]) => `${family}: ${count(told.imported)} received, ${count(told.exported)} sent`);
  return [
    facts([
      ["State", [state(session.up ? "up" : "down", session.state), mark(isMarked(`session ${name} ${peer}`))]],
      ["Reason", session.up ? "" : session.last_error || "none was told"],
      ["Last error", session.up ? session.last_error : ""],
      ["Since", since(session.since)],
      ["Received", many(session.imported ?? 0, "prefix", "prefixes")],
      ["Sent", many(session.exported ?? 0, "prefix", "prefixes")],
      ["By family", families.join("; ")],
      ["BFD", session.bfd || "not used"],
      ["Protocol", session.kind],
      ["Router", [opener("router", peer), session.asn ? ` AS${session.asn}` : ""]],
      ["Its address", session.address],
      ["Node", opener("node", name)],
      ["Known", node.reached ? known(node) : session.by ? `from ${session.by}; the agent: ${sinceWhen(node)}` : sinceWhen(node)],
      [`${peer} says`, other && state(other.up ? "up" : "down", `${other.state}${other.last_error ? `, ${other.last_error}` : ""}`)],
    ]),
    lately((one) => one.node === name && (one.peer === peer || one.kind.startsWith("Bird"))),
  ];
}

function Router({ names: [name] }) {
  const router = routerOf(model, name);
  const told = router.told;
  const routes = Object.entries(told?.routes ?? {});
  return [
    facts([
      ["AS", router.asn],
      ["Trouble", told?.trouble],
      ["Sessions", `${count(router.seen.filter((s) => s.up).length)} of ${count(router.seen.length)} up`],
      ["Known", told ? "from the router itself" : "from its nodes' sessions"],
    ]),
    table("Sessions", ["Node", "State", "Reason"], router.seen.map((s) => [opener("session", s.node, name), state(s.up ? "up" : "down", s.state), s.up ? "" : s.last_error])),
    table("Sends to", ["Prefix", "To"], routes.map(([prefix, to]) => [prefix, to.join(" ")])),
    lately((one) => one.peer === name),
  ];
}

function Pod({ names: [container] }) {
  const pod = [...model.nodes.values()].flatMap((node) => node.pods).find((p) => p.told.container === container);
  if (!pod) return h("p", { class: "empty" }, "no longer attached anywhere");
  const drops = model.past.dropsOf.get(pod.name);
  return [
    facts([
      ["Pod", pod.name || "a container that is no pod"],
      ["State", [state(podState(pod)), mark(isMarked(`pod ${pod.name}`))]],
      ["Node", opener("node", pod.node)],
      ["Known", pod.guessed ? sinceWhen(model.nodes.get(pod.node)) : "now"],
      ["Addresses", h("ul", { class: "plain" }, pod.addresses.map((a) => h("li", { key: a }, h("code", null, a))))],
      ["Anycast", pod.anycast.length ? pod.anycast.map((a) => h("a", { key: a, href: address("addresses", { q: a }) }, a)) : ""],
      ["Interface", h("code", null, pod.told.interface)],
      ["Container", h("code", null, pod.told.container)],
      ["Network namespace", pod.told.netns],
      ["Since", since(pod.told.since)],
    ]),
    list("Policies that select it", pod.policies),
    list("Changed after it started; needs a new pod", pod.told.pending_annotations, "warn"),
    drops ? h("section", null, h("h3", null, "Drops"), h("p", null, `${many(drops.count, "packet")} seen here, the last at ${clock(drops.time)}: ${drops.said}`), h("a", { href: address("policy", { q: pod.name }) }, "its drops")) : null,
    lately((one) => one.pod && one.pod === pod.name),
  ];
}
