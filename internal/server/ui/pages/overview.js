
// The overview works without this: it filters while one types, and says when it loads.
const state = document.documentElement;
const frame = document.querySelector("iframe");
if (frame) {
  state.dataset.loading = "";
  frame.addEventListener("load", () => {
    delete state.dataset.loading;
    // What is chosen in the graph is in the address of the page around it.
    const graph = frame.contentWindow;
    if (location.hash) graph.location.hash = location.hash;
    graph.addEventListener("statechange", () => history.replaceState(null, "", location.pathname + location.search + graph.location.hash));
  });
}
addEventListener("pagehide", () => delete state.dataset.loading);
document.addEventListener("click", (e) => {
  const link = e.target.closest("a[href^='/']");
  if (!link) return;
  const view = new URLSearchParams(location.hash.slice(1));
  view.delete("zoom"); // it is of this graph
  link.hash = view.toString();
  if (!e.ctrlKey && !e.metaKey && !e.shiftKey) state.dataset.loading = "";
});

const box = document.querySelector("input[name=filter]");
function filter() {
  const text = box.value.toLowerCase();
  let left = 0;
  for (const row of document.querySelectorAll("tr.service")) {
    row.hidden = !row.firstElementChild.textContent.toLowerCase().includes(text);
    if (!row.hidden) left++;
  }
  document.querySelector(".none").hidden = left > 0;
  // The address, and all that leads on from here, keep what is typed.
  const keep = (address) => {
    const url = new URL(address, location.href);
    if (box.value) url.searchParams.set("filter", box.value);
    else url.searchParams.delete("filter");
    return url;
  };
  history.replaceState(null, "", keep(location.href));
  for (const link of document.querySelectorAll("a[href^='/?']")) {
    const url = keep(link.href);
    link.setAttribute("href", url.pathname + url.search);
  }
}
if (box) box.addEventListener("input", filter);
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && box && e.target !== box && e.target.tagName !== "INPUT") {
    e.preventDefault();
    box.focus();
  } else if (e.key === "Escape" && e.target === box) {
    box.value = "";
    filter();
  }
});
