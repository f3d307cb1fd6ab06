// Where boxes lie, and which of them are worth drawing.

/** Layout gives every node of a tree its place: x and w in the unit of the weights. */
export class Layout {
  /** weight: one number per node, no node's less than its children's together */
  constructor(tree, weight) {
    this.tree = tree;
    this.w = weight;
    this.x = new Float64Array(tree.size);
    for (let i = 0; i < tree.size; i++) {
      let x = this.x[i];
      for (let c = tree.first[i]; c < tree.first[i] + tree.children[i]; c++) {
        this.x[c] = x;
        x += weight[c];
      }
    }
    // How many levels lie under a node that have any width.
    this.height = new Int32Array(tree.size);
    for (let i = tree.size - 1; i > 0; i--) {
      const p = tree.parent[i];
      if (weight[i] > 0 && this.height[i] + 1 > this.height[p]) this.height[p] = this.height[i] + 1;
    }
  }

  get whole() {
    return this.w[0];
  }

  /** at finds the node of a level that covers x, or -1. */
  at(level, x) {
    const { levels } = this.tree;
    if (level < 0 || level >= this.tree.depth) return -1;
    const i = lowerBound(this.x, levels[level], levels[level + 1], x, true) - 1;
    return i >= levels[level] && x < this.x[i] + this.w[i] ? i : -1;
  }
}

/** lowerBound finds the first index in [low, high) with values[i] >= x, or > x. */
function lowerBound(values, low, high, x, greater = false) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < x || (greater && values[middle] === x)) low = middle + 1;
    else high = middle;
  }
  return low;
}

const NARROW = 3; // px: boxes narrower than this are merged into one
export const BUDGET = 8000; // boxes a frame may have

/** Boxes is a reused list of what to draw: nodes node..end-1 as one box, its level, x and w in px. */
export class Boxes {
  constructor() {
    this.node = new Int32Array(BUDGET);
    this.level = new Int32Array(BUDGET);
    this.x = new Float32Array(BUDGET);
    this.w = new Float32Array(BUDGET);
    this.end = new Int32Array(BUDGET);
    this.count = 0;
    this.narrow = NARROW;
  }

  /**
   * fill lists the boxes of a view {x0, x1, width, top, bottom}: the part
   * x0..x1 of the layout on width px, levels top..bottom. Where there are
   * more than the budget, wider boxes are merged until there are not.
   */
  fill(layout, view) {
    for (this.narrow = NARROW; !this.tryFill(layout, view); this.narrow *= 2);
    return this;
  }

  tryFill(layout, view) {
    this.count = 0;
    const { levels, depth } = layout.tree;
    const bottom = Math.min(view.bottom, depth - 1);
    for (let level = Math.max(0, view.top); level <= bottom; level++) {
      if (!this.fillLevel(layout, view, level, levels[level], levels[level + 1])) return false;
    }
    return true;
  }

  fillLevel({ x, w }, view, level, start, end) {
    const { x0, x1, width } = view;
    const scale = width / (x1 - x0);
    const narrow = this.narrow / scale;
    let i = Math.max(start, lowerBound(x, start, end, x0) - 1);
    while (i < end && x[i] < x1) {
      let next = i + 1;
      if (w[i] < narrow) {
        next = lowerBound(x, next, end, x[i] + narrow);
        // Only the last of these can reach further: a box of its own then.
        if (next - 1 > i && w[next - 1] >= narrow) next--;
      }
      const left = Math.max(0, (x[i] - x0) * scale);
      const right = Math.min(width, (x[next - 1] + w[next - 1] - x0) * scale);
      if (right - left > 0.1) {
        if (this.count === BUDGET) return false;
        const n = this.count++;
        this.node[n] = i;
        this.level[n] = level;
        this.x[n] = left;
        this.w[n] = right - left;
        this.end[n] = next;
      }
      i = next;
    }
    return true;
  }
}
