// The document a page contains: gzip over columns of small numbers; encode.go draws its layout.
import { Tree } from "./tree.js";

const SPREAD_SCALE = 16; // squaresScale of encode.go

/** decodeDocument gives {head, tree} of a document in base64. */
export async function decodeDocument(base64) {
  return parseDocument(await gunzip(bytesOf(base64)));
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** parseDocument reads an inflated document. */
export function parseDocument(bytes) {
  const reader = new Reader(bytes);
  const head = JSON.parse(reader.text(reader.number()));
  const strings = readStrings(reader);
  const frames = readFrames(reader, strings);
  const size = reader.number();
  const children = reader.numbers(new Int32Array(size));
  const frame = reader.numbers(new Int32Array(size));
  const line = reader.numbers(new Int32Array(size));
  const flags = reader.numbers(new Uint8Array(size));
  const selfN = [];
  const selfV = [];
  const selfS = [];
  for (let c = 0; c < head.columns.length; c++) {
    selfN.push(reader.numbers(new Float64Array(size)));
    selfV.push(reader.numbers(new Float64Array(size)));
    const spread = reader.numbers(new Float64Array(size));
    selfS.push(spread.map((s, i) => (s / SPREAD_SCALE) * selfV[c][i]));
  }
  return { head, tree: new Tree(frames, { children, frame, line, flags, selfN, selfV, selfS }) };
}

function readStrings(reader) {
  const count = reader.number();
  const prefixes = reader.numbers(new Int32Array(count));
  const lengths = reader.numbers(new Int32Array(count));
  const strings = new Array(count);
  let before = new Uint8Array(0);
  for (let i = 0; i < count; i++) {
    const bytes = new Uint8Array(prefixes[i] + lengths[i]);
    bytes.set(before.subarray(0, prefixes[i]));
    bytes.set(reader.bytes(lengths[i]), prefixes[i]);
    strings[i] = utf8.decode(bytes);
    before = bytes;
  }
  return strings;
}

function readFrames(reader, strings) {
  const count = reader.number();
  const column = () => reader.numbers(new Int32Array(count));
  const texts = () => Array.from(column(), (i) => strings[i]);
  return {
    size: count,
    name: texts(),
    file: texts(),
    mapping: texts(),
    package: texts(),
    startLine: column(),
    kind: column(),
    class: column(),
  };
}

const utf8 = new TextDecoder();

class Reader {
  constructor(bytes) {
    this.data = bytes;
    this.at = 0;
  }

  /** One varint. Multiplies instead of shifting: values go beyond 32 bits. */
  number() {
    let value = 0;
    let scale = 1;
    for (;;) {
      if (this.at >= this.data.length) throw new Error("the document ends too early");
      const byte = this.data[this.at++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
  }

  numbers(into) {
    for (let i = 0; i < into.length; i++) into[i] = this.number();
    return into;
  }

  bytes(length) {
    if (this.at + length > this.data.length) throw new Error("the document ends too early");
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }

  text(length) {
    return utf8.decode(this.bytes(length));
  }
}
