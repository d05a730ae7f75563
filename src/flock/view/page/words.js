// Times, ages and counts as they are written everywhere, and the one way a state is shown: a shape and a word.
import { h } from "./lib/preact.js";

const two = (number) => String(number).padStart(2, "0");

export function clock(seconds, { millis = false } = {}) {
  if (!seconds) return "–";
  const d = new Date(seconds * 1000);
  const text = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return millis ? `${text}.${String(d.getMilliseconds()).padStart(3, "0")}` : text;
}

export function day(seconds) {
  if (!seconds) return "–";
  const d = new Date(seconds * 1000);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(seconds)}`;
}

export function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const digits = new Intl.NumberFormat("en");
export const count = (number) => (number === undefined || number === null ? "0" : number < 1000 ? String(number) : digits.format(number).replaceAll(",", " "));
export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

// Agents tell when a session changed as BIRD does ("2026-11-15 06:00:16"), others as seconds.
export function since(value) {
  if (!value) return "–";
  return /^\d+(\.\d+)?$/.test(String(value)) ? day(Number(value)) : String(value);
}

export const icon = (name, tone = "") => h("svg", { class: `icon ${tone}`, "aria-hidden": "true" }, h("use", { href: `#i-${name}` }));

// name, tone and word of a state: never a colour alone
export const STATES = {
  ready: ["ok", "good", "ready"],
  "not ready": ["off", "bad", "not ready"],
  degraded: ["warn", "warn", "degraded"],
  drained: ["drained", "warn", "drained"],
  "session down": ["warn", "warn", "session down"],
  dead: ["bad", "bad", "dead"],
  away: ["away", "guess", "not reached"],
  pending: ["away", "warn", "pending"],
  unknown: ["off", "guess", "not known"],
  up: ["ok", "good", "up"],
  down: ["bad", "bad", "down"],
  cut: ["cut", "bad", "link cut"],
  announced: ["ok", "good", "announced"],
  withheld: ["off", "bad", "not announced"],
};

export function state(kind, word = STATES[kind][2]) {
  const [shape, tone] = STATES[kind];
  return h("span", { class: `state ${tone}` }, icon(shape, tone), h("span", null, word));
}

export const mark = (is) => (is ? h("span", { class: "mark" }, icon("mark"), h("span", { class: "hidden" }, "at the marked time")) : null);
