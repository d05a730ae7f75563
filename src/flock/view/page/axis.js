// Lanes of happenings along time on a canvas; used small below every view and large by the timeline.
// A shape per meaning beside its colour: ▼ bad news, ▲ good news, ● changes, bars for drops per second.
import { Component, h } from "./lib/preact.js";
import { hover, marked, markedTime, pin, pinned, range } from "./cursor.js";
import { model } from "./model.js";
import { isBad } from "./past.js";
import { age, clock, many } from "./words.js";

const GOOD = new Set(["SessionUp", "BfdUp", "BirdThere", "NodeReady", "Announced", "ServiceAnnounced", "Undrained", "ConfigTaken"]);
const MEANINGS = { bad: 0.1, good: 0.2, muted: 0.3 };
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900];

export class Axis extends Component {
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.canvas);
    this.paint();
  }

  componentDidUpdate() {
    this.paint();
  }

  componentWillUnmount() {
    this.watch.disconnect();
  }

  time(event) {
    const box = this.canvas.getBoundingClientRect(), { from, span } = range();
    return from + (span * (event.clientX - box.left)) / box.width;
  }

  key(event) {
    const { from, to, span } = range();
    const step = (event.shiftKey ? 10 : 1) * (span / 120);
    const at = pinned() ?? to;
    const moves = { ArrowLeft: at - step, ArrowRight: at + step, Home: from, End: to, Escape: null, Delete: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const time = moves[event.key];
    pin(time === null ? null : Math.min(to, Math.max(from, time)));
  }

  render({ lanes, label, tall, redraw, onZoom }) {
    const time = markedTime(), { from, to } = range();
    const near = time === null ? 0 : marked().found.length + marked().drops.length;
    const text = time === null ? "no time is marked" : `${clock(time)}, ${age(to - time)} before the end, ${many(near, "happening")}`;
    const events = {
      onPointerMove: (event) => hover(this.time(event), redraw),
      onPointerLeave: () => hover(null, redraw),
      onPointerDown: (event) => (this.began = this.time(event)),
      onPointerUp: (event) => this.release(this.time(event), onZoom),
      onKeyDown: (event) => this.key(event),
    };
    return h("canvas", {
      ...events,
      ref: (canvas) => (this.canvas = canvas),
      class: tall ? "axis tall" : "axis",
      tabIndex: 0,
      role: "slider",
      "aria-label": label,
      "aria-valuemin": Math.round(from),
      "aria-valuemax": Math.round(to),
      "aria-valuenow": Math.round(time ?? to),
      "aria-valuetext": text,
      "data-lanes": lanes.join(" "),
    });
  }

  // A press marks the time (again: no more); a drag, where there is something to zoom, zooms.
  release(time, onZoom) {
    const began = this.began ?? time;
    const { span } = range();
    if (onZoom && Math.abs(time - began) > span / 100) onZoom(Math.min(time, began), Math.max(time, began));
    else pin(pinned() !== null && Math.abs(pinned() - time) < span / 200 ? null : time);
  }

  paint() {
    const canvas = this.canvas, scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    const inks = new Map();
    const ink = (name) => inks.get(name) ?? inks.set(name, style.getPropertyValue(`--${name}`).trim()).get(name);
    const shown = range();
    const x = (time) => ((time - shown.from) / shown.span) * width;
    const foot = 16, lane = (height - foot) / this.props.lanes.length;
    scaleOf(pen, { ...shown, width, height, foot, x, ink });
    this.props.lanes.forEach((name, at) => {
      const place = { x, top: at * lane, height: lane, width, ink, ...shown };
      if (at) line(pen, 0, at * lane, width, at * lane, ink("line"));
      name === "drops" ? bars(pen, place) : marks(pen, name, place);
    });
    const time = markedTime();
    if (time !== null) line(pen, x(time), 0, x(time), height - foot, ink("accent"), 2);
  }
}

function line(pen, x1, y1, x2, y2, colour, width = 1) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function scaleOf(pen, { from, to, span, width, height, foot, x, ink }) {
  const step = STEPS.find((s) => (span / s) * 70 <= width) ?? 1800;
  pen.fillStyle = ink("muted");
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "bottom";
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    line(pen, x(time), 0, x(time), height - foot, ink("line"));
    const text = step < 60 ? clock(time) : clock(time).slice(0, 5);
    const left = Math.min(width - pen.measureText(text).width - 1, Math.max(1, x(time) - 14));
    pen.fillText(text, left, height - 1);
  }
}

// One mark per pixel and meaning is enough, however much happened there.
function marks(pen, name, { x, top, height, from, to, ink }) {
  const drawn = new Set();
  const size = Math.min(5, height / 3), middle = top + height / 2;
  for (const happening of model.past.rings.get(name).items) {
    if (happening.time < from || happening.time > to) continue;
    const meaning = isBad(happening.kind) ? "bad" : GOOD.has(happening.kind) ? "good" : "muted";
    const at = Math.round(x(happening.time)), key = at + MEANINGS[meaning];
    if (drawn.has(key)) continue;
    drawn.add(key);
    pen.fillStyle = ink(meaning);
    pen.beginPath();
    if (meaning === "muted") pen.arc(at, middle, size * 0.55, 0, 2 * Math.PI);
    else {
      const tip = meaning === "bad" ? size : -size;
      pen.moveTo(at - size, middle - tip);
      pen.lineTo(at + size, middle - tip);
      pen.lineTo(at, middle + tip);
    }
    pen.fill();
  }
}

function bars(pen, { top, height, width, from, span, ink }) {
  const columns = [];
  const per = span / width;
  for (let column = 0; column < width; column++) {
    const first = Math.floor(from + column * per), end = Math.max(first + 1, Math.floor(from + (column + 1) * per));
    let most = 0;
    for (let second = first; second < end; second++) most = Math.max(most, model.past.rates.drops.at(second));
    columns.push(most);
  }
  const highest = Math.max(1, ...columns);
  pen.fillStyle = ink("drop");
  columns.forEach((value, column) => {
    if (value) pen.fillRect(column, top + height - 1 - (height - 3) * (value / highest), 1, (height - 3) * (value / highest));
  });
}
