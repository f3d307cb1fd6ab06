'use strict';
// Calls whose chains are known, one kind after the other, for ever. The test
// beside it knows which may call which, and that every function here begins
// with its name and ends with a brace in the first column.
// Usage: node chains.js [workers]; each worker runs the same in a thread of its own.
const { Worker, isMainThread } = require('node:worker_threads');

function burn(n) {
  let x = 1;
  for (let i = 0; i < n; i++) {
    x = (Math.imul(x, 31) + i) | 0;
  }
  return x;
}

function descend(depth) {
  if (depth === 0) {
    return burn(2000);
  }
  return descend(depth - 1) + 1;
}

function recursing() {
  return descend(30);
}

function each(v) {
  return burn(500) + v;
}

function mapping() {
  return [1, 2, 3, 4].map(each).length;
}

function compare(a, b) {
  return (burn(300) & 0) + a - b;
}

function sorting() {
  return [5, 3, 1, 4, 2].sort(compare)[0];
}

function revive(key, value) {
  burn(300);
  return value;
}

function reviving() {
  return JSON.parse('{"a":[1,2],"b":{"c":3}}', revive);
}

function replace(match) {
  return match + (burn(300) & 1);
}

function replacing() {
  return 'a1b2c3'.replace(/[a-z]/g, replace).length;
}

function* generate(n) {
  for (let i = 0; i < n; i++) {
    yield burn(500);
  }
}

function generating() {
  let sum = 0;
  for (const v of generate(4)) {
    sum += v;
  }
  return sum;
}

async function awaiting() {
  await null;
  return burn(2000);
}

class Shape {
  constructor(size) {
    this.size = size + (burn(200) & 0);
  }

  area() {
    return this.size + burn(200);
  }

  static compute(n) {
    return burn(200) + n;
  }

  get side() {
    return burn(200);
  }
}

class Square extends Shape {
  area() {
    return super.area() * this.size;
  }
}

function classes() {
  const s = new Square(2);
  return s.area() + Shape.compute(1) + s.side;
}

function closing() {
  let n = 0;
  function closure(v) {
    n += burn(500) + v;
  }
  for (let i = 0; i < 4; i++) {
    closure(i);
  }
  return n;
}

const proxy = new Proxy({}, {
  get: function trap() {
    return burn(500);
  },
});

function proxying() {
  return proxy.a + proxy.b;
}

function bindable(a, b) {
  return burn(500) + a + b;
}
const bound = bindable.bind(null, 1);

function binding() {
  return bound(2) + Reflect.apply(bindable, null, [1, 2]);
}

function raise(depth) {
  if (depth === 0) {
    burn(500);
    throw new RangeError('deep');
  }
  raise(depth - 1);
}

function throwing() {
  try {
    raise(10);
  } catch (e) {
    return burn(500);
  }
  return 0;
}

function many(...values) {
  return burn(500) + values.length;
}

function spreading() {
  return many(...[1, 2, 3, 4, 5, 6, 7]) + many() + bindable(1, 2, 3, 4);
}

function imported(n) {
  return burn(500) + n;
}

// (import "js" "f" (func (param i32) (result i32)))
// (func (export "outer") (param i32) (result i32) call $inner)
// (func $inner: call f, then count down from 2000)
const bytes = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 2, 8, 1, 2, 106, 115, 1, 102, 0, 0, 3, 3, 2, 0, 0,
  7, 9, 1, 5, 111, 117, 116, 101, 114, 0, 1, 10, 32, 2, 6, 0, 32, 0, 16, 2, 11,
  23, 0, 65, 208, 15, 33, 0, 3, 64, 32, 0, 65, 1, 107, 34, 0, 13, 0, 11, 32, 0, 16, 0, 11,
]);
const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), { js: { f: imported } });

function assembling() {
  return instance.exports.outer(1);
}

const kinds = [recursing, mapping, sorting, reviving, replacing, generating, awaiting, classes, closing, proxying,
  binding, throwing, spreading, assembling];

let turn = 0;
function main() {
  const until = performance.now() + 20;
  const kind = kinds[turn++ % kinds.length];
  while (performance.now() < until) {
    kind();
  }
  setImmediate(main);
}

if (isMainThread) {
  for (let i = 0; i < Number(process.argv[2] || 0); i++) {
    new Worker(__filename);
  }
  console.log('ready');
}
main();
