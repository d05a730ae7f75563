// A table of any length of which only what is seen exists: rows of one height, a row above and one below for the rest.
// One stop for Tab; arrows, Page, Home and End go along the rows, Enter opens one.
import { Component, h } from "./lib/preact.js";

const SPARE = 8; // rows drawn beyond what is seen, on either side

export class LongTable extends Component {
  state = { top: 0, height: 600, active: 0 };

  componentDidMount() {
    this.watch = new ResizeObserver(() => this.measure());
    this.watch.observe(this.box);
  }

  componentWillUnmount() {
    this.watch.disconnect();
  }

  getSnapshotBeforeUpdate() {
    return this.box.contains(document.activeElement);
  }

  // A row that had the focus may be gone, or out of sight: another one has it then.
  componentDidUpdate(_props, _state, held) {
    const lost = held && !this.box.contains(document.activeElement);
    if (!this.focus && !lost) return;
    this.focus = false;
    this.box.querySelector("tr[tabindex='0']")?.focus({ preventScroll: true });
  }

  measure() {
    const row = this.box.querySelector("tbody tr[aria-rowindex]");
    this.setState({ height: this.box.clientHeight, row: row?.offsetHeight || this.state.row || 34 });
  }

  move(event) {
    const { rows, onOpen } = this.props, { active, height } = this.state, page = Math.max(1, Math.floor(height / this.row()) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    if (event.key === "Enter" && rows[active]) return onOpen?.(rows[active]);
    if (!(event.key in moves) || !rows.length) return undefined;
    event.preventDefault();
    const next = Math.min(rows.length - 1, Math.max(0, active + moves[event.key]));
    const head = this.box.querySelector("thead").offsetHeight, row = this.row();
    if (next * row < this.box.scrollTop) this.box.scrollTop = next * row;
    if ((next + 1) * row + head > this.box.scrollTop + height) this.box.scrollTop = (next + 1) * row + head - height;
    this.focus = true;
    return this.setState({ active: next, top: this.box.scrollTop });
  }

  row() {
    return this.state.row ?? 34;
  }

  render({ rows, columns, label, keyOf, onOpen, chosen, empty, marks }, { top, height }) {
    const row = this.row(), active = Math.min(this.state.active, Math.max(0, rows.length - 1));
    const first = Math.max(0, Math.min(Math.floor(top / row) - SPARE, rows.length - 1));
    const end = Math.min(rows.length, Math.ceil((top + height) / row) + SPARE);
    const inView = active >= first && active < end ? active : first;
    const space = (count) => h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colSpan: columns.length, style: { height: `${count * row}px` } }));
    const line = (item, at) =>
      h(
        "tr",
        {
          key: keyOf(item),
          "aria-rowindex": at + 2,
          tabIndex: at === inView ? 0 : -1,
          class: `${onOpen ? "opens" : ""} ${marks?.(item) ? "marked" : ""}`,
          "aria-selected": chosen === undefined ? undefined : String(keyOf(item) === chosen),
          onClick: () => this.setState({ active: at }, () => onOpen?.(item)),
        },
        columns.map((column) => h("td", { class: column.class }, column.cell(item))),
      );
    return h(
      "div",
      {
        class: "scroll",
        ref: (box) => (this.box = box),
        onScroll: () => this.setState({ top: this.box.scrollTop }),
        onKeyDown: (event) => this.move(event),
      },
      h(
        "table",
        { class: "long", "aria-label": label, "aria-rowcount": rows.length + 1 },
        h("thead", null, h("tr", { "aria-rowindex": 1 }, columns.map((column) => h("th", { scope: "col", class: column.class }, column.title)))),
        h("tbody", null, first > 0 ? space(first) : null, rows.slice(first, end).map((item, at) => line(item, first + at)), end < rows.length ? space(rows.length - end) : null),
      ),
      rows.length ? null : h("p", { class: "empty" }, empty),
    );
  }
}
