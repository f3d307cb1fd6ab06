// The table of functions: sortable, and only the rows in sight are elements.
import { element, replace } from "./dom.js";
import { formatChange, formatCount, formatInterval, formatShare, formatValue } from "./format.js";

const TABLE_ROW = 26;
const TABLE_HEAD = 30;

/** FunctionTable lists the functions of a tree. Events: "pick" and "open", detail {frame}. */
export class FunctionTable extends EventTarget {
  constructor(doc, settings) {
    super();
    Object.assign(this, { doc, settings, rows: [], picked: -1, sorted: null, down: true });
    this.columns = doc.head.columns.length === 2 ? this.comparison() : this.single();
    this.heads = this.columns.map((c) => element("button", { class: "th " + c.class, role: "columnheader", title: c.title, on: { click: () => this.sort(c) } },
      element("span", {}, c.label), element("span", { class: "arrow", "aria-hidden": "true" })));
    this.sizer = element("div", { class: "table-sizer", role: "rowgroup" });
    this.header = element("div", { class: "table-head", role: "row" }, this.heads);
    this.body = element("div", { class: "table-body", tabindex: "0" }, this.header, this.sizer);
    this.empty = element("div", { class: "empty", hidden: true }, "No function matches.");
    this.node = element("div", { class: "functions " + (doc.head.columns.length === 2 ? "two" : "one"), role: "table", "aria-label": "Functions" }, this.body, this.empty);
    this.body.addEventListener("scroll", () => this.draw());
    this.body.addEventListener("keydown", (e) => this.key(e));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.body);
    this.sorted = this.columns.find((c) => c.first);
  }

  /** destroy stops what goes on without its elements: they are the owner's to remove. */
  destroy() {
    this.observer.disconnect();
  }

  single() {
    const { certainty, head } = this.doc;
    const share = (v) => formatShare(certainty.share(0, v));
    const interval = (_, f) => formatInterval(certainty.interval(0, s().total(0, f)));
    const cell = (label, cls, title, get, text, extra = {}) => ({ label, class: cls, title, get, text, ...extra });
    const s = () => this.sums;
    const columns = [
      cell("Function", "name", "Function, binary", (f) => this.tree.frames.name[f], null),
      cell("Self", "num abs", "On the function itself", (f) => s().selfV[0][f], (v) => formatValue(v, head.unit)),
      cell("Self", "num pct", "Self, share of all", (f) => s().selfV[0][f], share, { bar: true, first: true }),
      cell("Total", "num abs", "With all it calls, each stack counted once", (f) => s().totalV[0][f], (v) => formatValue(v, head.unit)),
      cell("Total", "num pct", "Total, share of all", (f) => s().totalV[0][f], share, { bar: true }),
      cell("95% interval", "num range", "Where the total's true share lies, 95 times out of 100", (f) => s().totalV[0][f], interval),
      cell("Samples", "num", "Samples under Total", (f) => s().totalN[0][f], formatCount),
    ];
    // Only where there is an interval is there a column for it.
    return certainty.known ? columns : columns.filter((c) => !c.class.includes("range"));
  }

  comparison() {
    const { certainty } = this.doc;
    const s = () => this.sums;
    const change = (f) => certainty.change([s().total(0, f), s().total(1, f)]);
    const share = (c) => (v) => formatShare(certainty.share(c, v));
    return [
      { label: "Function", class: "name", title: "Function, binary", get: (f) => this.tree.frames.name[f] },
      { label: "Change", class: "num", title: "Of the total's share, in percentage points", get: (f) => Math.abs(change(f).difference), text: (_, f) => formatChange(change(f).difference), first: true, tone: change },
      { label: "Sure", class: "num sure", title: "Beyond what chance does among as many functions", get: (f) => (change(f).significant ? Math.abs(change(f).difference) : 0), text: (_, f) => (change(f).significant ? "yes" : "no") },
      { label: "Before", class: "num", title: "Share of the total before", get: (f) => s().totalV[0][f], text: share(0) },
      { label: "After", class: "num", title: "Share of the total after", get: (f) => s().totalV[1][f], text: share(1) },
      { label: "Self before", class: "num abs", title: "Share on the function itself before", get: (f) => s().selfV[0][f], text: share(0) },
      { label: "Self after", class: "num abs", title: "Share on the function itself after", get: (f) => s().selfV[1][f], text: share(1) },
    ];
  }

  /** show lists a tree's functions, or those that were found. */
  show(tree) {
    this.tree = tree;
    this.sums = tree.functions();
    this.refresh();
  }

  refresh() {
    if (!this.tree) return;
    const { found } = this.settings;
    this.rows = this.sums.frames.filter((f) => found === null || found.frames[f]);
    const { get } = this.sorted;
    const value = new Map(this.rows.map((f) => [f, get(f)]));
    for (const c of this.columns) if (c.bar) c.widest = this.rows.reduce((most, f) => Math.max(most, c.get(f)), 0);
    const sign = this.down ? -1 : 1;
    const names = this.tree.frames.name;
    this.rows.sort((a, b) => {
      const [va, vb] = [value.get(a), value.get(b)];
      if (va !== vb) return (va < vb ? -1 : 1) * sign;
      return this.sums.totalV[0][b] - this.sums.totalV[0][a] || (names[a] < names[b] ? -1 : 1);
    });
    this.heads.forEach((h, i) => {
      const active = this.columns[i] === this.sorted;
      h.setAttribute("aria-sort", active ? (this.down ? "descending" : "ascending") : "none");
      h.lastChild.textContent = active ? (this.down ? "▾" : "▴") : "";
    });
    this.sizer.style.height = this.rows.length * TABLE_ROW + "px";
    this.node.setAttribute("aria-rowcount", this.rows.length + 1);
    this.empty.hidden = this.rows.length > 0;
    this.draw();
  }

  sort(column) {
    if (this.sorted === column) this.down = !this.down;
    else Object.assign(this, { sorted: column, down: column.class !== "name" });
    this.body.scrollTop = 0;
    this.refresh();
  }

  draw() {
    if (!this.tree) return;
    const first = Math.max(0, Math.floor(this.body.scrollTop / TABLE_ROW) - 2);
    const last = Math.min(this.rows.length, first + Math.ceil(this.body.clientHeight / TABLE_ROW) + 5);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(this.rows[i], i));
    replace(this.sizer, rows);
  }

  row(frame, index) {
    const row = element("div", {
      class: "tr" + (frame === this.picked ? " picked" : ""),
      role: "row",
      "aria-rowindex": index + 2,
      "aria-selected": String(frame === this.picked),
      on: { click: () => this.pick(frame), dblclick: () => this.emit("open", frame) },
    }, this.columns.map((c) => this.cell(c, frame)));
    row.style.top = index * TABLE_ROW + "px";
    return row;
  }

  cell(column, frame) {
    if (!column.text) {
      const { frames } = this.tree;
      const where = (frames.mapping[frame] || frames.file[frame]).replace(/^.*\//, "");
      const dot = element("span", { class: "dot" });
      dot.style.background = this.settings.palette.color(this.settings.palette.swatch(frame), 1, false, false);
      return element("div", { class: "td name", role: "cell", title: frames.name[frame] }, dot,
        element("span", { class: "fn" }, frames.name[frame]), where && element("span", { class: "where" }, where));
    }
    const value = column.get(frame);
    const cell = element("div", { class: "td " + column.class, role: "cell" }, element("span", {}, column.text(value, frame)));
    if (column.bar) {
      const bar = element("i", { class: "bar" });
      bar.style.width = (column.widest > 0 ? (100 * value) / column.widest : 0) + "%";
      cell.prepend(bar);
    }
    if (column.tone) {
      const { difference, significant } = column.tone(frame);
      if (significant && difference !== 0) cell.classList.add(difference > 0 ? "more" : "less");
    }
    return cell;
  }

  pick(frame) {
    this.picked = frame;
    this.draw();
    this.emit("pick", frame);
  }

  emit(type, frame) {
    this.dispatchEvent(new CustomEvent(type, { detail: { frame } }));
  }

  key(e) {
    const at = this.rows.indexOf(this.picked);
    const page = Math.max(1, Math.floor(this.body.clientHeight / TABLE_ROW) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[e.key];
    if (e.key === "Enter" || e.key === "s") {
      if (this.picked >= 0) this.emit("open", this.picked);
    } else if (step !== undefined && this.rows.length > 0) {
      const next = Math.min(this.rows.length - 1, Math.max(0, at + step));
      this.body.scrollTop = Math.min(next * TABLE_ROW, Math.max(this.body.scrollTop, (next + 1) * TABLE_ROW + TABLE_HEAD - this.body.clientHeight));
      this.pick(this.rows[next]);
    } else {
      return;
    }
    e.preventDefault();
    e.stopPropagation();
  }
}
