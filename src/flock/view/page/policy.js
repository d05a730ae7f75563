// "May A talk to B on this port?", asked of the nodes that decide; and drops as they happen, grouped by policy.
import { Component, h } from "./lib/preact.js";
import { isMarked } from "./cursor.js";
import { allPods, model, natural, now } from "./model.js";
import { put } from "./place.js";
import { asked } from "./pods.js";
import { age, clock, count, many, mark, state } from "./words.js";

const FIELDS = ["source", "destination", "port"];
const SHOWN = 60; // groups; the busiest

export function Policy({ given, redraw }) {
  return h("div", { class: "policy" }, h(Question, { given, redraw, key: "question" }), h(Drops, { given }), h(Policies, { given }));
}

// --- may A talk to B? ---

class Question extends Component {
  state = { asking: false, answers: [], asked: "" };

  componentDidMount() {
    this.askAgain();
  }

  componentDidUpdate() {
    this.askAgain();
  }

  // The question is in the address: a link asks it, and so does a reload.
  askAgain() {
    const { given } = this.props;
    const question = ["node", ...FIELDS].map((name) => given.get(name) ?? "").join("\n");
    const whole = FIELDS.every((name) => given.get(name));
    if (!whole || question === this.state.asked || !model.nodes.size) return;
    this.ask(question, given);
  }

  async ask(question, given) {
    const [source, destination, port] = FIELDS.map((name) => given.get(name));
    const nodes = given.get("node") ? [given.get("node")] : deciding(source, destination);
    this.setState({ asked: question, asking: true, answers: [] });
    const answers = await Promise.all(nodes.map(async (node) => ({ node, ...(await asked(`api/why?${new URLSearchParams({ node, source, destination, port })}`)) })));
    if (this.state.asked === question) this.setState({ asking: false, answers });
  }

  render({ given }, { asking, answers }) {
    const submit = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      this.setState({ asked: "" });
      put(Object.fromEntries(["node", ...FIELDS].map((name) => [name, form.get(name).trim()])), { step: true });
    };
    const input = (name, title, hint) => h("label", null, h("span", null, title), h("input", { name, defaultValue: given.get(name) ?? "", placeholder: hint, required: true, autoComplete: "off", spellcheck: false }));
    return h(
      "section",
      { class: "question", "aria-labelledby": "may" },
      h("h2", { id: "may" }, "May A talk to B on this port?"),
      h(
        "form",
        { onSubmit: submit },
        input("source", "From", "namespace/pod or address"),
        input("destination", "To", "namespace/pod or address"),
        input("port", "Port", "443/TCP, 53/UDP, icmp"),
        h("label", null, h("span", null, "Asked of"), h("select", { name: "node", value: given.get("node") ?? "" }, h("option", { value: "" }, "who decides"), [...model.nodes.keys()].sort(natural).map((name) => h("option", { key: name, value: name }, name)))),
        h("button", { type: "submit" }, "Ask"),
      ),
      h("div", { class: "answers", role: "status", "aria-live": "polite" }, asking ? "asking…" : answers.map((answer) => h(Answer, { key: answer.node, answer }))),
    );
  }
}

// The nodes of the pods that are meant; each decides for its own.
function deciding(...ends) {
  const nodes = new Set();
  for (const pod of allPods()) if (ends.includes(pod.name) || pod.addresses.some((a) => ends.includes(a))) nodes.add(pod.node);
  if (!nodes.size) nodes.add([...model.nodes.keys()].sort(natural)[0]);
  return [...nodes].slice(0, 4);
}

function Answer({ answer: { node, rows, problem } }) {
  if (problem) return h("div", { class: "answer" }, state("unknown", `${node}: ${problem}`));
  return rows.map((row) =>
    h(
      "article",
      { class: `answer ${row.verdict}` },
      h("h3", null, state(row.verdict === "allow" ? "ready" : "down", row.verdict === "allow" ? "yes, allowed" : "no, denied"), h("span", { class: "quiet" }, ` says ${node}`)),
      h("p", null, `${party(row.source)} → ${party(row.destination)} ${row.port === null ? row.protocol : `${row.port}/${row.protocol}`}`),
      h("dl", null, ["egress", "ingress"].map((direction) => h("div", { key: direction }, h("dt", null, direction), h("dd", null, finding(row[direction]), h("ul", { class: "plain quiet" }, row[direction].reasons.map((text) => h("li", { key: text }, text))))))),
    ),
  );
}

const party = (end) => (end.pod ? `${end.pod} (${end.address})` : end.address);

function finding(found) {
  const allowed = found.allowed_by ? ` by ${found.allowed_by}` : "";
  const decided = found.decided_by ? ` by ${found.decided_by}; without it: ${found.otherwise}` : "";
  const isolated = found.isolated_by?.length ? `, isolated by ${found.isolated_by.join(", ")}` : "";
  return found.outcome + allowed + decided + isolated;
}

// --- drops as they happen ---

const hay = (group) => [group.what, group.policies, ...group.packets.slice(-20).map((p) => `${p.said} ${p.node}`)].join(" ").toLowerCase();

function Drops({ given }) {
  const query = given.get("q") ?? "", words = query.toLowerCase().split(/\s+/).filter(Boolean), time = now();
  const open = given.get("open");
  const all = [...model.past.groups.values()];
  const found = all.filter((group) => !words.length || words.every((word) => hay(group).includes(word)));
  const rows = found.map((group) => ({ group, minute: group.minute.sum(time) })).sort((a, b) => b.minute - a.minute || b.group.time - a.group.time);
  const totals = sums();
  return h(
    "section",
    { class: "drops", "aria-labelledby": "drops" },
    h("div", { class: "tools" }, h("h2", { id: "drops" }, "Drops by policy"), h("label", null, h("span", { class: "hidden" }, "Filter drops and policies"), h("input", { type: "search", value: query, placeholder: "policy, pod, address…", onInput: (event) => put({ q: event.target.value }) })), h("p", { class: "quiet" }, `${count(found.length)} of ${count(all.length)} groups`)),
    rows.length
      ? h("div", { class: "scroll" }, h("table", { "aria-label": "Drops by policy" }, h("thead", null, h("tr", null, ["Policies", "Why", "Last minute", "Seen here", "In all", "Last packet"].map((title) => h("th", { scope: "col", key: title }, title)))), h("tbody", null, rows.slice(0, SHOWN).map(({ group, minute }) => [h(Group, { key: group.key, group, minute, total: totals.get(group.key), isOpen: open === group.key }), open === group.key ? h(Packets, { key: `${group.key} packets`, group, words }) : null]))))
      : h("p", { class: "empty" }, all.length ? "no drop is like that" : "nothing was dropped"),
    rows.length > SHOWN ? h("p", { class: "quiet" }, `the ${SHOWN} busiest; filter to see others`) : null,
  );
}

// What agents counted since they started, summed.
function sums() {
  const found = new Map();
  for (const node of model.nodes.values()) {
    for (const row of node.status?.dropList ?? []) {
      const key = `${row.what}\n${row.policies}`;
      found.set(key, (found.get(key) ?? 0) + row.count);
    }
  }
  return found;
}

function Group({ group, minute, total, isOpen }) {
  const last = group.packets.at(-1);
  return h(
    "tr",
    { class: isMarked(`group ${group.key}`) ? "marked" : "" },
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-expanded": String(isOpen), onClick: () => put({ open: isOpen ? null : group.key }) }, group.policies || "no policy"), mark(isMarked(`group ${group.key}`))),
    h("td", null, group.what),
    h("td", { class: "number" }, count(minute)),
    h("td", { class: "number" }, count(group.count)),
    h("td", { class: "number" }, total === undefined ? "–" : count(total)),
    h("td", { class: "wide" }, h("time", null, `${clock(group.time)} (${age(now() - group.time)} ago) `), `${last.node}: ${last.pod || "–"} ${last.source} → ${last.destination} ${last.protocol}${last.port ? `/${last.port}` : ""}`),
  );
}

function Packets({ group, words }) {
  const told = group.packets.filter((p) => !words.length || words.every((word) => `${group.policies} ${group.what} ${p.said} ${p.node}`.toLowerCase().includes(word)));
  return h("tr", null, h("td", { colSpan: 6 }, h("ol", { class: "happened" }, told.slice(-20).reverse().map((p) => h("li", { key: p.order }, h("time", null, clock(p.time, { millis: true })), " ", h("b", null, p.node), " ", p.said)))));
}

// --- the policies themselves ---

function Policies({ given }) {
  const words = (given.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Map();
  for (const node of model.nodes.values()) {
    for (const policy of node.status?.policyList ?? []) {
      const key = `${policy.kind} ${policy.name}`;
      const entry = found.get(key) ?? { ...policy, pods: 0, nodes: 0 };
      found.set(key, { ...entry, pods: entry.pods + (policy.pods ?? 0), nodes: entry.nodes + 1, problem: entry.problem || policy.problem });
    }
  }
  const all = [...found.entries()].sort((a, b) => natural(a[0], b[0]));
  const rows = all.filter(([, p]) => words.every((word) => `${p.kind} ${p.name} ${p.tier} ${p.problem}`.toLowerCase().includes(word)));
  return h(
    "section",
    { "aria-labelledby": "policies" },
    h("h2", { id: "policies" }, "Policies in force"),
    rows.length
      ? h("div", { class: "scroll" }, h("table", { "aria-label": "Policies in force" }, h("thead", null, h("tr", null, ["Policy", "Kind", "Tier", "Pods", "Nodes", "State"].map((title) => h("th", { scope: "col", key: title }, title)))), h("tbody", null, rows.slice(0, 200).map(([key, p]) => h("tr", { key, class: isMarked(`policy ${p.name}`) ? "marked" : "" }, h("th", { scope: "row" }, p.name), h("td", null, p.kind), h("td", null, [p.tier, p.priority].filter((x) => x !== null && x !== undefined && x !== "").join(" ") || "–"), h("td", { class: "number" }, count(p.pods)), h("td", { class: "number" }, count(p.nodes)), h("td", null, p.problem ? state("degraded", `refused: ${p.problem}`) : state("ready", p.audit ? "audit: only told of" : "in force")))))))
      : h("p", { class: "empty" }, all.length ? "no policy is like that" : "no policy is about a pod here"),
    rows.length > 200 ? h("p", { class: "quiet" }, many(rows.length - 200, "policy", "policies") + " more; filter to see them") : null,
  );
}

