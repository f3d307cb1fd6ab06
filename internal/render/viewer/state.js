// What of a view stands in the address, behind the #: whoever opens it sees the same.
import { fnv1a } from "./color.js";

/** stateOf writes what differs from the view that a document opens with. */
export function stateOf({ doc, settings, shown, tree, graph, sought }) {
  const state = new URLSearchParams();
  if (sought !== "") state.set("find", sought);
  if (shown !== "graph") state.set("view", shown);
  if (settings.by !== doc.head.colorBy) state.set("colour", settings.by);
  if (settings.flame !== doc.head.flame) state.set("flame", settings.flame ? "1" : "0");
  if (graph.shown !== graph.home) state.set("zoom", pathTo(tree, graph.shown));
  return state.toString();
}

/** readState is the inverse; what an address says that makes no sense is left out. */
export function readState(text, { doc, tree, graph, shownValues, colours }) {
  const state = new URLSearchParams(text.replace(/^#/, ""));
  const one = (name, values, otherwise) => values.includes(state.get(name)) ? state.get(name) : otherwise;
  const flame = state.get("flame");
  return {
    find: state.get("find") ?? "",
    set: { shown: one("view", shownValues, "graph"), by: one("colour", colours, doc.head.colorBy), flame: flame === null ? doc.head.flame : flame === "1" },
    zoom: state.has("zoom") ? nodeAt(tree, state.get("zoom")) : graph.home,
  };
}

/** pathTo leads to a node from the root, by names; it survives new data. */
export function pathTo(tree, node) {
  return tree.path(node).slice(1).map((n) => nameHash(tree, n)).join(".");
}

/** nameHash stands for a node among its siblings. */
function nameHash(tree, node) {
  return fnv1a(tree.name(node)).toString(36);
}

/** nodeAt follows a path from the root as far as it leads. */
export function nodeAt(tree, path) {
  let at = 0;
  for (const hash of path.split(".")) {
    let next = -1;
    for (let c = tree.first[at]; c < tree.first[at] + tree.children[at] && next < 0; c++) if (nameHash(tree, c) === hash) next = c;
    if (next < 0) break;
    at = next;
  }
  return at;
}
