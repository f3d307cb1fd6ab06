// Numbers as people read them; the same words as units.go (a test compares them).

const SECONDS = [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]];
const BYTES = [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]];
const COUNTS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]];
const TIME_FACTORS = { nanoseconds: 1, ns: 1, microseconds: 1e3, us: 1e3, milliseconds: 1e6, ms: 1e6, seconds: 1e9, s: 1e9 };

export function formatValue(value, unit) {
  let ladder = COUNTS;
  let suffix = "";
  if (unit in TIME_FACTORS) {
    value *= TIME_FACTORS[unit];
    ladder = SECONDS;
  } else if (unit === "bytes") {
    ladder = BYTES;
  } else if (unit !== "count" && unit !== "samples" && unit !== "") {
    suffix = " " + unit;
  }
  return (value < 0 ? "-" : "") + ladderValue(Math.abs(value), ladder) + suffix;
}

function ladderValue(value, ladder) {
  const last = ladder.length - 1;
  if (value === 0) return "0" + ladder[last][1];
  let i = 0;
  while (i < last && value < ladder[i][0]) i++;
  const [size, suffix] = ladder[i];
  value /= size;
  if (i === last || value >= 1000) return formatCount(Math.round(value)) + suffix;
  return (value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2)) + suffix;
}

export function formatCount(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function formatShare(fraction) {
  const p = fraction * 100;
  const size = Math.abs(p);
  if (size === 0) return "0%";
  if (size >= 99.95) return p.toFixed(0) + "%";
  if (size >= 9.995) return p.toFixed(1) + "%";
  if (size >= 0.0995) return p.toFixed(2) + "%";
  if (size >= 0.0005) return p.toFixed(3) + "%";
  return p < 0 ? ">-0.001%" : "<0.001%";
}

function intervalDigits(size) {
  return size >= 0.0995 ? 1 : size >= 0.00995 ? 2 : 3;
}

/** [0.101, 0.146] is 10.1–14.6% */
export function formatInterval([lo, hi]) {
  const digits = intervalDigits(hi);
  return `${(lo * 100).toFixed(digits)}–${(hi * 100).toFixed(digits)}%`;
}

function signed(fraction, digits) {
  return (fraction < 0 ? "" : "+") + (fraction * 100).toFixed(digits);
}

/** a change of a share, in percentage points */
export function formatChange(difference) {
  if (difference === 0) return "0 pp";
  return signed(difference, intervalDigits(Math.abs(difference))) + " pp";
}

export function formatChangeInterval([lo, hi]) {
  const digits = intervalDigits(Math.max(Math.abs(lo), Math.abs(hi)));
  return `${signed(lo, digits)} to ${signed(hi, digits)} pp`;
}
