// Makes functions, runs them and forgets them.
'use strict';
const vm = require('vm');

const source = n => `
class Made${n} {
  go${n}(rounds) {
    return this.outer${n}(rounds);
  }

  outer${n}(rounds) {
    return this.middle${n}(rounds) + 1;
  }

  middle${n}(rounds) {
    let x = 0;
    for (let i = 0; i < rounds; i++) {
      x += inner${n}(i);
    }
    return x;
  }
}

function inner${n}(i) {
  let x = i;
  for (let j = 0; j < 40; j++) {
    x = (Math.imul(x, 31) + (x >>> 3)) | 0;
  }
  return x;
}
new Made${n}();
`;

let sink = 0;

function churn() {
  let kept = [];
  for (let number = 0; ; number = (number + 1) % 1000000) {
    const n = String(number).padStart(6, '0');
    const made = vm.runInThisContext(`(function () { ${source(n).replace(/\nnew /, '\nreturn new ')} })`, {filename: `made${n}.js`})();
    const often = number % 4 === 0 ? 4000 : 40;
    for (let i = 0; i < often; i++) sink += made['go' + n](20);
    kept.push(made);
    if (kept.length === 50) {
      kept = [];
      gc();
    }
  }
}

require('fs').writeSync(1, JSON.stringify({pid: process.pid}) + '\n');
churn();
