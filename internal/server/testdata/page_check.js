// Checks of the overview from inside, run by TestPageInABrowser.
const failures = [];
async function examine() {
  const check = (name, ok, detail = "") => ok || failures.push(`${name} ${detail}`);
  const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
  const frame = document.querySelector("iframe");
  for (let i = 0; i < 400 && !frame.contentWindow.atysViewer; i++) await pause();
  const viewer = frame.contentWindow.atysViewer;
  check("the graph is drawn", viewer);
  await pause();
  check("it says no longer that it loads", !("loading" in document.documentElement.dataset));

  const fits = (name, node) => check(name, node.scrollWidth <= node.clientWidth, `${node.scrollWidth} in ${node.clientWidth}`);
  const page = document.documentElement;
  check("the page does not scroll", page.scrollHeight <= innerHeight && page.scrollWidth <= innerWidth, `${page.scrollWidth}x${page.scrollHeight} in ${innerWidth}x${innerHeight}`);
  fits("the sidebar is as wide as its content", document.querySelector("aside"));
  for (const cell of document.querySelectorAll("td:not(:first-child), th")) if (cell.offsetParent) fits(`"${cell.textContent}" is not cut`, cell);
  const inside = frame.contentDocument.documentElement;
  check("the graph's page does not scroll", inside.scrollHeight <= frame.clientHeight && inside.scrollWidth <= frame.clientWidth, `${inside.scrollWidth}x${inside.scrollHeight} in ${frame.clientWidth}x${frame.clientHeight}`);

  const { frames } = viewer.doc.tree;
  const classOf = (name) => viewer.doc.head.classes[frames.class[frames.name.indexOf(name)]]?.name;
  for (const [name, want] of [["shop.Serve", "application"], ["ksys_write", "kernel"]]) check(`the class of ${name}`, classOf(name) === want, classOf(name));

  const lacks = frame.contentDocument.querySelector(".lacks summary").textContent;
  check("losses are one line", /^20% truncated \(of 6,000 samples\)/.test(lacks), lacks);
  check("both totals are explained", /sampled 60.0 s \(measured 60.0 s\) of CPU time/.test(frame.contentDocument.querySelector(".facts").textContent), frame.contentDocument.querySelector(".facts").textContent);

  const box = document.querySelector("input[name=filter]");
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
  check("/ goes to the filter", document.activeElement === box);
  box.value = "TI";
  box.dispatchEvent(new Event("input"));
  const left = [...document.querySelectorAll("tr.service")].filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
  check("the filter leaves", left.join() === "till", left.join());
  check("the address has the filter", new URL(location.href).searchParams.get("filter") === "TI", location.href);
  check("links keep the filter", new URL(document.querySelector("tr.service a").href).searchParams.get("filter") === "TI");
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  check("Escape clears it", !new URL(location.href).searchParams.has("filter"), location.href);

  viewer.search("write");
  viewer.set({ shown: "table", by: "class" });
  viewer.zoom(2);
  await pause();
  const zoomed = viewer.graph.shown;
  check("what is chosen in the graph is in the page's address", /^#find=write&view=table&colour=class&zoom=./.test(location.hash), location.hash);
  const link = document.querySelector("tr.service a");
  link.addEventListener("click", (e) => e.preventDefault());
  link.click();
  check("links keep the view, and not the zoom", link.hash === "#find=write&view=table&colour=class", link.hash);
  const kept = location.hash;
  viewer.search("");
  viewer.set({ shown: "graph", by: "kind" });
  viewer.graph.reset();
  await pause();
  check("the address says nothing of what is as usual", location.hash === "" || location.hash === "#", location.hash);
  frame.contentWindow.location.hash = kept;
  await pause();
  check("an address is followed", viewer.shown === "table" && viewer.settings.by === "class" && viewer.input.value === "write" && viewer.graph.shown === zoomed, frame.contentWindow.location.hash);
}

addEventListener("load", async () => {
  await examine().catch((err) => failures.push(String(err.stack)));
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(failures);
  document.body.append(result);
});
