// The flame graph for screen readers: an ARIA treegrid of the focused node's
// path, siblings and children. It follows the focus, so that it stays small
// in a tree of any size.
import { element, replace } from "./dom.js";
import { formatCount, formatInterval, formatShare, formatValue } from "./format.js";
import { describe, sentence } from "./tooltip.js";

const NEIGHBOURS = 25; // siblings and children listed each way

let grids = 0;

export class TreeGrid {
  /** surface is the element that has the keyboard focus. */
  constructor(doc, label) {
    this.doc = doc;
    this.prefix = `tree${grids++}-`;
    this.body = element("div", { role: "rowgroup" });
    this.node = element("div", { role: "treegrid", class: "treegrid", tabindex: "0", "aria-label": label, "aria-readonly": "true" }, this.body);
  }

  update(tree, focus) {
    this.node.setAttribute("aria-colcount", "4");
    const rows = this.listed(tree, focus).map((n) => this.row(tree, n, focus));
    replace(this.body, rows);
    this.node.setAttribute("aria-activedescendant", this.prefix + focus);
  }

  /** listed gives the path to the focus, its siblings and its children, in the order of a tree. */
  listed(tree, focus) {
    const path = tree.path(focus);
    const above = path.slice(0, -1);
    const children = neighbours(tree, focus, tree.first[focus]);
    if (above.length === 0) return [focus, ...children];
    const siblings = neighbours(tree, above[above.length - 1], focus);
    return [...above, ...siblings.flatMap((n) => (n === focus ? [n, ...children] : [n]))];
  }

  row(tree, node, focus) {
    const about = describe(this.doc, tree, node);
    const parent = tree.parent[node];
    const column = about.columns[about.columns.length - 1];
    const cells = [about.name, formatShare(column.share) + (column.interval ? ` (${formatInterval(column.interval)})` : ""),
      formatValue(column.value, this.doc.head.unit), `${formatCount(column.n)} samples`];
    return element("div", {
      role: "row",
      id: this.prefix + node,
      "aria-level": tree.level[node] + 1,
      "aria-posinset": parent < 0 ? 1 : node - tree.first[parent] + 1,
      "aria-setsize": parent < 0 ? 1 : tree.children[parent],
      "aria-expanded": tree.children[node] > 0 ? String(node === focus || tree.path(focus).includes(node)) : null,
      "aria-selected": String(node === focus),
      "aria-label": sentence(this.doc, about),
    }, cells.map((text) => element("span", { role: "gridcell" }, text)));
  }
}

/** neighbours lists the children of a parent around one of them. */
function neighbours(tree, parent, around) {
  const start = Math.max(tree.first[parent], around - NEIGHBOURS);
  const end = Math.min(tree.first[parent] + tree.children[parent], around + NEIGHBOURS);
  return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
}
