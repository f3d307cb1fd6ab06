// The whole viewer: a document in, views of it that act together.
import { Certainty } from "./certainty.js";
import { Palette } from "./color.js";
import { below, withoutLead } from "./derive.js";
import { element, icon, replace } from "./dom.js";
import { FlameView } from "./flame.js";
import { formatChange, formatInterval, formatShare, formatValue } from "./format.js";
import { headView } from "./head.js";
import { helpDialog } from "./help.js";
import { Sandwich } from "./sandwich.js";
import { nodeAt, pathTo, readState, stateOf } from "./state.js";
import { FunctionTable } from "./table.js";
import { Tooltip } from "./tooltip.js";
import { matcher } from "./tree.js";

const SHOWN = ["graph", "table", "both"];
const COLOURS = ["kind", "class", "package"];
const THREADS_LISTED = 300;

/**
 * Viewer shows a document {head, tree} in an element, until destroy(). update()
 * shows another one. It dispatches "zoom" {node}, "pick" {frame}, "open" {frame}
 * and "search" {text, sums}, and can be driven by zoom(), search(), open() and set().
 */
export class Viewer extends EventTarget {
  constructor(root, doc) {
    super();
    this.root = root;
    const { head } = doc;
    this.settings = { flame: head.flame, by: head.colorBy, fade: true, found: null, picked: null, dark: darkScheme().matches };
    this.width = "both";
    this.shown = "graph";
    this.sought = ""; // what is searched for
    this.ended = new AbortController();
    this.show(doc);
    this.listenOutside(this.ended.signal);
    this.recall();
    this.graph.takeFocus();
  }

  /** update shows another document. What is chosen, searched for and zoomed into stays, as far as it is there. */
  update(doc) {
    const zoomed = this.graph.shown === this.graph.home ? null : pathTo(this.tree, this.graph.shown);
    const focused = this.root.contains(document.activeElement);
    const merged = this.threads?.value === "merged";
    const { sought } = this;
    this.release();
    Object.assign(this.settings, { found: null, picked: null });
    this.show(doc);
    if (merged && this.threads) this.chooseThread((this.threads.value = "merged"));
    this.input.value = sought;
    this.search(sought);
    if (zoomed !== null) this.graph.zoom(nodeAt(this.tree, zoomed));
    if (focused) this.graph.takeFocus();
  }

  /** destroy removes the views, and all that listens outside of them. */
  destroy() {
    this.ended.abort();
    this.release();
    replace(this.root);
    delete this.root.dataset.shown;
  }

  /** release stops what the views have going. */
  release() {
    for (const view of [this.graph, this.table, this.sandwich]) view.destroy();
  }

  /** show builds the views of a document. */
  show({ head, tree }) {
    this.doc = { head, tree, lead: head.lead, certainty: new Certainty(head.columns, head.changes) };
    this.build();
    this.theme();
    this.choose(tree, head.lead > 0 ? withoutLead(tree, head.lead) : tree);
    this.listen();
    this.apply();
  }

  /** recall shows what the address says. */
  recall() {
    const state = readState(location.hash, { doc: this.doc, tree: this.tree, graph: this.graph, shownValues: SHOWN, colours: COLOURS });
    this.set(state.set);
    if (this.sought !== state.find) {
      this.input.value = state.find;
      this.search(state.find);
    }
    this.graph.zoom(state.zoom);
  }

  /** remember puts what is shown in the address, and tells the page around this one. */
  remember() {
    const state = stateOf(this);
    if (state === location.hash.slice(1)) return;
    try {
      history.replaceState(null, "", "#" + state);
    } catch {
      return; // a page without an address of its own
    }
    window.dispatchEvent(new Event("statechange"));
  }

  build() {
    const { doc, settings, root } = this;
    this.graph = new FlameView(doc, settings, "Flame graph: calls from the root down");
    this.table = new FunctionTable(doc, settings);
    this.sandwich = new Sandwich(doc, settings);
    this.trail = element("nav", { class: "trail", "aria-label": "Zoomed into" });
    this.matched = element("div", { class: "matched", role: "status", "aria-live": "polite" });
    this.legend = element("footer", { class: "legend" });
    this.empty = element("div", { class: "empty", hidden: true }, "No samples: nothing ran while this was recorded, or nothing is left after selecting.");
    this.main = element("main", {}, this.graph.node, this.table.node, this.sandwich.node, this.empty);
    this.help = helpDialog();
    replace(root, element("header", {}, this.titleRow(), headView(doc), this.toolRow()), this.main, this.legend, this.help);
    this.tooltip = new Tooltip(root, doc);
  }

  titleRow() {
    this.input = element("input", { type: "search", placeholder: "Search  /", "aria-label": "Search functions (regular expression)", spellcheck: "false", autocomplete: "off",
      on: { input: () => this.search(this.input.value) } });
    return element("div", { class: "title-row" },
      element("h1", { title: this.doc.head.title }, this.doc.head.title),
      this.input,
      this.showing = segments("View", SHOWN, (v) => this.set({ shown: v })),
      element("button", { class: "button round", title: "Dark or light (d)", "aria-label": "Dark or light", on: { click: () => this.set({ dark: !this.settings.dark }) } }, icon("M8 1.8a6.2 6.2 0 1 0 0 12.4z M8 1.8a6.2 6.2 0 1 1 0 12.4")),
      element("button", { class: "button round", title: "Keys (?)", "aria-label": "Keys", on: { click: () => this.help.showModal() } }, "?"));
  }

  toolRow() {
    this.threads = null;
    this.orientation = segments("Orientation", ["icicle", "flame"], (v) => this.set({ flame: v === "flame" }));
    this.colours = segments("Colour by", COLOURS, (v) => this.set({ by: v }));
    this.weights = segments("Width", ["both", "before", "after"], (v) => this.set({ width: v }));
    const two = this.doc.head.columns.length === 2;
    return element("div", { class: "tool-row" }, this.trail, this.matched, this.doc.lead > 0 && this.threadChoice(),
      two ? labelled("width", this.weights) : labelled("colour", this.colours), this.orientation);
  }

  threadChoice() {
    const { tree, lead, certainty } = this.doc;
    const option = (value, text) => element("option", { value }, text);
    const nodes = [];
    for (let i = 1; i < tree.size && tree.level[i] <= lead; i++) if (tree.level[i] === lead) nodes.push(i);
    nodes.sort((a, b) => tree.totalV[0][b] - tree.totalV[0][a]);
    const named = nodes.slice(0, THREADS_LISTED).map((n) =>
      option(n, `${tree.path(n).slice(1).map((p) => tree.name(p)).join(" › ")}   ${formatShare(certainty.share(0, tree.totalV[0][n]))}`));
    this.threads = element("select", { "aria-label": "Threads", on: { change: () => this.chooseThread(this.threads.value) } },
      option("apart", "threads apart"), option("merged", "threads merged"), element("optgroup", { label: "one thread" }, named));
    return this.threads;
  }

  chooseThread(choice) {
    const { tree, lead } = this.doc;
    if (choice === "apart") this.choose(tree, withoutLead(tree, lead));
    else if (choice === "merged") this.choose(withoutLead(tree, lead));
    else this.choose(below(tree, [Number(choice)]));
    this.search(this.input.value);
  }

  /** choose sets the tree the graph shows, and the one functions are looked up in. */
  choose(tree, code = tree) {
    Object.assign(this, { tree, code });
    this.close();
    this.graph.show(tree, this.weigh(tree));
    this.table.show(code);
    this.empty.hidden = this.weigh(tree)[0] > 0;
    this.drawTrail();
    this.drawLegend();
  }

  /** weigh says how wide each node of a tree is. */
  weigh(tree) {
    if (tree.columns === 1) return tree.totalV[0];
    if (this.width === "before") return tree.totalV[0];
    if (this.width === "after") return tree.totalV[1];
    const { certainty } = this.doc;
    return Float64Array.from(tree.totalV[0], (v, i) => certainty.share(0, v) + certainty.share(1, tree.totalV[1][i]));
  }

  listen() {
    const tip = (view) => (e) => this.tip(view, e.detail);
    this.graph.addEventListener("hover", tip(this.graph));
    this.graph.addEventListener("zoom", (e) => {
      this.tooltip.hide();
      this.drawTrail();
      this.remember();
      this.emit("zoom", { node: e.detail.node });
    });
    this.graph.addEventListener("open", (e) => this.open(this.tree.frame[e.detail.node]));
    this.sandwich.addEventListener("hover", (e) => this.tip(e.detail.view, e.detail));
    this.sandwich.addEventListener("open", (e) => this.open(e.detail.view.tree.frame[e.detail.node]));
    this.sandwich.addEventListener("close", () => this.close());
    this.table.addEventListener("pick", (e) => this.pick(e.detail.frame));
    this.table.addEventListener("open", (e) => this.open(e.detail.frame));
  }

  /** listenOutside hears what happens to the page, until the signal. */
  listenOutside(signal) {
    document.addEventListener("keydown", (e) => this.key(e), { signal });
    window.addEventListener("hashchange", () => this.recall(), { signal });
    darkScheme().addEventListener("change", (e) => this.set({ dark: e.matches }), { signal });
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  tip(view, { node, x, y, narrow }) {
    if (node < 0) this.tooltip.hide();
    else this.tooltip.show(view.tree, node, x, y, narrow ? "Drawn together with its neighbours: zoom in to see it apart." : "");
  }

  /** set changes settings: {flame, by, fade, dark, shown, width}. */
  set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (name === "shown" || name === "width") this[name] = value;
      else this.settings[name] = value;
    }
    if ("shown" in changes) this.close();
    this.theme();
    if ("width" in changes) this.graph.weigh(this.weigh(this.tree));
    this.apply();
    if ("flame" in changes) this.graph.toRoot();
    this.remember();
  }

  /** apply makes the page follow the settings. */
  apply() {
    const { settings } = this;
    this.root.dataset.shown = this.sandwich.node.hidden ? this.shown : "sandwich";
    mark(this.showing, this.shown);
    mark(this.orientation, settings.flame ? "flame" : "icicle");
    mark(this.colours, settings.by);
    mark(this.weights, this.width);
    this.drawLegend();
    this.graph.resize();
    this.table.refresh();
    this.sandwich.redraw();
  }

  theme() {
    const { settings, doc } = this;
    document.documentElement.dataset.theme = settings.dark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue("--" + name).trim();
    const names = ["text", "muted", "hover", "focus", "match", "match-text", "hatch"];
    const [text, muted, hover, focus, match, matchText, line] = names.map(color);
    settings.theme = { text, muted, hover, focus, match, matchText, hatch: (context) => hatching(context, line) };
    settings.palette = new Palette(doc.head, doc.tree.frames, settings.by, settings.dark);
  }

  /** search highlights what matches and says how much of all samples that is. */
  search(text) {
    this.sought = text;
    let found = null;
    let problem = "";
    if (text !== "") {
      try {
        found = this.code.find(matcher(this.code.frames, text));
      } catch (err) {
        problem = "Not a regular expression yet";
      }
    }
    Object.assign(this.settings, { found, picked: null });
    this.table.picked = -1;
    this.input.setAttribute("aria-invalid", String(problem !== ""));
    replace(this.matched, problem || this.matchText(found));
    this.graph.draw();
    if (found && found.functions > 0) this.graph.revealFirst(found.frames);
    this.table.body.scrollTop = 0;
    this.table.refresh();
    this.sandwich.redraw();
    this.remember();
    this.emit("search", { text, sums: found ? found.sums : null });
  }

  matchText(found) {
    if (!found) return [];
    const { head, certainty } = this.doc;
    if (found.functions === 0) return "no match";
    const functions = `${found.functions} ${found.functions === 1 ? "function" : "functions"}`;
    if (head.columns.length === 2) {
      const shares = found.sums.map((s, c) => formatShare(certainty.share(c, s.value)));
      return [element("b", {}, formatChange(certainty.change(found.sums).difference)), ` in ${functions}, ${shares.join(" → ")}`];
    }
    const interval = certainty.interval(0, found.sums[0]);
    return [element("b", {}, formatShare(certainty.share(0, found.sums[0].value))), interval ? ` (${formatInterval(interval)})` : "", ` in ${functions}`];
  }

  /** pick highlights one function everywhere. */
  pick(frame) {
    const name = this.code.frames.name[frame];
    this.settings.picked = this.code.find((f) => f === frame);
    replace(this.matched, this.matchText(this.settings.picked), element("span", { class: "quiet" }, ": " + name));
    this.graph.draw();
    this.emit("pick", { frame });
  }

  /** open shows a function between its callers and callees. */
  open(frame) {
    if (!this.code.functions().frames.includes(frame)) return; // a thread or process is no function
    this.tooltip.hide();
    this.root.dataset.shown = "sandwich";
    this.sandwich.show(this.code, frame, (tree) => this.weigh(tree));
    this.sandwich.callees.takeFocus();
    this.emit("open", { frame });
  }

  /** close leaves the sandwich; false if it was not open. */
  close() {
    if (this.sandwich.node.hidden) return false;
    this.sandwich.hide();
    this.tooltip.hide();
    this.root.dataset.shown = this.shown;
    this.graph.resize();
    this.graph.takeFocus();
    return true;
  }

  zoom(node) {
    this.graph.zoom(node);
  }

  drawTrail() {
    const path = this.tree.path(this.graph.shown);
    const crumb = (node, last) => element("button", { class: "crumb", title: this.tree.name(node), "aria-current": last ? "location" : null, on: { click: () => this.zoom(node) } }, this.tree.name(node));
    const shown = path.length > 7 ? [path[0], path[1], -1, ...path.slice(-4)] : path;
    replace(this.trail, shown.map((node, i) => node < 0 ? element("span", { class: "crumb-gap", title: path.slice(2, -4).map((n) => this.tree.name(n)).join("\n") }, `… ${path.length - 6} …`) : crumb(node, i === shown.length - 1)));
  }

  drawLegend() {
    const { head, certainty } = this.doc;
    if (head.columns.length === 2) {
      replace(this.legend, element("div", { class: "entries" }, changeLegend(this.settings.palette)));
      return;
    }
    const { palette, by } = this.settings;
    const sums = this.code.functions();
    const families = new Map();
    for (const f of sums.frames) {
      const swatch = palette.swatch(f);
      const family = families.get(swatch.name) ?? { swatch, value: 0, below: 0 };
      family.value += sums.selfV[0][f];
      family.below += sums.totalV[0][f]; // interpreted functions have no time of their own
      families.set(swatch.name, family);
    }
    const top = [...families.values()].sort((a, b) => b.value - a.value || b.below - a.below).slice(0, 12);
    const entries = top.map(({ swatch, value }) => legendEntry(palette.color(swatch, 1, false, false), swatch.name, formatShare(certainty.share(0, value))));
    replace(this.legend, element("div", { class: "entries" }, element("span", { class: "quiet" }, "self, by " + by), entries),
      certainty.known && element("label", { class: "fade" }, this.fadeBox(), " mark what could be noise"));
  }

  fadeBox() {
    const box = element("input", { type: "checkbox", on: { change: (e) => this.set({ fade: e.target.checked }) } });
    box.checked = this.settings.fade;
    return box;
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || this.help.open) return;
    if (e.key === "Escape") {
      e.preventDefault();
      this.back();
      return;
    }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.type !== "checkbox") {
      if (e.key === "Enter") this.graph.takeFocus();
      return;
    }
    const next = (list, value) => list[(list.indexOf(value) + 1) % list.length];
    const { settings } = this;
    const act = {
      "/": () => this.input.focus(),
      "?": () => this.help.showModal(),
      0: () => this.graph.reset(),
      t: () => this.set({ shown: next(SHOWN, this.shown) }),
      i: () => this.set({ flame: !settings.flame }),
      c: () => this.set({ by: next(COLOURS, settings.by) }),
      f: () => this.set({ fade: !settings.fade }),
      d: () => this.set({ dark: !settings.dark }),
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  }

  /** back undoes one step: the sandwich, the zoom, then the search. */
  back() {
    this.tooltip.hide();
    if (document.activeElement === this.input) this.graph.takeFocus();
    else if (this.close() || this.graph.back()) return;
    else if (this.settings.found || this.settings.picked) {
      this.input.value = "";
      this.search("");
    }
  }
}

function darkScheme() {
  return matchMedia("(prefers-color-scheme: dark)");
}

/** segments is a row of buttons of which one is pressed. */
function segments(label, values, choose) {
  return element("div", { class: "segments", role: "group", "aria-label": label },
    values.map((value) => element("button", { "data-value": value, on: { click: () => choose(value) } }, value)));
}

function mark(group, value) {
  for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === value));
}

function labelled(label, group) {
  return element("div", { class: "labelled" }, element("span", { class: "quiet", "aria-hidden": "true" }, label), group);
}

function legendEntry(color, name, value) {
  const dot = element("span", { class: "dot" });
  dot.style.background = color;
  return element("span", { class: "entry" }, dot, name, value && element("span", { class: "quiet" }, " " + value));
}

function changeLegend(palette) {
  return [
    legendEntry(palette.changeFill(-1, true), "only before"),
    legendEntry(palette.changeFill(-0.4, true), "less"),
    legendEntry(palette.changeFill(0, false), "could be chance"),
    legendEntry(palette.changeFill(0.4, true), "more"),
    legendEntry(palette.changeFill(1, true), "only after"),
  ];
}

/** hatching is a pattern of thin diagonal lines. */
function hatching(context, color) {
  const size = 6;
  const canvas = element("canvas", { width: size, height: size });
  const ctx = canvas.getContext("2d");
  ctx.strokeStyle = color;
  ctx.lineWidth = 0.8;
  ctx.beginPath();
  for (const offset of [-size, 0, size]) {
    ctx.moveTo(offset, size);
    ctx.lineTo(offset + size, 0);
  }
  ctx.stroke();
  return context.createPattern(canvas, "repeat");
}
