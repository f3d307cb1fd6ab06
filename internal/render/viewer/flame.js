// The flame graph: one tree drawn on a canvas, with a focus, a zoom and events.
import { element } from "./dom.js";
import { Boxes, Layout } from "./layout.js";
import { Labels } from "./text.js";
import { TreeGrid } from "./treegrid.js";

const BOX_ROW = 20;
const FONT = '12px "Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", "DejaVu Sans", sans-serif';
const ZOOM_TIME = 180; // ms

/**
 * FlameView draws a tree. Events (CustomEvent, detail {node}): "zoom" after the
 * shown node changed, "hover" (node -1 when none; x, y in the window), "focus",
 * "open" when a function is asked for.
 */
export class FlameView extends EventTarget {
  /** settings: {palette, theme, flame, fade, found, picked}, read whenever it draws; label is for screen readers. */
  constructor(doc, settings, label) {
    super();
    Object.assign(this, { doc, settings, first: 0, shown: 0, focused: 0, hovered: -1, history: [], boxes: new Boxes() });
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
    this.labels = new Labels(this.context);
    this.grid = new TreeGrid(doc, label);
    this.sizer = element("div", { class: "flame-sizer" }, this.canvas);
    this.scroller = element("div", { class: "flame-scroller", tabindex: "-1" }, this.sizer);
    this.node = element("div", { class: "flame" }, this.scroller, this.grid.node);
    this.listen();
  }

  listen() {
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("mousemove", (e) => this.hover(e));
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("click", (e) => this.click(e));
    this.canvas.addEventListener("dblclick", (e) => this.open(this.hit(e)));
    this.canvas.addEventListener("contextmenu", (e) => {
      const node = this.hit(e);
      if (node > 0) {
        e.preventDefault();
        this.open(node);
      }
    });
    this.grid.node.addEventListener("keydown", (e) => this.key(e));
    this.grid.node.addEventListener("focus", () => {
      this.keyboard = !this.quiet && this.grid.node.matches(":focus-visible");
      this.draw();
    });
    this.grid.node.addEventListener("blur", () => this.draw());
  }

  /** destroy stops what goes on without its elements: they are the owner's to remove. */
  destroy() {
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
  }

  /** takeFocus gives the view the keyboard; its focus gets an outline once a key is used. */
  takeFocus() {
    this.quiet = true;
    this.grid.node.focus({ preventScroll: true });
    this.quiet = false;
    this.keyboard = false;
  }

  /** show gives the view a tree; weight is how wide its nodes are, first the first level to draw. */
  show(tree, weight, first = 0) {
    cancelAnimationFrame(this.frame);
    Object.assign(this, { tree, layout: new Layout(tree, weight), first, hovered: -1, history: [] });
    this.shown = this.focused = tree.depth > first ? tree.levels[first] : 0;
    this.view = this.target();
    this.grid.update(tree, this.focused);
    this.resize();
    this.toRoot();
  }

  /** weigh changes how wide the nodes are and keeps everything else. */
  weigh(weight) {
    cancelAnimationFrame(this.frame);
    this.layout = new Layout(this.tree, weight);
    this.view = this.target();
    this.resize();
  }

  target() {
    const { x, w } = this.layout;
    return { x0: x[this.shown], x1: x[this.shown] + w[this.shown] };
  }

  /** rows counts the levels from the first one drawn to the deepest below the zoomed node. */
  rows() {
    return this.tree.level[this.shown] + this.layout.height[this.shown] + 1 - this.first;
  }

  resize() {
    if (!this.tree) return;
    const { clientWidth, clientHeight } = this.scroller;
    this.width = clientWidth;
    this.viewport = clientHeight;
    this.content = Math.max(this.rows() * BOX_ROW, clientHeight);
    this.sizer.style.height = this.content + "px";
    this.scale(devicePixelRatio || 1);
    this.draw();
  }

  scale(ratio) {
    this.ratio = ratio;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.viewport * ratio);
    this.canvas.style.width = this.width + "px";
    this.canvas.style.height = this.viewport + "px";
  }

  toRoot() {
    this.scroller.scrollTop = this.settings.flame ? this.content : 0;
  }

  /** top gives a level's y in the viewport. */
  top(level) {
    const row = level - this.first;
    const y = this.settings.flame ? this.content - (row + 1) * BOX_ROW : row * BOX_ROW;
    return y - this.scroller.scrollTop;
  }

  levelAt(y) {
    const down = y + this.scroller.scrollTop;
    return this.first + Math.floor((this.settings.flame ? this.content - down - 1 : down) / BOX_ROW);
  }

  draw() {
    if (!this.tree || this.width === 0) return;
    const started = performance.now();
    const ctx = this.context;
    const levels = [this.levelAt(0), this.levelAt(this.viewport - 1)];
    const view = { ...this.view, width: this.width, top: Math.max(this.first, Math.min(...levels)), bottom: Math.max(...levels) };
    const theme = this.settings.theme;
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.viewport);
    this.boxes.count = 0;
    let labels = 0;
    if (this.layout.whole > 0) {
      this.boxes.fill(this.layout, view);
      this.drawBoxes(ctx);
      labels = this.drawLabels(ctx, theme);
      this.outline(ctx, this.hovered, theme.hover, 1);
      if (this.keyboard && document.activeElement === this.grid.node) this.outline(ctx, this.focused, theme.focus, 2);
    }
    this.drawn = { boxes: this.boxes.count, labels, narrow: this.boxes.narrow, ms: performance.now() - started };
  }

  drawBoxes(ctx) {
    const { node, end, level, x, w, count } = this.boxes;
    const above = this.tree.level[this.shown];
    const marked = this.marked;
    for (let i = 0; i < count; i++) {
      const shown = marked ? this.speaker(marked, node[i], end[i]) : node[i];
      ctx.globalAlpha = level[i] < above ? 0.45 : this.dimmed(shown) ? 0.3 : 1;
      ctx.fillStyle = this.fill(shown);
      const y = this.top(level[i]);
      if (w[i] > 6) {
        ctx.fillRect(x[i], y, w[i] - 1, BOX_ROW - 1);
      } else {
        ctx.fillRect(x[i], y, Math.max(w[i] - 0.35, 0.5), BOX_ROW - 1);
      }
    }
    ctx.globalAlpha = 1;
    if (this.settings.fade && this.tree.columns === 1) this.hatch(ctx);
  }

  /** hatch strokes boxes whose share could be noise, where they are wide enough to show it. */
  hatch(ctx) {
    const { node, end, level, x, w, count } = this.boxes;
    ctx.fillStyle = this.settings.theme.hatch(ctx);
    for (let i = 0; i < count; i++) {
      if (w[i] < 16 || end[i] > node[i] + 1 || !this.noisy(node[i])) continue;
      ctx.fillRect(x[i], this.top(level[i]), w[i] - 1, BOX_ROW - 1);
    }
  }

  noisy(node) {
    return this.doc.certainty.noisy(0, this.tree.total(0, node));
  }

  /** marked is what is highlighted: a picked function, else what a search found, else null. */
  get marked() {
    return this.settings.picked ?? this.settings.found;
  }

  /** speaker is the node whose colour a box of several takes: a marked one, so that none is hidden. */
  speaker(marked, node, end) {
    for (let i = node; i < end; i++) if (marked.frames[this.tree.frame[i]]) return i;
    return node;
  }

  dimmed(node) {
    const { marked } = this;
    return marked !== null && (node === 0 || !marked.frames[this.tree.frame[node]]);
  }

  fill(node) {
    const { palette, theme, fade } = this.settings;
    const { tree, doc, marked } = this;
    if (marked !== null && node > 0 && marked.frames[tree.frame[node]]) return theme.match;
    if (tree.columns === 2) {
      const { difference, significant } = doc.certainty.change([tree.total(0, node), tree.total(1, node)]);
      const size = Math.max(doc.certainty.share(0, tree.totalV[0][node]), doc.certainty.share(1, tree.totalV[1][node]));
      return palette.changeFill(size > 0 ? difference / size : 0, significant);
    }
    const lead = doc.lead > 0 && tree.level[node] <= doc.lead && tree === doc.tree;
    return palette.fill(tree, lead ? 0 : node, fade && this.noisy(node));
  }

  drawLabels(ctx, theme) {
    const { node, end, level, x, w, count } = this.boxes;
    ctx.font = FONT;
    ctx.textBaseline = "middle";
    let drawn = 0;
    for (let i = 0; i < count; i++) {
      if (w[i] < 28 || end[i] > node[i] + 1) continue;
      const text = this.labels.fit(this.tree.name(node[i]), w[i] - 11);
      if (text === "") continue;
      ctx.fillStyle = this.marked === null ? theme.text : this.dimmed(node[i]) ? theme.muted : theme.matchText;
      ctx.fillText(text, x[i] + 5, this.top(level[i]) + BOX_ROW / 2);
      drawn++;
    }
    return drawn;
  }

  outline(ctx, node, color, width) {
    if (node < 0 || this.tree.level[node] < this.first) return;
    const scale = this.width / (this.view.x1 - this.view.x0);
    const left = Math.max(0, (this.layout.x[node] - this.view.x0) * scale);
    const right = Math.min(this.width, (this.layout.x[node] + this.layout.w[node] - this.view.x0) * scale);
    if (right < 0 || left > this.width) return;
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.strokeRect(left + width / 2, this.top(this.tree.level[node]) + width / 2, Math.max(2, right - left - 1 - width), BOX_ROW - 1 - width);
  }

  /** hit finds the node under a mouse event, or -1. */
  hit(e) {
    if (!this.tree || this.layout.whole <= 0) return -1;
    const box = this.canvas.getBoundingClientRect();
    const { x0, x1 } = this.view;
    const level = this.levelAt(e.clientY - box.top);
    return level < this.first ? -1 : this.layout.at(level, x0 + ((e.clientX - box.left) / this.width) * (x1 - x0));
  }

  hover(e) {
    const node = this.hit(e);
    this.canvas.style.cursor = node >= 0 ? "pointer" : "default";
    if (node !== this.hovered) {
      this.hovered = node;
      this.draw();
    }
    const narrow = node >= 0 && (this.layout.w[node] * this.width) / (this.view.x1 - this.view.x0) < this.boxes.narrow;
    this.emit("hover", { node, x: e.clientX, y: e.clientY, narrow });
  }

  leave() {
    this.hovered = -1;
    this.draw();
    this.emit("hover", { node: -1 });
  }

  click(e) {
    const node = this.hit(e);
    if (node < 0) return;
    this.takeFocus();
    this.setFocus(node);
    this.zoom(node);
  }

  open(node) {
    if (node > 0) this.emit("open", { node });
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** zoom shows a node over the whole width. */
  zoom(node, remember = true) {
    if (node === this.shown || this.layout.w[node] <= 0) return;
    if (remember) this.history.push(this.shown);
    const rootwards = this.tree.level[node] < this.tree.level[this.shown];
    this.shown = node;
    if (rootwards || this.tree.level[this.focused] < this.tree.level[node]) this.setFocus(node);
    this.animate(this.view, this.target());
    this.emit("zoom", { node });
  }

  /** back undoes the last zoom; false when there is none. */
  back() {
    if (this.history.length === 0) return false;
    const node = this.history.pop();
    this.zoom(node, false);
    return true;
  }

  /** home is the node that is shown when nothing is zoomed into. */
  get home() {
    return this.tree.depth > this.first ? this.tree.levels[this.first] : 0;
  }

  /** revealFirst scrolls to the first of some functions' boxes that lies in what is shown. */
  revealFirst(wanted) {
    const { tree, layout, shown } = this;
    const [from, to] = [layout.x[shown], layout.x[shown] + layout.w[shown]];
    for (let i = shown; i < tree.size; i++) {
      if (wanted[tree.frame[i]] && layout.w[i] > 0 && layout.x[i] >= from && layout.x[i] < to) {
        this.reveal(i);
        return;
      }
    }
  }

  reset() {
    this.zoom(this.home);
    this.history = [];
  }

  animate(from, to) {
    cancelAnimationFrame(this.frame);
    const before = this.content;
    this.resize();
    if (this.settings.flame) this.scroller.scrollTop += this.content - before;
    this.reveal(this.shown);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) {
      this.view = to;
      this.draw();
      return;
    }
    const full = this.ratio;
    if (full > 1) this.scale(1);
    const start = performance.now();
    const step = (now) => {
      const t = Math.min(1, Math.max(0, (now - start) / ZOOM_TIME));
      this.view = t === 1 ? to : viewBetween(from, to, 1 - (1 - t) ** 3);
      if (t === 1 && full > 1) this.scale(full);
      this.draw();
      if (t < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  /** setFocus moves the keyboard's box. */
  setFocus(node) {
    this.focused = node;
    this.grid.update(this.tree, node);
    this.draw();
    this.emit("focus", { node });
  }

  /** reveal scrolls a node's level into sight. */
  reveal(node) {
    const y = this.top(this.tree.level[node]);
    if (y < 0) this.scroller.scrollTop += y - BOX_ROW;
    else if (y + BOX_ROW > this.viewport) this.scroller.scrollTop += y + 2 * BOX_ROW - this.viewport;
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const rootwards = this.settings.flame ? "ArrowDown" : "ArrowUp";
    const leafwards = this.settings.flame ? "ArrowUp" : "ArrowDown";
    const { tree, focused } = this;
    let node = focused;
    if (e.key === leafwards) node = tree.heaviestChild(focused, this.layout.w);
    else if (e.key === rootwards) node = tree.level[focused] > this.first ? tree.parent[focused] : focused;
    else if (e.key === "ArrowLeft") node = this.beside(focused, -1);
    else if (e.key === "ArrowRight") node = this.beside(focused, 1);
    else if (e.key === "Home") node = tree.levels[Math.min(this.first, tree.depth - 1)];
    else if (e.key === "Enter") this.zoom(focused);
    else if (e.key === "s") this.open(focused);
    else return;
    e.preventDefault();
    e.stopPropagation();
    this.keyboard = true; // from now on the focus has an outline
    if (node >= 0 && node !== focused) this.moveTo(node);
    else this.draw();
  }

  /** beside is the next box of the same level, cousins too, as the eye sees them. */
  beside(node, step) {
    const { levels, level } = this.tree;
    const next = node + step;
    return next >= levels[level[node]] && next < levels[level[node] + 1] ? next : node;
  }

  moveTo(node) {
    const { x, w } = this.layout;
    const { x0, x1 } = this.target();
    this.setFocus(node);
    if (x[node] + w[node] <= x0 || x[node] >= x1) this.zoom(this.tree.parent[node]);
    this.reveal(node);
    const scale = this.width / (this.view.x1 - this.view.x0);
    const box = this.canvas.getBoundingClientRect();
    const left = Math.min(this.width, Math.max(0, (x[node] - this.view.x0) * scale));
    this.emit("hover", { node, x: box.left + left, y: box.top + this.top(this.tree.level[node]) + BOX_ROW, narrow: false });
  }
}

/** viewBetween moves the edges of the smaller view in straight lines over the screen. */
export function viewBetween(from, to, t) {
  const inwards = to.x1 - to.x0 <= from.x1 - from.x0;
  const [outer, inner] = inwards ? [from, to] : [to, from];
  const u = inwards ? t : 1 - t;
  const width = outer.x1 - outer.x0;
  const left = ((inner.x0 - outer.x0) / width) * (1 - u);
  const right = ((inner.x1 - outer.x0) / width) * (1 - u) + u;
  const scale = (right - left) / (inner.x1 - inner.x0);
  const x0 = inner.x0 - left / scale;
  return { x0, x1: x0 + 1 / scale };
}
