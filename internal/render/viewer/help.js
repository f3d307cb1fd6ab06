// The list of keys.
import { element } from "./dom.js";

const KEYS = [
  ["← →", "the box before, after"],
  ["↑ ↓", "towards the root, into the heaviest call"],
  ["Enter", "zoom into the focused box"],
  ["Esc", "one step back: zoom, sandwich, search"],
  ["0", "show everything"],
  ["/", "search; a regular expression, or file: bin: pkg: and one"],
  ["s", "sandwich: callers and callees of the focused function"],
  ["t", "graph, table, or both"],
  ["i", "icicle or flame: root on top or at the bottom"],
  ["c", "colour by kind, class, package"],
  ["f", "mark what could be noise"],
  ["d", "dark or light"],
  ["?", "this list"],
];

/** helpDialog is a modal list of keys. */
export function helpDialog() {
  const dialog = element("dialog", { class: "help", "aria-label": "Keys" },
    element("h2", {}, "Keys"),
    element("dl", {}, KEYS.flatMap(([key, does]) => [element("dt", {}, key.split(" ").map((k) => element("kbd", {}, k))), element("dd", {}, does)])),
    element("p", {}, "Click a box to zoom, double-click it for its callers and callees."),
    element("form", { method: "dialog" }, element("button", { class: "button" }, "Close")));
  return dialog;
}
