// The card that explains one box.
import { element, replace } from "./dom.js";
import { formatChange, formatChangeInterval, formatCount, formatInterval, formatShare, formatValue } from "./format.js";
import { INLINED } from "./tree.js";

/** describe collects what there is to say of a node, for the card and for screen readers. */
export function describe(doc, tree, node) {
  const { head, certainty } = doc;
  const frame = tree.frame[node];
  const frames = tree.frames;
  const isCode = node > 0;
  const line = tree.line[node] || frames.startLine[frame];
  const columns = head.columns.map((_, c) => ({
    ...tree.total(c, node),
    self: tree.selfV[c][node],
    share: certainty.share(c, tree.totalV[c][node]),
    interval: certainty.interval(c, tree.total(c, node)),
    noisy: certainty.noisy(c, tree.total(c, node)),
  }));
  return {
    name: tree.name(node),
    place: isCode && frames.file[frame] ? frames.file[frame] + (line > 0 ? ":" + line : "") : "",
    mapping: isCode ? frames.mapping[frame] : "",
    kind: isCode && frames.kind[frame] > 0 ? head.kinds[frames.kind[frame]]?.name ?? "" : "",
    class: isCode && frames.class[frame] > 0 ? head.classes[frames.class[frame]]?.name ?? "" : "",
    inlined: (tree.flags[node] & INLINED) !== 0,
    columns,
    change: columns.length === 2 ? certainty.change(columns) : null,
  };
}

/** sentence says the same in one line. */
export function sentence(doc, about) {
  const parts = about.columns.map((c, i) => {
    const of = about.columns.length === 2 ? (i === 0 ? "before: " : "after: ") : "";
    const interval = c.interval ? `, 95% interval ${formatInterval(c.interval)}` : "";
    return `${of}${formatShare(c.share)} of all${interval}, ${formatValue(c.value, doc.head.unit)}, ${formatCount(c.n)} samples`;
  });
  return [about.name, about.inlined ? "inlined" : "", about.kind, about.place, ...parts].filter(Boolean).join(", ");
}

export class Tooltip {
  constructor(root, doc) {
    this.doc = doc;
    this.card = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
    root.append(this.card);
  }

  /** show puts the card beside a point of the window. */
  show(tree, node, x, y, note) {
    if (this.tree !== tree || this.node !== node || this.note !== note) {
      Object.assign(this, { tree, node, note });
      replace(this.card, this.content(describe(this.doc, tree, node), note));
    }
    this.card.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = this.card;
    const left = x + 14 + w > innerWidth - 8 ? x - 14 - w : x + 14;
    const top = y + 18 + h > innerHeight - 8 ? y - 12 - h : y + 18;
    this.card.style.left = Math.max(8, left) + "px";
    this.card.style.top = Math.max(8, top) + "px";
  }

  hide() {
    this.card.hidden = true;
  }

  content(about, note) {
    const marks = [about.kind, about.class, about.inlined ? "inlined" : ""].filter(Boolean);
    return [
      element("div", { class: "tip-name" }, about.name),
      about.place && element("div", { class: "tip-place" }, about.place),
      about.mapping && element("div", { class: "tip-place" }, about.mapping),
      marks.length > 0 && element("div", { class: "tip-marks" }, marks.map((m) => element("span", { class: "mark" }, m))),
      about.change ? this.comparison(about) : this.figures(about.columns[0]),
      note && element("div", { class: "tip-note" }, note),
    ];
  }

  figures(column) {
    const { unit } = this.doc.head;
    const rows = [
      ["total", formatValue(column.value, unit), formatShare(column.share)],
      ["self", formatValue(column.self, unit), formatShare(this.doc.certainty.share(0, column.self))],
      ["samples", formatCount(column.n), ""],
    ];
    return [
      element("table", { class: "tip-table" }, rows.map((row) => element("tr", {}, row.map((cell, i) => element(i ? "td" : "th", {}, cell))))),
      column.interval && element("div", { class: "tip-interval" }, whisker([column]), element("span", {}, `95% interval ${formatInterval(column.interval)}`)),
      column.noisy && element("div", { class: "tip-note" }, "Few samples: the interval is wider than the share itself."),
    ];
  }

  comparison(about) {
    const { unit } = this.doc.head;
    const row = (label, c) => element("tr", {}, element("th", {}, label), element("td", {}, formatValue(c.value, unit)),
      element("td", {}, formatShare(c.share)), element("td", {}, c.interval ? formatInterval(c.interval) : ""), element("td", {}, "n " + formatCount(c.n)));
    const { difference, interval, significant } = about.change;
    return [
      element("table", { class: "tip-table" }, row("before", about.columns[0]), row("after", about.columns[1])),
      element("div", { class: "tip-interval" }, whisker(about.columns), element("span", {}, formatChange(difference) +
        (interval ? ` (95%: ${formatChangeInterval(interval)})` : ""))),
      !significant && element("div", { class: "tip-note" }, interval && (interval[0] > 0 || interval[1] < 0)
        ? "Of as many as are compared, this could be chance." : "The interval contains 0: this could be chance."),
    ];
  }
}

/** whisker draws shares with their intervals on a common scale from 0. */
function whisker(columns) {
  const top = Math.max(...columns.map((c) => (c.interval ? c.interval[1] : c.share))) || 1;
  const percent = (v) => (100 * v) / top + "%";
  return element("div", { class: "whiskers" }, columns.map((c) => {
    const band = element("div", { class: "whisker-band" });
    const dot = element("div", { class: "whisker-dot" });
    const [lo, hi] = c.interval ?? [c.share, c.share];
    band.style.left = percent(lo);
    band.style.width = percent(hi - lo);
    dot.style.left = percent(c.share);
    return element("div", { class: "whisker" }, band, dot);
  }));
}
