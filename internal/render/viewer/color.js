// Colours of boxes, in OKLCH so that equal lightness looks equally light; as palette.go.
import { INLINED } from "./tree.js";

/** oklch gives a CSS colour. */
export function oklch(lightness, chroma, hue) {
  const rad = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(rad);
  const b = chroma * Math.sin(rad);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return "#" + rgb.map((v) => gamma(v).toString(16).padStart(2, "0")).join("");
}

function gamma(x) {
  x = Math.min(1, Math.max(0, x));
  return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

/** fnv1a hashes a text's UTF-8, as hash/fnv does. */
export function fnv1a(text) {
  let h = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) h = Math.imul(h ^ byte, 0x01000193) >>> 0;
  return h;
}

const MORE = 27; // hue of what grew
const LESS = 252; // hue of what shrank

/** Palette colours the frames of one document for one theme and choice of colouring. */
export class Palette {
  constructor(head, frames, by, dark) {
    this.head = head;
    this.frames = frames;
    this.by = by;
    this.dark = dark;
    this.cache = new Map();
  }

  swatch(frame) {
    const { head, frames, by } = this;
    if (by === "package") {
      const name = frames.package[frame];
      return name === "" ? head.kinds[0] : { name, hue: (fnv1a(name) % 24) * 15, chroma: 0.06 };
    }
    if (by === "class") return head.classes[frames.class[frame]] ?? head.classes[0];
    return head.kinds[frames.kind[frame]] ?? head.kinds[0];
  }

  /** fill colours a node of a tree; faded is for what could be noise. */
  fill(tree, node, faded) {
    const inlined = tree.flags[node] & INLINED;
    const frame = node === 0 ? -1 : tree.frame[node];
    const key = frame * 4 + (inlined ? 2 : 0) + (faded ? 1 : 0);
    let color = this.cache.get(key);
    if (color === undefined) {
      color = frame < 0 ? this.color(this.head.kinds[0], 2, false, false)
        : this.color(this.swatch(frame), fnv1a(this.frames.name[frame]) % 4, inlined, faded);
      this.cache.set(key, color);
    }
    return color;
  }

  color({ hue, chroma }, shade, inlined, faded) {
    let l = this.dark ? 0.385 + 0.024 * shade : 0.815 + 0.022 * shade;
    let c = this.dark ? chroma * 0.8 : chroma;
    if (inlined) {
      c *= 0.55;
      l += this.dark ? -0.04 : 0.04;
    }
    if (faded) {
      c *= 0.45;
      l += this.dark ? (0.29 - l) * 0.5 : (0.955 - l) * 0.6;
    }
    return oklch(l, c, hue);
  }

  /** changeFill colours a comparison: red grew, blue shrank, grey could be chance. */
  changeFill(relative, significant) {
    const size = significant ? Math.round(Math.min(1, Math.abs(relative)) * 12) / 12 : 0;
    if (size === 0) return this.dark ? oklch(0.36, 0.006, 260) : oklch(0.915, 0.004, 260);
    const hue = relative > 0 ? MORE : LESS;
    return this.dark ? oklch(0.37 + 0.14 * size, 0.03 + 0.11 * size, hue) : oklch(0.9 - 0.2 * size, 0.03 + 0.11 * size, hue);
  }
}
