// The last hour on one axis, lane by lane; below it rates and latencies; below them every happening in words.
import { h } from "./lib/preact.js";
import { Axis } from "./axis.js";
import { marked, range } from "./cursor.js";
import { model } from "./model.js";
import { isBad, LANES, laneOf } from "./past.js";
import { put, select } from "./place.js";
import { Plot, PLOTS } from "./plots.js";
import { LongTable } from "./table.js";
import { clock, count, icon } from "./words.js";

const SPANS = [[3600, "1 h"], [900, "15 min"], [300, "5 min"], [60, "1 min"]];
const ROWS = 2000;

const COLUMNS = [
  { title: "Time", class: "mono short", cell: (one) => clock(one.time, { millis: true }) },
  { title: "Node", class: "short", cell: (one) => one.node },
  { title: "Kind", class: "kind", cell: (one) => [icon(isBad(one.kind) ? "warn" : "off", isBad(one.kind) ? "bad" : "quiet"), " ", one.kind] },
  { title: "What happened", class: "wide", cell: (one) => one.said },
];

export function Timeline({ given, redraw }) {
  const query = given.get("q") ?? "", lane = given.get("lane") ?? "", shown = range(given);
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = (one) => one.time >= shown.from && one.time <= shown.to + 1 && words.every((word) => `${one.node} ${one.kind} ${one.said}`.toLowerCase().includes(word));
  // Drops are many: they are listed when somebody asks for them.
  const listed = (one) => (lane || query || one.kind !== "Dropped") && wanted(one);
  const rows = model.past.newest(ROWS, listed, lane);
  const lanes = LANES.filter((one) => !["pods", "other"].includes(one.name) || model.past.rings.get(one.name).items.length).map((one) => one.name);
  const zoom = (from, to) => put({ to: to.toFixed(1), span: Math.max(10, to - from).toFixed(1) }, { step: true });
  const near = marked();
  return h(
    "div",
    { class: "timeline" },
    h(
      "div",
      { class: "tools" },
      h("h2", null, "Timeline"),
      h("label", null, h("span", { class: "hidden" }, "Find happenings"), h("input", { type: "search", value: query, placeholder: "node, kind, words…", onInput: (event) => put({ q: event.target.value }) })),
      h(Zoom, { given, shown, zoom }),
    ),
    h(
      "div",
      { class: "lanes", style: { "--lanes": lanes.length } },
      h("ul", { class: "names", "aria-label": "Lanes" }, lanes.map((name) => h("li", { key: name }, h("button", { type: "button", "aria-pressed": String(lane === name), onClick: () => put({ lane: lane === name ? null : name }) }, name === "drops" ? "drops per second" : name)))),
      h(Axis, { lanes, label: "Marked time; drag to zoom", tall: true, redraw, onZoom: zoom }),
    ),
    h("div", { class: "plots" }, PLOTS.map((of) => h(Plot, { key: of.name, of, redraw, onZoom: zoom, turn: model.turn }))),
    h("p", { class: "quiet", role: "status" }, `${count(rows.length)}${rows.length === ROWS ? " newest" : ""} happenings between ${clock(shown.from)} and ${clock(shown.to)}${lane || query ? "" : ", without drops"}`),
    h(LongTable, {
      label: "What happened",
      rows,
      columns: COLUMNS,
      keyOf: (one) => one.order,
      marks: (one) => near !== null && Math.abs(one.time - near.time) <= near.window,
      onOpen: (one) => (one.peer && laneOf(one.kind) === "sessions" ? select("session", one.node, one.peer) : select("node", one.node)),
      empty: "nothing of that kind happened in this time",
    }),
  );
}

function Zoom({ given, shown, zoom }) {
  const middle = (factor) => zoom(shown.to - (shown.span * (1 + factor)) / 2, shown.to - (shown.span * (1 - factor)) / 2);
  const current = Number(given.get("span")) || 3600;
  return h(
    "div",
    { class: "zoom", role: "group", "aria-label": "Zoom" },
    SPANS.map(([span, title]) => h("button", { type: "button", key: title, "aria-pressed": String(current === span && !given.get("to")), onClick: () => put({ span: span === 3600 ? null : span, to: null }) }, title)),
    h("button", { type: "button", "aria-label": "Zoom in", onClick: () => middle(0.5) }, "+"),
    h("button", { type: "button", "aria-label": "Zoom out", onClick: () => middle(2) }, "−"),
  );
}
