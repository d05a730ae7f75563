// The page: follows api/stream, draws the view the address names.  What changes is drawn at most once per frame, and
// what others make happen a few times a second, however much it is; what the reader does, at the next frame.
import { h, render } from "./lib/preact.js";
import { Addresses } from "./addresses.js";
import { Axis } from "./axis.js";
import { markedTime, marked, pin } from "./cursor.js";
import { Detail } from "./detail.js";
import { Fabric } from "./fabric.js";
import { Head } from "./head.js";
import { allPods, follow, model } from "./model.js";
import { isNews } from "./past.js";
import { place, put, selected, VIEWS } from "./place.js";
import { Pods, search } from "./pods.js";
import { Policy } from "./policy.js";
import { Timeline } from "./timeline.js";
import { clock, many } from "./words.js";

const SHOWN = { fabric: Fabric, addresses: Addresses, pods: Pods, policy: Policy, timeline: Timeline };
const CALM = 150; // ms between drawings of what others did,
const SHARE = 5; // and this many times what a drawing takes: the rest of the time is the reader's
const root = document.getElementById("app");
let frame = 0, timer = 0, drawnAt = 0, cost = 0;

function draw() {
  frame = 0;
  clearTimeout(timer);
  timer = 0;
  const began = performance.now();
  const { view, given } = place();
  theme(given.get("theme"));
  const held = document.activeElement;
  render(h(App, { view, given }), root);
  // What was under the reader's fingers may be gone: Tab goes on in the view, not from the top of the page.
  if (!held.isConnected && document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
  drawnAt = performance.now();
  cost = drawnAt - began;
}

export function redraw() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function changed(event) {
  if (event === "hello" || event === "lost") return redraw();
  if (!timer && !frame) timer = setTimeout(redraw, Math.max(0, Math.max(CALM, SHARE * cost) - (performance.now() - drawnAt)));
  return undefined;
}

function theme(name) {
  const want = name === "dark" || name === "light" ? name : "";
  if ((document.documentElement.dataset.theme ?? "") !== want) {
    if (want) document.documentElement.dataset.theme = want;
    else delete document.documentElement.dataset.theme;
  }
}

function App({ view, given }) {
  const View = SHOWN[view];
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · ${model.hello?.name ?? "flock"}`;
  return h(
    "div",
    { class: `page at-${view}` },
    h("a", { class: "skip", href: "#main", onClick: (event) => (event.preventDefault(), document.getElementById("main").focus()) }, "Skip to the view"),
    h(Head, { view, views: VIEWS, redraw }),
    h(
      "div",
      { class: "body" },
      h("main", { id: "main", tabIndex: -1, "aria-label": view }, h(Then, null), h(View, { given, redraw })),
      h(Detail, { redraw }),
    ),
    view === "timeline" ? null : h("footer", { "aria-label": "The last hour" }, h(Axis, { lanes: ["sessions", "announcements", "drops"], label: "Marked time, in the last hour", redraw })),
  );
}

// What happened at the marked time, above every view.
function Then() {
  const near = marked();
  if (!near) return null;
  const news = near.found.filter((h) => isNews(h.kind));
  const quiet = near.found.length - news.length;
  const rest = [news.length > 4 && `${news.length - 4} more`, quiet && many(quiet, "pod change"), near.drops.length && many(near.drops.length, "drop")].filter(Boolean);
  return h(
    "section",
    { class: "then", "aria-label": "At the marked time" },
    h("strong", null, clock(markedTime())),
    h("ul", null, news.slice(0, 4).map((happening) => h("li", { key: happening.order }, h("b", null, happening.node), " ", happening.said)), rest.length || !news.length ? h("li", null, rest.join(", ") || "nothing is known to have happened then") : null),
    h("button", { type: "button", onClick: () => pin(null) }, "unmark"),
  );
}

// Whoever cannot follow all nodes at a time is told which are looked at: those of what is chosen and of a narrow search.
let looked = "";
function look() {
  const [kind, name] = selected();
  const rows = place().view === "pods" && place().given.get("q") ? search(place().given.get("q")).slice(0, 20) : [];
  const chosen = kind === "pod" ? allPods().find((pod) => pod.told.container === name)?.node : kind === "router" ? "" : name;
  const nodes = [...new Set([chosen, ...rows.map((pod) => pod.node)])].filter((node) => model.nodes.has(node)).slice(0, 6);
  const query = new URLSearchParams(nodes.map((node) => ["node", node])).toString();
  if (query && query !== looked && model.hello?.origin === "cluster") fetch(`api/look?${query}`).catch(() => {});
  looked = query;
}

window.addEventListener("hashchange", () => (redraw(), look()));
window.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, select, textarea");
  if (event.key === "/" && !typing) {
    const search = document.querySelector("main input[type=search]");
    if (search) event.preventDefault();
    search?.focus();
  } else if (event.key === "Escape" && !typing && place().given.get("sel")) put({ sel: null }, { step: true });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(redraw, 1000); // ages grow
setInterval(() => ((looked = ""), look()), 5000); // and it is still looked at
follow("api/stream", changed);
redraw();
