// Fitting names into boxes.

const PREFIXES = [
  /^.*\//, // directories of a Go package
  /^.*::/, // namespaces
  /^.*\)\.(?=\w)/, // the receiver of a Go method
  /^(?:[\w$]+\.)+(?=[A-Z][\w$]*\.[\w$<>]+$)/, // a Java package
];

/** shorten gives ever shorter forms of a function's name, the full one first. */
export function shorten(name) {
  const forms = [name];
  let short = name;
  if (!name.includes("operator")) {
    short = short.replace(/(?<=[\w>\]])\([^()]*\)(?: const)?$/, "");
    for (let before = ""; before !== short; ) {
      before = short;
      short = short.replace(/(?<=\w)<[^<>]*>/g, "");
    }
  }
  if (short !== name && short !== "") forms.push(short);
  for (const prefix of PREFIXES) {
    const rest = short.replace(prefix, "");
    if (rest !== short && rest !== "") forms.push(rest);
    short = rest || short;
  }
  return forms;
}

/** Labels fits names into widths of a canvas font; it remembers how wide letters are. */
export class Labels {
  constructor(context) {
    this.context = context;
    this.letters = new Map();
    this.forms = new Map();
  }

  letter(char) {
    let width = this.letters.get(char);
    if (width === undefined) {
      width = this.context.measureText(char).width;
      this.letters.set(char, width);
    }
    return width;
  }

  width(text) {
    let width = 0;
    for (const char of text) width += this.letter(char);
    return width;
  }

  /** fit gives what of a name fits, "" if too little would be left to read. */
  fit(name, width) {
    let forms = this.forms.get(name);
    if (forms === undefined) {
      forms = shorten(name).map((text) => ({ text, width: this.width(text) }));
      this.forms.set(name, forms);
    }
    for (const form of forms) {
      if (form.width <= width) return form.text;
    }
    const last = forms[forms.length - 1].text;
    const room = width - this.letter("…");
    let used = 0;
    let cut = 0;
    for (const char of last) {
      used += this.letter(char);
      if (used > room) break;
      cut += char.length;
    }
    return cut >= 4 ? last.slice(0, cut) + "…" : "";
  }
}
