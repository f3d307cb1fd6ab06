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
}

addEventListener("load", async () => {
  await examine().catch((err) => failures.push(String(err.stack)));
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(failures);
  document.body.append(result);
});
