// The sandwich: one function between all that calls it and all it calls.
import { element, replace } from "./dom.js";
import { callees, callers } from "./derive.js";
import { FlameView } from "./flame.js";
import { formatChange, formatInterval, formatShare, formatValue } from "./format.js";

/** Sandwich shows one function. Events: "close", and those of its two views, with {view} in detail. */
export class Sandwich extends EventTarget {
  constructor(doc, settings) {
    super();
    this.doc = doc;
    this.callers = new FlameView(doc, Object.assign(Object.create(settings), { flame: true }), "Callers");
    this.callees = new FlameView(doc, Object.assign(Object.create(settings), { flame: false }), "Callees");
    this.title = element("div", { class: "sandwich-title" });
    const close = element("button", { class: "button", on: { click: () => this.dispatchEvent(new CustomEvent("close")) } }, "Back to the graph");
    this.node = element("section", { class: "sandwich", "aria-label": "Callers and callees", hidden: true },
      element("div", { class: "sandwich-side" }, "callers"), this.callers.node,
      element("div", { class: "sandwich-middle" }, this.title, close),
      this.callees.node, element("div", { class: "sandwich-side" }, "callees"));
    for (const view of [this.callers, this.callees]) {
      for (const type of ["hover", "open"]) {
        view.addEventListener(type, (e) => this.dispatchEvent(new CustomEvent(type, { detail: { ...e.detail, view } })));
      }
    }
  }

  /** show fills the sandwich for a function of a tree. */
  show(tree, frame, weigh) {
    this.frame = frame;
    const up = callers(tree, frame);
    const down = callees(tree, frame);
    this.node.hidden = false;
    this.callers.show(up, weigh(up), 1);
    this.callees.show(down, weigh(down), 1);
    this.callers.toRoot();
    const { head, certainty } = this.doc;
    const totals = head.columns.map((_, c) => down.total(c, 0));
    const shares = totals.map((t, c) => formatShare(certainty.share(c, t.value)));
    const interval = certainty.interval(0, totals[0]);
    const facts = totals.length === 2
      ? [shares.join(" → "), formatChange(certainty.change(totals).difference)]
      : [shares[0], formatValue(totals[0].value, head.unit), interval ? `95% interval ${formatInterval(interval)}` : ""];
    replace(this.title, element("strong", {}, tree.frames.name[frame]), facts.filter(Boolean).map((f) => element("span", {}, f)));
  }

  hide() {
    this.node.hidden = true;
    this.frame = -1;
  }

  destroy() {
    this.callers.destroy();
    this.callees.destroy();
  }

  redraw() {
    this.callers.draw();
    this.callees.draw();
  }
}
