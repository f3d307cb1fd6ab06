// A prefix tree in columns: node i's children are first[i] .. first[i]+children[i]-1,
// nodes stand in level order, and the first one is the root.

export const INLINED = 1;

export class Tree {
  /**
   * nodes: {children, frame, line, flags, selfN[column], selfV[column], selfS[column]}:
   * samples, value, and squared weights in units of the whole's per value.
   */
  constructor(frames, nodes) {
    this.frames = frames;
    Object.assign(this, nodes);
    this.size = nodes.frame.length;
    this.columns = nodes.selfV.length;
    this.link();
    this.totalN = nodes.selfN.map((self) => this.totals(self));
    this.totalV = nodes.selfV.map((self) => this.totals(self));
    this.totalS = nodes.selfS.map((self) => this.totals(self));
  }

  link() {
    this.first = new Int32Array(this.size);
    this.parent = new Int32Array(this.size).fill(-1);
    this.level = new Int32Array(this.size);
    this.levels = []; // where each level starts; its last entry is the end
    let next = 1;
    for (let i = 0; i < this.size; i++) {
      if (this.level[i] === this.levels.length) this.levels.push(i);
      this.first[i] = next;
      const end = Math.min(next + this.children[i], this.size);
      for (let c = next; c < end; c++) {
        this.parent[c] = i;
        this.level[c] = this.level[i] + 1;
      }
      next = end;
    }
    this.levels.push(this.size);
    this.depth = this.levels.length - 1;
  }

  totals(self) {
    const total = Float64Array.from(self);
    for (let i = this.size - 1; i > 0; i--) total[this.parent[i]] += total[i];
    return total;
  }

  name(node) {
    return node === 0 ? "all" : this.frames.name[this.frame[node]];
  }

  /** total is the sum {n, value, spread} of a node and all below it, in one column. */
  total(column, node) {
    return sumOf(this.totalN[column][node], this.totalV[column][node], this.totalS[column][node]);
  }

  /** path lists the nodes from the root to a node. */
  path(node) {
    const path = [];
    for (let i = node; i >= 0; i = this.parent[i]) path.push(i);
    return path.reverse();
  }

  /** heaviestChild is -1 where there is none. */
  heaviestChild(node, weight) {
    let best = -1;
    for (let c = this.first[node]; c < this.first[node] + this.children[node]; c++) {
      if (best < 0 || weight[c] > weight[best]) best = c;
    }
    return best;
  }

  /** outermost marks the nodes that have no ancestor of the same function. */
  outermost() {
    if (this.outermostNodes) return this.outermostNodes;
    const outermost = new Uint8Array(this.size);
    const onPath = new Int32Array(this.frames.size);
    const next = new Int32Array(this.size);
    const visit = (node) => {
      if (onPath[this.frame[node]]++ === 0) outermost[node] = 1;
      return node;
    };
    const stack = [visit(0)];
    while (stack.length > 0) {
      const node = stack[stack.length - 1];
      if (next[node] < this.children[node]) {
        stack.push(visit(this.first[node] + next[node]++));
      } else {
        onPath[this.frame[node]]--;
        stack.pop();
      }
    }
    this.outermostNodes = outermost;
    return outermost;
  }

  /** functions folds the tree: {frames, selfV[c], totalN[c], totalV[c], totalS[c]} indexed by frame. */
  functions() {
    if (this.functionSums) return this.functionSums;
    const column = () => Array.from({ length: this.columns }, () => new Float64Array(this.frames.size));
    const sums = { selfV: column(), totalN: column(), totalV: column(), totalS: column(), frames: [] };
    sums.total = (c, f) => sumOf(sums.totalN[c][f], sums.totalV[c][f], sums.totalS[c][f]);
    const outermost = this.outermost();
    const seen = new Uint8Array(this.frames.size);
    for (let i = 1; i < this.size; i++) {
      const f = this.frame[i];
      if (!seen[f]) {
        seen[f] = 1;
        sums.frames.push(f);
      }
      for (let c = 0; c < this.columns; c++) {
        sums.selfV[c][f] += this.selfV[c][i];
        if (outermost[i]) {
          sums.totalN[c][f] += this.totalN[c][i];
          sums.totalV[c][f] += this.totalV[c][i];
          sums.totalS[c][f] += this.totalS[c][i];
        }
      }
    }
    this.functionSums = sums;
    return sums;
  }

  /** find tests every function: {frames: marks, functions: how many, sums: per column, each stack counted once}. */
  find(test) {
    const wanted = new Uint8Array(this.frames.size);
    let functions = 0;
    for (const f of this.functions().frames) {
      if (test(f)) {
        wanted[f] = 1;
        functions++;
      }
    }
    const inside = new Uint8Array(this.size);
    const zeros = () => new Array(this.columns).fill(0);
    const [n, value, squares] = [zeros(), zeros(), zeros()];
    for (let i = 1; i < this.size; i++) {
      const match = wanted[this.frame[i]];
      const below = inside[this.parent[i]];
      inside[i] = below | match;
      if (!match) continue;
      if (below) continue;
      for (let c = 0; c < this.columns; c++) {
        n[c] += this.totalN[c][i];
        value[c] += this.totalV[c][i];
        squares[c] += this.totalS[c][i];
      }
    }
    return { frames: wanted, functions, sums: n.map((_, c) => sumOf(n[c], value[c], squares[c])) };
  }
}

function sumOf(n, value, squares) {
  return { n, value, spread: value > 0 ? squares / value : 1 };
}

/** matcher makes a test of frames from what a user typed; throws on a broken expression. */
export function matcher(frames, text) {
  let field = frames.name;
  const prefix = /^(file|bin|pkg):/.exec(text);
  if (prefix) {
    field = { file: frames.file, bin: frames.mapping, pkg: frames.package }[prefix[1]];
    text = text.slice(prefix[0].length);
  }
  if (text === "") return () => false;
  // As in ripgrep: a capital letter asks for exact case.
  const expression = new RegExp(text, /[A-Z]/.test(text.replace(/\\./g, "")) ? "u" : "iu");
  return (f) => expression.test(field[f]);
}
