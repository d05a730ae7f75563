// Every pod of every node: found by name, address, container, interface, node or policy; leaks and losses on request.
import { h } from "./lib/preact.js";
import { isMarked } from "./cursor.js";
import { matching, podState } from "./derived.js";
import { allPods, model, natural } from "./model.js";
import { put, select, selected } from "./place.js";
import { LongTable } from "./table.js";
import { age, clock, count, mark, state } from "./words.js";
import { now } from "./model.js";

let found = { key: "", rows: [] };

export function search(query) {
  const key = `${model.podTurn} ${query}`;
  if (found.key !== key) found = { key, rows: matching(allPods(), query) };
  return found.rows;
}

const COLUMNS = [
  { title: "Pod", class: "name", cell: (pod) => [pod.name || h("span", { class: "quiet" }, "no pod"), mark(isMarked(`pod ${pod.name}`))] },
  { title: "State", class: "short", cell: (pod) => [state(podState(pod)), pod.guessed ? h("span", { class: "quiet" }, " guessed") : null] },
  { title: "Node", class: "short", cell: (pod) => pod.node },
  { title: "Addresses", class: "wide mono", cell: (pod) => [...pod.addresses, ...pod.anycast].join(" ") },
  { title: "Interface", class: "mono rare", cell: (pod) => pod.told.interface },
  { title: "Container", class: "mono rare", cell: (pod) => pod.told.container.slice(0, 13) },
  { title: "Policies", class: "rare", cell: (pod) => pod.policies.join(", ") || h("span", { class: "quiet" }, "none") },
  { title: "Last drop", class: "short", cell: lastDrop },
];

function lastDrop(pod) {
  const drops = model.past.dropsOf.get(pod.name);
  return drops ? `${age(now() - drops.time)} ago (${count(drops.count)})` : h("span", { class: "quiet" }, "none seen");
}

export function Pods({ given, redraw }) {
  const query = given.get("q") ?? "";
  const rows = search(query);
  const [kind, container] = selected();
  return h(
    "div",
    { class: "pods" },
    h(
      "div",
      { class: "tools" },
      h("h2", null, "Pods"),
      h("label", null, h("span", { class: "hidden" }, "Find pods"), h("input", { type: "search", value: query, placeholder: "name, address, container, node…", onInput: (event) => put({ q: event.target.value }) })),
      h("p", { class: "quiet", role: "status" }, `${count(rows.length)} of ${count(allPods().length)} pods`),
      h(Checker, { redraw }),
    ),
    h(Checked, null),
    h(LongTable, {
      label: "Pods",
      rows,
      columns: COLUMNS,
      keyOf: (pod) => pod.key,
      chosen: kind === "pod" ? rows.find((pod) => pod.told.container === container)?.key : null,
      marks: (pod) => isMarked(`pod ${pod.name}`),
      onOpen: (pod) => select("pod", pod.told.container),
      empty: query ? "no pod is like that" : "no pod is attached",
    }),
  );
}

// --- leaks and losses: what `flockctl check` answers, asked of one node ---
const checked = { node: "", at: 0, rows: null, problem: "", asking: false };

function Checker({ redraw }) {
  const names = [...model.nodes.keys()].sort(natural);
  const ask = async (event) => {
    event.preventDefault();
    const node = new FormData(event.target).get("node");
    Object.assign(checked, { node, asking: true, rows: null, problem: "" });
    redraw();
    Object.assign(checked, await asked(`api/check?${new URLSearchParams({ node })}`), { asking: false, at: now() });
    redraw();
  };
  return h("form", { class: "check", onSubmit: ask }, h("label", null, h("span", null, "Leaks and losses of "), h("select", { name: "node" }, names.map((name) => h("option", { key: name, value: name }, name)))), h("button", { type: "submit", disabled: checked.asking }, checked.asking ? "checking…" : "Check"));
}

// {rows} or {problem}; what goes wrong on the way is a problem like any other
export async function asked(url) {
  try {
    const answer = await fetch(url);
    const told = await answer.json();
    if (!answer.ok || told?.error) return { rows: null, problem: told?.error ?? `${answer.status} ${answer.statusText}` };
    return { rows: told, problem: "" };
  } catch (error) {
    return { rows: null, problem: `no answer: ${error.message}` };
  }
}

function Checked() {
  if (!checked.node || checked.asking) return h("div", { class: "checked", role: "status" });
  const when = `${checked.node}, ${clock(checked.at)}`;
  if (checked.problem) return h("div", { class: "checked", role: "status" }, state("unknown", `${when}: ${checked.problem}`));
  if (!checked.rows.length) return h("div", { class: "checked", role: "status" }, state("ready", `${when}: store, kernel and manifests agree`));
  return h(
    "div",
    { class: "checked", role: "status" },
    h("table", { "aria-label": `Leaks and losses of ${when}` }, h("caption", null, `${when}: leaks and losses`), h("thead", null, h("tr", null, ["Type", "Pod", "Container", "Item"].map((title) => h("th", { scope: "col", key: title }, title)))), h("tbody", null, checked.rows.map((row) => h("tr", null, h("td", null, state(row.type === "loss" ? "down" : "degraded", row.type)), h("td", null, row.pod || "–"), h("td", { class: "mono" }, (row.container ?? "").slice(0, 13) || "–"), h("td", null, row.item))))),
  );
}
