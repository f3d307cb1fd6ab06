// Stands still where dump_test.go expects it, the main thread asleep and a worker at work.
const { Worker, isMainThread } = require('worker_threads');

function spin() {
  for (let sum = 0; ; sum++) {
    if (sum < 0) return sum;
  }
}

class Place {
  wait(n) {
    if (n > 0) return this.wait(n - 1);
    require('fs').writeSync(1, 'ready\n');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
}

function outer() {
  [3].forEach((n) => new Place().wait(n));
}

if (isMainThread) {
  new Worker(__filename).on('online', outer);
} else {
  spin();
}
