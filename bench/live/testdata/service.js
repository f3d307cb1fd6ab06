'use strict';
// A server that does some work for each request, on a port that it prints, and
// a worker thread that does so all the time.
const http = require('node:http'), zlib = require('node:zlib'), crypto = require('node:crypto'), util = require('node:util');
const { Worker, isMainThread } = require('node:worker_threads');
const { Readable, Transform, pipeline } = require('node:stream');
const { EventEmitter } = require('node:events');
const { URL, URLSearchParams } = require('node:url');
const { AsyncLocalStorage } = require('node:async_hooks');

const items = Array.from({ length: 1000 }, (_, i) => ({ id: i, name: `item ${i}`, price: i * 1.19, tags: [`a${i % 7}`, `b${i % 11}`] }));
const text = items.map((i) => `${String(i.id).padStart(5, '0')} ${i.name} ${i.price.toFixed(2)}`).join('\n');
const bytes = Buffer.from(text);

class Shape {
  #secret = 1;
  static made = 0;
  constructor(size) { this.size = size; Shape.made++; }
  area() { return this.size * this.size + this.#secret; }
  get double() { return this.size * 2; }
  set double(x) { this.size = x / 2; }
}
class Circle extends Shape {
  area() { return Math.PI * super.area(); }
  toString() { return `circle ${this.size}`; }
  *[Symbol.iterator]() { for (let i = 0; i < 5; i++) yield this.size + i; }
}

const json = (seed) => JSON.parse(JSON.stringify(items.slice(0, 300), (key, value) => key === 'price' ? Math.round(value) : value, seed % 3),
  (key, value) => key === 'id' ? value + 1 : value).length + JSON.parse(JSON.stringify(items)).length;
const regex = () => {
  let n = 0;
  for (const m of text.matchAll(/^(?<id>\d{5}) (\w+) (\d+) ([0-9.]+)$/gm)) n += m.groups.id.length + m[2].length;
  return n + text.replace(/item (\d+)/g, (all, digits) => digits.split('').reverse().join('')).length + text.split(/\s+/u).length + /(a+)+b/.test('aaaaaaaaaaaac');
};
const ciphered = (seed) => {
  const cipher = crypto.createCipheriv('aes-128-gcm', bytes.subarray(0, 16), bytes.subarray(16, 28));
  const body = Buffer.concat([cipher.update(bytes), cipher.final()]);
  return body.length + crypto.createHash('sha256').update(bytes).digest('hex').length + crypto.createHmac('sha512', 'k' + seed).update(text).digest()[0] +
    crypto.pbkdf2Sync('secret', 'salt', 100, 32, 'sha256')[0] + crypto.randomBytes(16)[0];
};
const zipped = () => zlib.gunzipSync(zlib.gzipSync(bytes)).length + zlib.inflateRawSync(zlib.deflateRawSync(text)).length;
const zippedLater = util.promisify(zlib.gzip);
const buffers = (seed) => {
  const b = Buffer.alloc(4096, seed);
  for (let i = 0; i < 500; i++) { b.writeUInt32LE(i, i * 4); b.writeDoubleBE(i / 3, 2000 + i * 4); }
  return b.toString('base64').length + b.readInt16LE(7) + Buffer.from(b.toString('hex'), 'hex').compare(b) + bytes.indexOf('item 77') + new TextDecoder().decode(bytes).length;
};
const sorted = (seed) => [...items].sort((a, b) => (a.id * 7919 + seed) % 1009 - (b.id * 7919 + seed) % 1009)[0].id +
  [...items].sort((a, b) => a.name.localeCompare(b.name))[1].id + new Float64Array(2000).map((_, i) => i * 31 % 101).sort()[5] + [5, 3, 1].sort()[0];
const maps = (seed) => {
  const m = new Map(), s = new Set(), weak = new WeakMap();
  for (const i of items) { m.set(i.name, i); s.add(i.id % 97); weak.set(i, seed); m.get('item ' + (i.id + seed) % 1200)?.tags.forEach((t) => s.add(t)); }
  for (const [k, v] of m) if (v.id % 5 === 0) m.delete(k);
  return m.size + s.size + [...s.values()].length + Object.entries(Object.fromEntries(m)).length + (weak.has(items[3]) ? 1 : 0);
};
const classes = (seed) => {
  let sum = 0;
  for (let i = 0; i < 2000; i++) {
    const c = i % 3 ? new Circle(i) : new Shape(i);
    c.double = c.double + seed;
    sum += c.area() + (c instanceof Circle ? [...c].length + `${c}`.length : 0);
  }
  return sum;
};
function* numbers(n) { for (let i = 0; i < n; i++) yield i * i; }
function* delegating(n) { yield* numbers(n); }
const generators = () => {
  let sum = 0;
  for (const x of delegating(2000)) sum += x;
  const [first, ...rest] = numbers(300);
  return sum + first + rest.length + Array.from(numbers(200), (x) => x + 1).length;
};
const functional = (seed) => items.filter((i) => i.id % 3 !== seed % 3).map((i) => ({ ...i, total: i.price * 1.2 })).reduce((a, i) => a + i.total, 0) +
  items.flatMap((i) => i.tags).some((t) => t === 'zz') + items.findLastIndex?.((i) => i.id < 10) + Math.max(...items.map((i) => i.price)) + [..."größer"].length;
const deep = (n) => { if (n === 0) throw new RangeError('refused'); try { return deep(n - 1); } finally { n++; } };
const raised = () => {
  let n = 0;
  for (let i = 0; i < 40; i++) {
    try { deep(10 + i % 10); } catch (e) { n += e.stack.length; }
    try { null.missing; } catch { n++; }
  }
  return n;
};
const strings = (seed) => {
  let s = '';
  for (let i = 0; i < 2000; i++) s += String.fromCharCode(97 + i % 26) + i;
  return s.toUpperCase().trim().slice(seed % 50).replaceAll('A', 'b').lastIndexOf('Z9') + encodeURIComponent(text.slice(0, 2000)).length +
    util.format('%s %d %j', s.slice(0, 20), seed, items[3]).length + util.inspect(items.slice(0, 20), { depth: 3 }).length + text.localeCompare(s) + s.normalize('NFD').length;
};
const urls = (seed) => {
  let n = 0;
  for (let i = 0; i < 100; i++) {
    const u = new URL(`https://user:pw@example.com:8080/a/${i}?q=${seed}&r=%20x#frag`);
    u.searchParams.append('n', i);
    n += u.href.length + new URLSearchParams(u.search).get('q').length;
  }
  return n;
};
const handler = { get: (target, key) => key in target ? Reflect.get(target, key) : `no ${String(key)}`, has: () => true };
const proxied = () => { const p = new Proxy(items[1], handler); let n = 0; for (let i = 0; i < 1000; i++) n += p.name.length + p['missing' + i % 5].length; return n; };
const dates = (seed) => { let n = 0; for (let i = 0; i < 300; i++) n += new Date(Date.UTC(2000 + seed % 20, 0, i)).toISOString().length + Date.parse('2020-01-0' + (1 + i % 9)) % 7; return n; };
const bigs = (seed) => { let x = 1n; for (let i = 1n; i < 300n; i++) x *= i + BigInt(seed); return x.toString(16).length + Number(BigInt.asUintN(32, x)); };
const fibonacci = (n) => n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
const evaluated = (seed) => new Function('x', `let s = ${seed}; for (let i = 0; i < 1000; i++) s += x ^ i; return s;`)(seed) + eval('1 + seed');
const events = () => { const e = new EventEmitter(); let n = 0; e.on('x', (v) => { n += v; }).once('x', () => n++); for (let i = 0; i < 1000; i++) e.emit('x', i); return n; };

// (module (import "js" "back" (func (param i32) (result i32)))
//   (func (export "fib") (param i32) (result i32) ... calls itself, and back at 0))
const wasm = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 2, 11, 1, 2, 106, 115, 4, 98, 97, 99, 107, 0, 0,
  3, 2, 1, 0, 7, 7, 1, 3, 102, 105, 98, 0, 1, 10, 41, 1, 39, 0, 32, 0, 69, 4, 127, 32, 0, 16, 0, 5, 32, 0, 65, 2, 72, 4, 127, 65, 1, 5, 32, 0, 65, 1, 107, 16, 1, 32, 0, 65, 2, 107, 16, 1, 106, 11, 11, 11])),
  { js: { back: (x) => x + 1 } });
const compiled = (seed) => wasm.exports.fib(16 + seed % 4);

const storage = new AsyncLocalStorage();
async function awaited(seed) {
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const step = async (n) => n === 0 ? (await Promise.resolve(1)) : 1 + await step(n - 1);
  const all = await Promise.all([step(10), step(20), sleep(0), new Promise((r) => setImmediate(r, 1)), new Promise((r) => process.nextTick(r, 2))]);
  return storage.run({ seed }, async () => { await null; queueMicrotask(() => fibonacci(8)); return all.length + storage.getStore().seed; });
}
const streamed = () => new Promise((resolve, reject) => {
  let n = 0;
  const upper = new Transform({ transform(chunk, _, done) { n += chunk.length; done(null, chunk.toString().toUpperCase()); } });
  pipeline(Readable.from(text.match(/.{1,2000}/gs)), upper, async function* (source) { for await (const c of source) { n += c.length; yield c; } },
    async (source) => { for await (const c of source) n++; }, (e) => e ? reject(e) : resolve(n));
});
const zippedAside = async () => (await zippedLater(bytes)).length;

const jobs = [json, regex, ciphered, zipped, buffers, sorted, maps, classes, generators, functional, raised, strings, urls, proxied, dates, bigs,
  (seed) => fibonacci(18 + seed % 4), evaluated, events, compiled, awaited, streamed, zippedAside];
let next = 0;

async function answer(request, response) {
  const seed = next++;
  const one = await jobs[seed % jobs.length](seed), two = await jobs[Math.floor(seed / 7) % jobs.length](seed);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ one: String(one), two: String(two), url: request.url }));
}

if (isMainThread) {
  new Worker(__filename);
  const server = http.createServer(answer);
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
} else {
  setInterval(async () => { const seed = next++; await jobs[seed % jobs.length](seed); }, 5);
}
