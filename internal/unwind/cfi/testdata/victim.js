// Interpreted, baseline and optimised code, builtins that call back, and the
// runtime below them.
'use strict';
let sink = 0;
function recurse(n) { return n ? recurse(n - 1) + 1 : 0; }
function callbacks() {
  const v = Array.from({ length: 200 }, (_, i) => (i * 7919) % 200);
  v.sort((a, b) => a - b);
  sink += v.map((x) => x * 2).filter((x) => x % 3).reduce((a, b) => a + b, 0);
  for (const x of new Set(v)) sink += x;
  const m = new Map(v.map((x) => [x, String(x)]));
  m.forEach((s) => { sink += s.length; });
}
function text() {
  const o = JSON.parse(JSON.stringify({ a: [1, 2, { b: 'text' }], c: null }));
  sink += o.a[2].b.length + 'a1b22c333'.replace(/\d+/g, (d) => d.length).length;
  sink += parseFloat('3.25') + (123.456).toFixed(2).length + `${sink}`.split('').length;
}
function* count(n) { for (let i = 0; i < n; i++) yield i; }
function thrown(n) { try { if (n % 2) throw new Error('x' + n); } catch (e) { sink += e.message.length; } }
const cold = [];
function fresh() { // new code each time: mostly interpreted
  const i = cold.push(0);
  sink += new Function('a', `let s = ${i}; for (const x of a) s += x * ${i}; return s;`)([1, 2, 3]);
}
async function wait(n) { for (let i = 0; i < n; i++) await null; return n; }
async function main() {
  for (let n = 0; ; n++) {
    sink += recurse(50);
    callbacks(); text(); thrown(n); fresh();
    for (const i of count(20)) sink += i;
    sink += await wait(5);
    if (n % 100 === 0) await new Promise((done) => setImmediate(done));
  }
}
main();
