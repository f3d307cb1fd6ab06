// Checks of a page from inside, run by TestBrowser. `expected` comes from Go;
// the result is written into the document as JSON, which --dump-dom prints.
import { fnv1a, Palette } from "../viewer/color.js";
import { decodeDocument } from "../viewer/decode.js";
import { callees, callers, withoutLead } from "../viewer/derive.js";
import { viewBetween } from "../viewer/flame.js";
import { formatChangeInterval, formatInterval, formatShare, formatValue } from "../viewer/format.js";
import { Boxes, Layout } from "../viewer/layout.js";
import { shorten } from "../viewer/text.js";
import { Tree } from "../viewer/tree.js";
import { Viewer } from "../viewer/viewer.js";

const failures = [];
const notes = {};

function check(name, ok, detail = "") {
  if (!ok && failures.length < 40) failures.push(`${name} ${detail}`);
}

function equal(name, got, want) {
  check(name, JSON.stringify(got) === JSON.stringify(want), `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

function near(name, got, want, tolerance) {
  check(name, Math.abs(got - want) <= tolerance, `got ${got}, want ${want}`);
}

/** settled waits for layout; the browser was asked for reduced motion, so that nothing moves after that. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 100));
const press = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

function sameWords() {
  for (const [value, unit, want] of expected.values) equal(`value ${value} ${unit}`, formatValue(value, unit), want);
  for (const [fraction, want] of expected.shares) equal(`share ${fraction}`, formatShare(fraction), want);
  for (const [lo, hi, want] of expected.intervals) equal("interval", formatInterval([lo, hi]), want);
  for (const [lo, hi, want] of expected.changes) equal("change interval", formatChangeInterval([lo, hi]), want);
  for (const [name, want] of expected.short) equal(`shortest of ${name}`, shorten(name).at(-1), want);
}

function sameColours(doc) {
  for (const by of ["kind", "class", "package"]) {
    for (const dark of [false, true]) {
      const palette = new Palette(doc.head, doc.tree.frames, by, dark);
      for (let f = 1; f < doc.tree.frames.size; f++) {
        const want = expected.colours[by + (dark ? "-dark" : "")][doc.tree.frames.name[f]];
        if (want) equal(`colour of ${doc.tree.frames.name[f]} by ${by}`, palette.color(palette.swatch(f), fnv1a(doc.tree.frames.name[f]) % 4, false, false), want);
      }
    }
  }
  for (const [relative, dark, want] of expected.changeColours) equal("change colour", new Palette(doc.head, doc.tree.frames, "kind", dark).changeFill(relative, true), want);
}

function sameSums(viewer) {
  const { doc, code } = viewer;
  equal("nodes", doc.tree.size, expected.nodes);
  equal("depth", doc.tree.depth, expected.depth);
  equal("samples", doc.tree.totalN[0][0], expected.samples);
  equal("value", doc.tree.totalV[0][0], expected.value);
  const sums = code.functions();
  const byName = new Map(sums.frames.map((f) => [code.frames.name[f] + "|" + doc.head.kinds[code.frames.kind[f]].name + "|" + code.frames.mapping[f], f]));
  equal("functions", sums.frames.length, expected.functionCount);
  for (const want of expected.functions) {
    const f = byName.get(want.key);
    check("function is there", f !== undefined, want.key);
    if (f === undefined) continue;
    equal(`self of ${want.key}`, sums.selfV[0][f], want.self);
    equal(`total of ${want.key}`, sums.totalV[0][f], want.total);
    equal(`samples of ${want.key}`, sums.totalN[0][f], want.n);
    if (doc.certainty.known) {
      const [lo, hi] = doc.certainty.interval(0, sums.total(0, f));
      const tolerance = 0.03 * (want.hi - want.lo) + 1e-6;
      near(`low of ${want.key}`, lo, want.lo, tolerance);
      near(`high of ${want.key}`, hi, want.hi, tolerance);
    }
    const up = callers(code, f);
    const down = callees(code, f);
    equal(`callers of ${want.key}`, up.totalV[0][0], want.total);
    equal(`callees of ${want.key}`, down.totalV[0][0], want.total);
    equal(`callees of ${want.key} start with it`, down.frame[1], f);
    const found = code.find((g) => g === f);
    equal(`search for ${want.key}`, found.sums[0].value, want.total);
  }
  for (const [value, spread, lo, hi] of expected.certainty) {
    const got = doc.certainty.interval(0, { value, spread });
    const tolerance = 0.03 * (hi - lo) + 1e-7;
    near(`low of ${value}, spread ${spread}`, got[0], lo, tolerance);
    near(`high of ${value}, spread ${spread}`, got[1], hi, tolerance);
  }
}

function places({ graph }) {
  const { layout, tree } = graph;
  for (let i = 0; i < tree.size; i += Math.ceil(tree.size / 2000)) {
    if (layout.w[i] <= 0) continue;
    equal(`node at the middle of ${i}`, layout.at(tree.level[i], layout.x[i] + layout.w[i] / 2), i);
    const end = tree.first[i] + tree.children[i];
    for (let c = tree.first[i]; c < end; c++) {
      check(`child ${c} lies in ${i}`, layout.x[c] >= layout.x[i] && layout.x[c] + layout.w[c] <= (layout.x[i] + layout.w[i]) * (1 + 1e-12));
    }
  }
}

/** budget draws frames of many zooms, and a tree made to have as many boxes as possible. */
async function budget({ graph }) {
  let most = 0;
  const draw = () => {
    graph.draw();
    most = Math.max(most, graph.drawn.boxes);
  };
  draw();
  notes.firstFrame = graph.drawn;
  notes.size = [graph.width, graph.viewport];
  for (let i = 1; i < graph.tree.size; i = i * 3 + 1) {
    graph.zoom(i);
    await settled();
    draw();
  }
  graph.reset();
  await settled();
  notes.most = most;
  check("rectangles per frame", most > 0 && most <= 8000, String(most));

  const levels = 60;
  const wide = 1700;
  const size = 1 + levels * wide;
  const children = new Int32Array(size).fill(1);
  children[0] = wide;
  children.fill(0, size - wide);
  const selfV = new Float64Array(size).fill(0);
  selfV.fill(1, size - wide);
  const hard = new Tree(graph.tree.frames, { children, frame: new Int32Array(size), line: new Int32Array(size), flags: new Uint8Array(size), selfN: [selfV], selfV: [selfV], selfS: [selfV] });
  const boxes = new Boxes().fill(new Layout(hard, hard.totalV[0]), { x0: 0, x1: wide, width: 6000, top: 0, bottom: 60 });
  notes.hardest = boxes.count;
  check("rectangles of the hardest tree", boxes.count > 0 && boxes.count <= 8000, String(boxes.count));
  let drawn = 0;
  for (let i = 0; i < boxes.count; i++) drawn += boxes.end[i] - boxes.node[i];
  equal("every node of the hardest tree is in one box", drawn, size);
}

async function keys(viewer) {
  const { graph } = viewer;
  const surface = graph.grid.node;
  surface.focus();
  graph.setFocus(0);
  press(surface, "ArrowDown");
  equal("down goes to the heaviest child", graph.focused, graph.tree.heaviestChild(0, graph.layout.w));
  const first = graph.focused;
  press(surface, "ArrowRight");
  equal("right goes to the next box", graph.focused, first + 1);
  press(surface, "ArrowLeft");
  press(surface, "Enter");
  await settled();
  equal("enter zooms", graph.shown, first);
  equal("the trail follows", viewer.trail.lastChild.textContent, graph.tree.name(first));
  near("the zoomed node fills the width", graph.view.x1 - graph.view.x0, graph.layout.w[first], 1e-6 * graph.layout.whole);
  press(surface, "Escape");
  await settled();
  equal("escape goes back", graph.shown, 0);
  press(surface, "ArrowUp");
  equal("up goes to the root", graph.focused, 0);
  const active = document.getElementById(surface.getAttribute("aria-activedescendant"));
  check("the active row exists", active !== null && active.getAttribute("role") === "row");
  check("the active row says the share", /%/.test(active.getAttribute("aria-label")), active.getAttribute("aria-label"));
  check("rows are few", surface.querySelectorAll("[role=row]").length <= 120);
  press(surface, "t");
  equal("t shows the table", viewer.root.dataset.shown, "table");
  press(document.body, "t");
  equal("t shows both", viewer.root.dataset.shown, "both");
  await settled();
  check("the table has few rows", document.querySelectorAll(".tr").length <= 60 && document.querySelectorAll(".tr").length > 0);
  press(document.body, "t");
  press(document.body, "/");
  equal("/ goes to the search", document.activeElement, viewer.input);
  press(viewer.input, "Escape");
  press(document.body, "i");
  equal("i turns it over", viewer.settings.flame, true);
  graph.setFocus(0);
  press(surface, "ArrowUp");
  equal("up is leafwards in a flame", graph.focused, first);
  press(document.body, "i");
  press(document.body, "d");
  equal("d is the other theme", document.documentElement.dataset.theme, "dark");
  press(document.body, "d");
  const by = viewer.settings.by;
  for (const next of ["kind", "class", "package"].map((_, i, all) => all[(all.indexOf(by) + 1 + i) % 3])) {
    press(document.body, "c");
    equal("c colours by the next", viewer.settings.by, next);
    equal("the palette follows", viewer.settings.palette.by, next);
    check("the legend says so", viewer.doc.head.columns.length === 2 || viewer.legend.textContent.startsWith("self, by " + next), viewer.legend.textContent);
  }
  press(document.body, "?");
  check("? opens the help", viewer.help.open);
  viewer.help.close();
  graph.setFocus(graph.tree.levels[Math.min(4, graph.tree.depth - 1)]);
  press(surface, "s");
  equal("s opens the sandwich", viewer.root.dataset.shown, "sandwich");
  await settled();
  check("the sandwich is drawn", viewer.sandwich.callees.boxes.count > 0 && viewer.sandwich.callers.boxes.count > 0);
  press(document.body, "Escape");
  equal("escape closes it", viewer.root.dataset.shown, "graph");
}

async function searches(viewer) {
  let event = null;
  viewer.addEventListener("search", (e) => (event = e.detail), { once: true });
  viewer.input.value = expected.search.text;
  viewer.search(expected.search.text);
  equal("a search counts each stack once", event.sums[0].value, expected.search.value);
  check("the share is shown", viewer.matched.textContent.startsWith(formatShare(expected.search.value / expected.value)), viewer.matched.textContent);
  viewer.search("(((");
  check("a broken expression is said to be one", viewer.matched.textContent.includes("regular expression"));
  viewer.search("");
  equal("no search, nothing marked", viewer.settings.found, null);
}

async function threads(viewer) {
  if (!viewer.threads) return;
  viewer.chooseThread("merged");
  equal("merged threads keep the value", viewer.tree.totalV[0][0], expected.value);
  check("merged threads have no lead", viewer.tree.depth < viewer.doc.tree.depth);
  const one = viewer.threads.options[2];
  viewer.chooseThread(one.value);
  equal("one thread has its value", viewer.tree.totalV[0][0], viewer.doc.tree.totalV[0][Number(one.value)]);
  viewer.chooseThread("apart");
  equal("threads apart is the whole tree", viewer.tree, viewer.doc.tree);
}

/** updates shows the document without its threads, then the whole again. */
async function updates(viewer) {
  const { root, doc } = viewer;
  const whole = { head: doc.head, tree: doc.tree };
  viewer.set({ shown: "both", by: "class" });
  viewer.input.value = "e";
  viewer.search("e");
  viewer.zoom(1);
  const zoomed = viewer.graph.tree.name(viewer.graph.shown);
  const matched = viewer.matched.textContent;
  const before = viewer.graph;
  viewer.update(whole);
  await settled();
  check("an update makes new views", viewer.graph !== before && root.querySelectorAll(".flame").length === 3);
  equal("an update keeps the zoom", viewer.graph.tree.name(viewer.graph.shown), zoomed);
  equal("an update keeps the search", [viewer.input.value, viewer.matched.textContent], ["e", matched]);
  equal("an update keeps what is shown", [root.dataset.shown, viewer.settings.by], ["both", "class"]);
  viewer.update({ head: { ...doc.head, lead: 0 }, tree: withoutLead(doc.tree, doc.lead) });
  await settled();
  equal("an update shows the new document", [viewer.tree.totalV[0][0], viewer.threads], [expected.value, null]);
  check("it is drawn", viewer.graph.drawn.boxes > 0);
  viewer.update(whole);
  viewer.search("");
  viewer.set({ shown: "graph", by: doc.head.colorBy });
  viewer.graph.reset();
}

/** destroyed hears nothing of the page any more, and a new one can be made in its place. */
async function destroyed(viewer, doc) {
  const { root, settings, graph } = viewer;
  viewer.destroy();
  equal("nothing is left", root.childNodes.length, 0);
  const { flame } = settings;
  press(document, "i");
  equal("keys are not heard", settings.flame, flame);
  graph.drawn = null;
  graph.scroller.style.height = "123px";
  await settled();
  equal("it is not drawn", graph.drawn, null);
  const next = new Viewer(root, doc);
  await settled();
  press(document, "i");
  check("a new one hears them", next.settings.flame !== doc.head.flame);
  press(document, "i");
  return next;
}

function animation() {
  const [outer, inner] = [{ x0: 10, x1: 110 }, { x0: 37, x1: 38 }];
  for (const [from, to] of [[outer, inner], [inner, outer], [outer, outer]]) {
    for (const [t, want] of [[0, from], [1, to]]) {
      const got = viewBetween(from, to, t);
      near("animation's left edge", got.x0, want.x0, 1e-9);
      near("animation's right edge", got.x1, want.x1, 1e-9);
    }
    let before = from;
    for (let t = 0.1; t <= 1; t += 0.1) {
      const now = viewBetween(from, to, t);
      check("an animation never turns back", (now.x1 - now.x0 - (before.x1 - before.x0)) * (to.x1 - to.x0 - (from.x1 - from.x0)) >= -1e-9);
      before = now;
    }
  }
}

function harmless() {
  check("nothing foreign ran", window.pwned === undefined);
  equal("no foreign elements", document.querySelectorAll("#atys img, #atys script, #atys b.x").length, 0);
  check("no raw control characters", !/[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/.test(document.getElementById("atys").textContent));
}

async function run() {
  const doc = await decodeDocument(document.getElementById("atys-data").textContent);
  let viewer = new Viewer(document.getElementById("atys"), doc);
  await settled();
  sameWords();
  animation();
  if (expected.nodes) {
    sameColours(doc);
    sameSums(viewer);
    places(viewer);
    await searches(viewer);
    await keys(viewer);
    await threads(viewer);
    await budget(viewer);
    await updates(viewer);
    viewer = await destroyed(viewer, doc);
  }
  viewer.set({ shown: "both" });
  await settled();
  viewer.tooltip.show(viewer.tree, Math.min(1, viewer.tree.size - 1), 200, 200, "");
  harmless();
}

window.addEventListener("error", (e) => failures.push("error: " + e.message));
run()
  .catch((err) => failures.push(`${err}\n${err.stack}`))
  .then(() => {
    const result = document.createElement("pre");
    result.id = "result";
    result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify({ failures, notes }))));
    document.body.append(result);
  });
