// What was measured, how, and what is missing from it.
import { element } from "./dom.js";
import { formatCount, formatShare, formatValue } from "./format.js";

const DESIGNS = {
  "": "",
  census: "of every event",
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
    ...totals(head, column),
    samples(head, column),
    column.duration > 0 && ["over", formatValue(column.duration, "nanoseconds"), "", column.start ? "from " + column.start : ""],
    column.watched > 0 && ["", formatShare(column.idle / column.watched), "idle", "Of the CPU time that was watched"],
  ];
  return element("div", { class: "fact-row" }, name && element("span", { class: "column-name" }, name),
    facts.filter(Boolean).map(([before, value, after, title]) => element("span", { class: "fact", title: title || null }, before && before + " ", element("b", {}, value), after && " " + after)),
    lossView(column), commentView(column));
}

/** samples says how many there are, and how they were chosen. */
function samples(head, column) {
  const how = [column.samples === 1 ? "sample" : "samples", DESIGNS[column.design] ?? column.design, column.period > 0 && `about every ${formatValue(column.period, head.unit)}`];
  return ["", formatCount(column.samples), how.filter(Boolean).join(" "), DESIGN_NOTES[column.design] ?? ""];
}

/** totals gives what was sampled and what the kernel measured, and why they are two. */
function totals(head, column) {
  const value = formatValue(column.value, head.unit);
  const exact = formatValue(column.exact.cpu, "nanoseconds");
  if (column.exact.cpu <= 0) return [["", value, kindName(head), "The sum of the samples' weights"]];
  if (head.kind !== "cpu") return [["", value, kindName(head), "The sum of the samples' weights"], ["used", exact, "of CPU time", exactNote(column.exact)]];
  return [["sampled", value, `(measured ${exact}) of CPU time`, "Sampled: the sum of the samples' weights, an estimate. Measured: " + exactNote(column.exact)]];
}

function kindName(head) {
  return { cpu: "of CPU time" }[head.kind] ?? head.kind;
}

function exactNote(exact) {
  const parts = [`by the kernel${exact.source ? " (" + exact.source + ")" : ""}.`];
  if (exact.user > 0 || exact.system > 0) {
    parts.push(`User ${formatValue(exact.user, "nanoseconds")}, system ${formatValue(exact.system, "nanoseconds")}.`);
  }
  parts.push(exact.interrupt ? "Interrupts are inside." : "Interrupts are not inside.");
  return parts.join(" ");
}

/** lossView says in one line what is missing; a click shows each by itself. */
function lossView(column) {
  const { lacks } = column;
  if (!lacks) return column.design !== "" && element("span", { class: "fact quiet" }, "nothing lost");
  return details(lacks.loud ? "lacks loud" : "lacks", lacks.line || "details", lacks.items);
}

/** commentView shows what was said about the recording, folded where it is long. */
function commentView(column) {
  const comments = column.comments ?? [];
  if (comments.length === 0) return null;
  if (comments.length === 1 && comments[0].length <= 60) return element("span", { class: "fact quiet" }, comments[0]);
  return details("lacks", comments.length === 1 ? "1 note" : `${comments.length} notes`, comments);
}

function details(name, line, items) {
  return element("details", { class: name }, element("summary", {}, line),
    element("ul", {}, items.map((text) => element("li", {}, text))));
}
