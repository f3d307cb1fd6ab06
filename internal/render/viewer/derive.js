// Trees made from a tree: without its leading levels, one thread's part, and
// the callers and callees of a function.
import { Tree } from "./tree.js";

const MEASURES = ["N", "V", "S"]; // of a Tree: selfN, totalN ...
const VALUE = 1;

class TreeBuilder {
  constructor(source) {
    this.source = source;
    this.nodes = [{ frame: 0, line: 0, flags: 0, children: new Map(), sums: this.zeros(), total: 0 }];
  }

  zeros() {
    return MEASURES.map(() => new Array(this.source.columns).fill(0));
  }

  /** child finds or adds the child of a node for the frame of a source node. */
  child(node, from) {
    const { frame, line, flags } = this.source;
    const known = this.nodes[node].children.get(frame[from]);
    if (known === undefined) {
      const id = this.nodes.length;
      this.nodes.push({ frame: frame[from], line: line[from], flags: flags[from], children: new Map(), sums: this.zeros(), total: 0 });
      this.nodes[node].children.set(frame[from], id);
      return id;
    }
    const child = this.nodes[known];
    if (child.line !== line[from]) child.line = 0; // several call sites
    child.flags &= flags[from]; // inlined only where it always is
    return known;
  }

  /** add adds what a source node has: "self" or "total". */
  add(node, which, from) {
    const { sums } = this.nodes[node];
    MEASURES.forEach((measure, m) => {
      const values = this.source[which + measure];
      for (let c = 0; c < values.length; c++) sums[m][c] += values[c][from];
    });
  }

  /** build sorts children by value and puts the nodes in level order. */
  build() {
    const nodes = this.nodes;
    for (let i = nodes.length - 1; i >= 0; i--) {
      // A child is always made after its parent, so this order sums upwards.
      nodes[i].total += nodes[i].sums[VALUE].reduce((a, b) => a + b, 0);
      for (const c of nodes[i].children.values()) nodes[i].total += nodes[c].total;
    }
    const order = [0];
    for (let i = 0; i < order.length; i++) {
      const children = [...nodes[order[i]].children.values()];
      children.sort((a, b) => nodes[b].total - nodes[a].total || a - b);
      for (const c of children) order.push(c);
    }
    const columns = (m) => this.source.selfV.map((_, c) => Float64Array.from(order, (i) => nodes[i].sums[m][c]));
    return new Tree(this.source.frames, {
      children: Int32Array.from(order, (i) => nodes[i].children.size),
      frame: Int32Array.from(order, (i) => nodes[i].frame),
      line: Int32Array.from(order, (i) => nodes[i].line),
      flags: Uint8Array.from(order, (i) => nodes[i].flags),
      ...Object.fromEntries(MEASURES.map((measure, m) => ["self" + measure, columns(m)])),
    });
  }
}

/** below merges what lies under some nodes, none of them under another. */
export function below(tree, roots, includeRoots = false) {
  const builder = new TreeBuilder(tree);
  const image = new Int32Array(tree.size).fill(-1);
  for (const root of roots) image[root] = includeRoots ? builder.child(0, root) : 0;
  for (let i = 0; i < tree.size; i++) {
    if (image[i] < 0 && i > 0 && image[tree.parent[i]] >= 0) image[i] = builder.child(image[tree.parent[i]], i);
    if (image[i] >= 0) builder.add(image[i], "self", i);
  }
  return builder.build();
}

/** withoutLead merges all threads: the first levels under the root are left out. */
export function withoutLead(tree, lead) {
  const roots = [];
  const end = tree.levels[Math.min(lead + 1, tree.depth)];
  for (let i = 0; i < end; i++) {
    if (tree.level[i] === lead || tree.children[i] === 0) roots.push(i);
  }
  return below(tree, roots);
}

/** callees merges everything a function calls, recursion inside it. */
export function callees(tree, frame) {
  return below(tree, instances(tree, frame), true);
}

/** callers merges the stacks that lead to a function, nearest caller first. */
export function callers(tree, frame) {
  const builder = new TreeBuilder(tree);
  for (const node of instances(tree, frame)) {
    let at = 0;
    for (let i = node; i > 0; i = tree.parent[i]) at = builder.child(at, i);
    builder.add(at, "total", node);
  }
  return builder.build();
}

function instances(tree, frame) {
  const outermost = tree.outermost();
  const nodes = [];
  for (let i = 1; i < tree.size; i++) {
    if (tree.frame[i] === frame && outermost[i]) nodes.push(i);
  }
  return nodes;
}
