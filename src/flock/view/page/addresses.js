// Address by node: who announces it, and why not; a matrix while it fits, a list of nodes per address when it does not.
import { h } from "./lib/preact.js";
import { isMarked } from "./cursor.js";
import { addresses, matching } from "./derived.js";
import { model, natural } from "./model.js";
import { put, select } from "./place.js";
import { count, mark, state } from "./words.js";

const COLUMN = 160; // px a node needs in a matrix
const CELLS = 24; // nodes listed of an address before the rest is only counted

export function Addresses({ given }) {
  const query = given.get("q") ?? "";
  const all = addresses(model);
  const found = matching(all, query);
  const nodes = [...new Set(found.flatMap((entry) => [...entry.cells.keys()]))].sort(natural);
  return h(
    "div",
    { class: "addresses" },
    h(
      "div",
      { class: "tools" },
      h("h2", null, "Addresses"),
      h("label", null, h("span", { class: "hidden" }, "Find addresses"), h("input", { type: "search", value: query, placeholder: "address, node, pod, reason…", onInput: (event) => put({ q: event.target.value }) })),
      h("p", { class: "quiet", role: "status" }, `${count(found.length)} of ${count(all.length)} addresses`),
    ),
    found.length ? h("div", { class: "scroll" }, nodes.length + 1 <= innerWidth / COLUMN ? h(Matrix, { found, nodes }) : h(Listed, { found })) : h("p", { class: "empty" }, all.length ? "no address is like that" : "no pod here asks for an anycast or extra address, and no Service is announced"),
  );
}

const head = (titles) => h("thead", null, h("tr", null, titles.map((title) => h("th", { scope: "col", key: title }, title))));

function About({ entry }) {
  const announcing = [...entry.cells.values()].filter((cell) => cell.announced).length;
  return h("th", { scope: "row" }, h("code", null, entry.address), mark(isMarked(`address ${entry.address}`)), h("div", { class: "quiet" }, `${[...entry.kinds].join(", ")}; announced by ${count(announcing)} of ${count(entry.cells.size)}`), entry.routers.map(([router, to]) => h("div", { class: "quiet", key: router }, `${router} sends to ${to.join(", ")}`)));
}

function Matrix({ found, nodes }) {
  return h(
    "table",
    { class: "matrix", "aria-label": "Addresses by node" },
    head(["Address", ...nodes]),
    h("tbody", null, found.map((entry) => h("tr", { key: entry.address }, h(About, { entry }), nodes.map((name) => h("td", { key: name, class: isMarked(`cell ${entry.address} ${name}`) ? "marked" : "" }, entry.cells.has(name) ? h(Cell, { cell: entry.cells.get(name) }) : h("span", { class: "quiet" }, "no pod asks")))))),
  );
}

function Listed({ found }) {
  return h(
    "table",
    { class: "matrix listed", "aria-label": "Addresses and their nodes" },
    head(["Address", "Nodes"]),
    h("tbody", null, found.map((entry) => {
      const cells = [...entry.cells.values()].sort((a, b) => a.announced - b.announced || natural(a.node, b.node));
      const more = cells.length - CELLS;
      return h("tr", { key: entry.address }, h(About, { entry }), h("td", null, h("ul", { class: "cells" }, cells.slice(0, CELLS).map((cell) => h("li", { key: cell.node, class: isMarked(`cell ${entry.address} ${cell.node}`) ? "marked" : "" }, h("strong", null, cell.node), h(Cell, { cell })))), more > 0 ? h("p", { class: "quiet" }, `and ${count(more)} more nodes that announce it`) : null));
    })),
  );
}

// What stands behind an address on one node: each pod, and why it does not announce.
function Cell({ cell }) {
  return h(
    "div",
    { class: `cell ${cell.guessed ? "guessed" : ""}` },
    state(cell.announced ? "announced" : "withheld"),
    cell.guessed ? h("span", { class: "quiet" }, " a guess: node not reached") : null,
    h("ul", { class: "plain" }, cell.rows.map((row) => h("li", { key: row.pod + row.interface }, row.kind === "service" ? h("span", null, "Service ", row.pod) : h("button", { type: "button", class: "link", onClick: () => openPod(cell.node, row) }, row.pod || row.interface), row.announced ? null : h("span", { class: "why" }, ` ${row.reason}`)))),
  );
}

function openPod(node, row) {
  const pod = model.nodes.get(node)?.pods.find((p) => p.told.interface === row.interface);
  if (pod) select("pod", pod.told.container);
}
