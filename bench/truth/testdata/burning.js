// Burns CPU in functions of known names, and logs how much.
'use strict';

const SLOT = 10000000, ROUND = 250000; // ns
const SCAN = 1, FIRST = 2, SECOND = 3, IN_PARSE = 4, IN_STORE = 5, STORE = 6, RARE = 7;
const STACKS = ['', 'run;scan:loop', 'run;parse:first', 'run;parse:second', 'run;parse;hash:loop', 'run;store;hash:loop',
  'run;store:loop', 'run;rare:loop'];

function monotonic() {
  const t = process.hrtime();
  return t[0] * 1e9 + t[1];
}

// cpu is the whole process's: of a thread alone (process.threadCpuUsage) the
// kernel tells only what it had at the last tick, 4 ms ago or less. Node's other
// threads hardly work once all is compiled.
function cpu() {
  const u = process.cpuUsage();
  return (u.user + u.system) * 1000;
}

let slots, base, burned = 0, sink = 0;

// charge gives the CPU time since it was last called to a site.
function charge(site) {
  const at = Math.min(Math.floor((monotonic() - base) / SLOT), slots.length / STACKS.length - 1);
  const now = cpu();
  slots[at * STACKS.length + site] += now - burned;
  burned = now;
}

function scan(n) {
  let x = 11;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns loop
  return x;
}

function rare(n) {
  let x = 13;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns loop
  return x;
}

function hash(n) {
  let x = 17;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns loop
  return x;
}

function parse(n) {
  let x = 19;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns first
  charge(FIRST);
  for (let i = 0; i < n >> 1; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns second
  charge(SECOND);
  if ((x >>> 20) % 4 === 0) {
    x += hash(n);
    charge(IN_PARSE);
  }
  return x;
}

function store(n) {
  let x = hash(n);
  charge(IN_STORE);
  for (let i = 0; i < n >> 2; i++) x = (Math.imul(x, 1103515245) + (x >>> 7) + i) | 0; // burns loop
  charge(STORE);
  return x;
}

// run burns until an instant, and gives the size of slices then: it follows
// what the functions are compiled to, so that a round takes ROUND in the mean.
function run(size, end) {
  let last = burned;
  for (let rounds = 1; monotonic() < end; rounds++) {
    const u = Math.floor(Math.random() * 1000), n = Math.floor(size / 4 + Math.random() * size * 1.5);
    charge(0);
    if (u < 15) {
      sink += rare(n);
      charge(RARE);
    } else if (u < 150) {
      sink += store(n);
    } else if (u < 450) {
      sink += parse(n);
    } else {
      sink += scan(n);
      charge(SCAN);
    }
    if (rounds % 64 === 0) {
      size = Math.ceil(size * Math.min(Math.max(64 * ROUND / (burned - last + 1), 0.5), 2));
      last = burned;
    }
  }
  return size;
}

const length = Number(process.argv[2]) * 1e9;
slots = new Float64Array((Math.ceil(length / SLOT) + 1000) * STACKS.length);
base = Math.floor(monotonic() / SLOT) * SLOT;
const size = run(1000, monotonic() + 3e9); // until the functions are compiled
slots.fill(0);
const start = monotonic();
require('fs').writeSync(1, JSON.stringify({victim: 'node', pid: process.pid, slot: SLOT, start, stacks: STACKS}) + '\n');
burned = cpu();
run(size, start + length);
const lines = [];
for (let i = 0; i < slots.length; i += STACKS.length) {
  const ns = Array.from(slots.subarray(i, i + STACKS.length));
  if (ns.some(x => x > 0)) lines.push(JSON.stringify({at: base + i / STACKS.length * SLOT, ns}));
}
lines.push(JSON.stringify({end: monotonic(), cpu: burned}));
process.stdout.write(lines.join('\n') + '\n');
