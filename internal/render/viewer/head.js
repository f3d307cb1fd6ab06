// What was measured, how, and what is missing from it.
import { element } from "./dom.js";
import { formatCount, formatShare, formatValue } from "./format.js";

const VISIBLE_LOSS = 0.001; // losses under this share are in the details only

const DESIGNS = {
  "": "in an unknown way",
  census: "completely",
  periodic: "periodically",
  randomised: "at random",
  thinned: "by random thinning",
  "size-biased": "by size",
};

const DESIGN_NOTES = {
  "": "The file does not say how its samples were chosen. Intervals treat them as random.",
  census: "Every event was recorded: shares have no sampling error.",
  periodic: "Samples were taken at a fixed rate. A program that repeats at that rate can hide between them.",
  randomised: "Phase and intervals were drawn at random, so that no loop of the program can keep in step with the samples.",
  thinned: "Each event of a denser stream was kept at random.",
  "size-biased": "Larger events were more likely to be sampled; weights make up for it.",
};

/** headView gives the facts of each column, in a row. */
export function headView(doc) {
  const { head } = doc;
  const names = head.columns.length === 2 ? ["Before", "After"] : [""];
  return element("div", { class: "facts" }, head.columns.map((c, i) => columnView(head, c, names[i])), changesView(head.changes));
}

/** changesView says how many of the changes are more than chance. */
function changesView(changes) {
  if (!changes) return null;
  const title = "The others have too few samples for any change to be found. Of what is called significant, 5% are chance in the mean (Benjamini and Hochberg).";
  return element("div", { class: "fact-row" }, element("span", { class: "column-name" }, "Change"),
    element("span", { class: "fact", title }, element("b", {}, formatCount(changes.found)), ` of ${formatCount(changes.tested)} boxes that could be tested changed beyond chance`));
}

function columnView(head, column, name) {
  const facts = [
    ["", formatValue(column.value, head.unit), kindName(head), "The sum of the samples' weights"],
    column.exact.cpu > 0 && ["exactly", formatValue(column.exact.cpu, "nanoseconds"), "used", exactNote(column.exact)],
    ["", formatCount(column.samples), column.samples === 1 ? "sample" : "samples", ""],
    column.duration > 0 && ["over", formatValue(column.duration, "nanoseconds"), "", column.start ? "from " + column.start : ""],
    ["sampled", DESIGNS[column.design] ?? column.design, column.period > 0 ? `about every ${formatValue(column.period, head.unit)}` : "", DESIGN_NOTES[column.design] ?? ""],
    column.watched > 0 && ["", formatShare(column.idle / column.watched), "idle", "Of the CPU time that was watched"],
  ];
  return element("div", { class: "fact-row" }, name && element("span", { class: "column-name" }, name),
    facts.filter(Boolean).map(([before, value, after, title]) => element("span", { class: "fact", title: title || null }, before && before + " ", element("b", {}, value), after && " " + after)),
    lossView(column), commentView(column));
}

function kindName(head) {
  return { cpu: "CPU time" }[head.kind] ?? head.kind;
}

function exactNote(exact) {
  const parts = [`Accounted by the kernel${exact.source ? " (" + exact.source + ")" : ""}, not sampled.`];
  if (exact.user > 0 || exact.system > 0) {
    parts.push(`User ${formatValue(exact.user, "nanoseconds")}, system ${formatValue(exact.system, "nanoseconds")}.`);
  }
  parts.push(exact.interrupt ? "Interrupts are inside." : "Interrupts are not inside.");
  return parts.join(" ");
}

/** lossView shows what is missing: loud above 0.1%, else on request. */
function lossView(column) {
  const losses = column.losses ?? [];
  const visible = losses.filter((l) => l.share > VISIBLE_LOSS);
  const text = (l) => `${l.reason}${l.detail ? " (" + l.detail + ")" : ""}: ${formatCount(l.n)} samples, ${formatShare(l.share)}`;
  const rest = losses.filter((l) => l.share <= VISIBLE_LOSS);
  return [
    ...visible.map((l) => element("span", { class: "loss", title: text(l) }, element("b", {}, formatShare(l.share)), " ", l.reason)),
    rest.length > 0 && element("span", { class: "fact quiet", title: rest.map(text).join("\n") }, `${rest.length} ${rest.length === 1 ? "loss" : "losses"} under 0.1%`),
    losses.length === 0 && column.design !== "" && element("span", { class: "fact quiet" }, "nothing lost"),
  ];
}

function commentView(column) {
  return (column.comments ?? []).map((text) => element("span", { class: "fact quiet" }, text));
}
