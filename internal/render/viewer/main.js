// The entry of a page of its own: reads the document the page contains and shows it.
import { decodeDocument } from "./decode.js";
import { Viewer } from "./viewer.js";

const text = document.getElementById("atys-data").textContent;
const root = document.getElementById("atys");
decodeDocument(text).then(
  (doc) => {
    window.atysViewer = new Viewer(root, doc);
  },
  (err) => {
    root.textContent = `This profile cannot be shown: ${err.message}`;
  },
);
