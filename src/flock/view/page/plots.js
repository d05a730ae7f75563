// Rates and latencies as small plots over the shown time (uPlot); the time under the pointer is everybody's.
import { Component, h } from "./lib/preact.js";
import { hover, markedTime, range } from "./cursor.js";
import { model } from "./model.js";
import { clock } from "./words.js";

const POINTS = 240; // at most, of a plot: more than it has pixels to tell apart
const HEIGHT = 84;

export const PLOTS = [
  { name: "adds", title: "ADDs per second", sum: "mean", digits: 1 },
  { name: "p50", title: "ADD p50, ms", sum: "known", digits: 1 },
  { name: "drops", title: "Drops per second", sum: "mean", digits: 0 },
  { name: "prefixes", title: "Prefixes received and sent", sum: "known", digits: 0 },
];

// [times, values]: rates are means per second, samples the last one known; null where nothing is known.
export function series({ name, sum }, { from, to }) {
  const rate = model.past.rates[name], step = Math.max(1, Math.ceil((to - from) / POINTS));
  const times = [], values = [];
  for (let first = Math.floor(from / step) * step; first < to; first += step) {
    let total = 0, known = null;
    for (let second = first; second < first + step; second++) {
      total += rate.at(second);
      const told = rate.at(second, null);
      if (told !== null) known = told;
    }
    times.push(first);
    values.push(sum === "mean" ? total / step : known);
  }
  if (sum === "mean") values[values.length - 1] = values.at(-2) ?? 0; // the last step is not over
  return [times, values];
}

export class Plot extends Component {
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.plot && this.plot.setSize({ width: this.box.clientWidth, height: HEIGHT }));
    this.watch.observe(this.box);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.make();
  }

  componentDidUpdate() {
    const theme = document.documentElement.dataset.theme ?? String(this.dark.matches);
    if (theme !== this.theme) this.make();
    this.show();
  }

  componentWillUnmount() {
    this.watch.disconnect();
    this.plot.destroy();
  }

  make() {
    this.plot?.destroy();
    this.theme = document.documentElement.dataset.theme ?? String(this.dark.matches);
    const style = getComputedStyle(this.box), ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: ink("muted"), grid: { stroke: ink("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const told = (u) => {
      if (u.cursor.event && u.cursor.left >= 0) hover(u.posToVal(u.cursor.left, "x"), this.props.redraw);
    };
    this.plot = new globalThis.uPlot(
      {
        width: this.box.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: true, y: false, setScale: false } },
        scales: { y: { range: (u, low, high) => [0, Math.max(1, (high ?? 0) * 1.1)] } },
        axes: [
          { ...axis, size: 20, gap: 2, values: (u, splits) => splits.map((time) => clock(time).slice(0, range().span < 600 ? 8 : 5)) },
          { ...axis, size: 44, gap: 4 },
        ],
        series: [{}, { stroke: ink("accent"), fill: ink("tint"), width: 1.5, spanGaps: true, points: { show: false } }],
        hooks: {
          setCursor: [told],
          setSelect: [(u) => u.select.width > 4 && this.props.onZoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
        },
      },
      [[], []],
      this.canvas,
    );
    this.plot.over.addEventListener("mouseleave", () => hover(null, this.props.redraw));
    this.show();
  }

  show() {
    const shown = range(), key = `${Math.floor(shown.from)} ${Math.floor(shown.to)} ${model.turn >> 3}`;
    if (key !== this.key || this.drawn !== this.plot) {
      [this.key, this.drawn] = [key, this.plot];
      this.plot.setData(series(this.props.of, shown), false);
      this.plot.setScale("x", { min: shown.from, max: shown.to });
    }
    const time = markedTime();
    const left = time === null ? -10 : this.plot.valToPos(time, "x");
    if (Math.abs((this.plot.cursor.left ?? -10) - left) > 1) this.plot.setCursor({ left, top: 0 }, false);
  }

  render({ of }) {
    const [times, values] = series(of, range());
    const at = markedTime();
    const place = at === null ? values.length - 1 : times.findLastIndex((time) => time <= at);
    const value = values[place];
    const told = value === null || value === undefined ? "not known" : value.toFixed(of.digits);
    return h(
      "figure",
      { class: "plot", ref: (box) => (this.box = box) },
      h("figcaption", null, of.title, " ", h("strong", null, told), at === null ? null : h("span", { class: "quiet" }, ` at ${clock(at)}`)),
      h("div", { ref: (canvas) => (this.canvas = canvas), role: "img", "aria-label": `${of.title}: ${told}` }),
    );
  }
}
