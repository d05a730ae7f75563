// The head of the page: which fabric, is it well, the five views, and the last news, said aloud to who listens.
import { h } from "./lib/preact.js";
import { health } from "./derived.js";
import { model, now } from "./model.js";
import { address, put } from "./place.js";
import { age, clock, count, icon, many } from "./words.js";

const TITLES = { fabric: "Fabric", addresses: "Addresses", pods: "Pods", policy: "Policy", timeline: "Timeline" };
const ORIGINS = { node: "this node", lab: "lab", cluster: "cluster", bundle: "bundle", played: "played" };

export function Head({ view, views }) {
  const hello = model.hello;
  return h(
    "header",
    null,
    h("div", { class: "brand" }, h("h1", null, "flock"), hello ? h("span", { class: "origin" }, `${ORIGINS[hello.origin] ?? hello.origin} `, h("b", null, hello.name)) : null),
    h("nav", { "aria-label": "Views" }, views.map((name) => h("a", { key: name, href: address(name), "aria-current": name === view ? "page" : undefined }, TITLES[name]))),
    h(Theme, null),
    h("div", { class: "wellness" }, h(Health, null), h(News, null)),
    h(Guessing, null),
  );
}

function Theme() {
  const current = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const other = current === "dark" ? "light" : "dark";
  return h("button", { type: "button", class: "theme", onClick: () => put({ theme: other }) }, other === "dark" ? "Dark" : "Light");
}

function Health() {
  if (!model.hello) return h("p", { class: "health" }, "asking flockctl view…");
  const well = health(model);
  const bad = [
    well.away.length && many(well.away.length, "node") + " not reached",
    well.unready && many(well.unready, "node") + " not ready",
    well.down && many(well.down, "session") + " down",
    well.cut && many(well.cut, "link") + " cut",
    well.drained && many(well.drained, "node") + " drained",
    well.degraded && many(well.degraded, "node") + " degraded",
  ].filter(Boolean);
  const all = `${many(well.nodes, "node")}, ${many(well.sessions, "session")}, ${many(well.pods, "pod")}`;
  return h(
    "p",
    { class: `health ${bad.length ? "ill" : "well"}` },
    icon(bad.length ? "warn" : "ok", bad.length ? "warn" : "good"),
    h("strong", null, bad.length ? bad.join(" · ") : "all well"),
    h("span", { class: "quiet" }, all),
  );
}

function News() {
  const latest = model.past.latest;
  return h("p", { class: "news", role: "status", "aria-live": "polite" }, latest ? [h("time", null, clock(latest.time)), " ", h("b", null, latest.node), " ", latest.said] : null);
}

// Since when what is shown is a guess: of nodes that do not answer, or of everything.
function Guessing() {
  if (!model.hello) return null;
  if (model.lostAt) {
    return h("p", { class: "guess", role: "alert" }, icon("away"), `flockctl view does not answer since ${clock(model.lostAt)}: everything here is from then`);
  }
  if (!model.hello.live) return h("p", { class: "guess" }, icon("away"), `a recorded moment: ${clock(model.hello.at)}`);
  const away = health(model).away;
  if (!away.length) return h(InTurn, null);
  const first = away.slice(0, 3).map((node) => (node.seen ? `${node.name} since ${clock(node.seen)} (${age(now() - node.seen)})` : `${node.name}, never`));
  const more = away.length > 3 ? ` and ${count(away.length - 3)} more` : "";
  return h("p", { class: "guess" }, icon("away"), `guessing about ${first.join(", ")}${more}: not reached, shown as last known`);
}

// Where not all nodes can be followed at a time, how old the oldest state is.
function InTurn() {
  const old = [...model.nodes.values()].filter(isOld).sort((a, b) => a.seen - b.seen);
  return old.length ? h("p", { class: "guess" }, icon("away"), `${many(old.length, "node")} visited in turn, ${old[0].name} ${age(now() - old[0].seen)} ago; what is looked at is followed`) : null;
}

const isOld = (node) => node.reached && model.hello?.live && now() - node.seen > 10;
export const known = (node) => (!node.reached ? sinceWhen(node) : isOld(node) ? `as of ${clock(node.seen)} (${age(now() - node.seen)} ago)` : "now");

export const sinceWhen = (node) => (node.seen ? `guessing since ${clock(node.seen)} (${age(now() - node.seen)})` : "never reached");
