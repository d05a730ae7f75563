// The time that is marked in all views: under the pointer on a time axis, or pinned in the address (`at`).
import { model, now } from "./model.js";
import { place, put } from "./place.js";

const HOUR = 3600;
let hovered = null;
let last = { key: "", near: null };

export const pinned = () => Number(place().given.get("at")) || null;
export const markedTime = () => hovered ?? pinned();

export function hover(time, redraw) {
  if (hovered === time) return;
  hovered = time;
  redraw();
}

export const pin = (time) => put({ at: time === null ? null : Math.round(time * 10) / 10 });

// What is shown of time: the last hour, or what the reader zoomed to (`from` and `to`, kept in the address).
export function range(given = place().given) {
  const to = Number(given.get("to")) || now();
  const span = Number(given.get("span")) || HOUR;
  return { from: to - span, to, span };
}

// What happened around the marked time and whom it was about (past.js), or null.
export function marked() {
  const time = markedTime();
  if (time === null) return null;
  const window = Math.max(2, range().span / 120);
  const key = `${time} ${window} ${model.past.count}`;
  if (last.key !== key) last = { key, near: model.past.near(time, window) };
  return last.near;
}

// Whether something ("session node1 tor1", "pod shop/web-0") had its part in what happened then.
export const isMarked = (what) => marked()?.about.has(what) ?? false;
