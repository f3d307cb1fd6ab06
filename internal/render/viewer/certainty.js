// How sure a share is. Intervals are computed where the profile was made; the
// document holds them as curves over the share (curve.go), looked up here.

/**
 * Certainty answers for the columns of a head. What it is asked about is a sum
 * {value, spread}; spread is its squared weights relative to what they would
 * be if weights varied as in the whole.
 */
export class Certainty {
  constructor(columns, changes) {
    this.columns = columns;
    this.widen = changes?.widen ?? 1;
    this.known = columns.every((c) => c.curves && c.curves.length > 0);
  }

  share(column, value) {
    const whole = this.columns[column].value;
    return whole > 0 ? value / whole : 0;
  }

  /** interval is the 95% interval [lo, hi] of a sum's share of its column, or null. */
  interval(column, { value, spread }) {
    const { curves } = this.columns[column];
    if (!curves || curves.length === 0) return null;
    const share = Math.min(1, Math.max(0, this.share(column, value)));
    return between(curves, share, effective(curves[0].n, share, spread));
  }

  /** noisy tells whether a share is so uncertain that its size says little: an interval wider than itself. */
  noisy(column, sum) {
    const interval = this.interval(column, sum);
    return interval !== null && interval[1] - interval[0] > this.share(column, sum.value);
  }

  /**
   * change is how the shares of two sums, one per column, differ: {difference,
   * interval, significant}. What is significant among as many as are compared
   * needs more than one interval of 95% does: package stats says by how much.
   */
  change([before, after]) {
    const p0 = this.share(0, before.value);
    const p1 = this.share(1, after.value);
    const difference = p1 - p0;
    const i0 = this.interval(0, before) ?? [p0, p0];
    const i1 = this.interval(1, after) ?? [p1, p1];
    // Square-and-add of the two intervals (Newcombe 1998, method 10), as stats.Difference.
    const down = Math.hypot(p1 - i1[0], i0[1] - p0);
    const up = Math.hypot(i1[1] - p1, p0 - i0[0]);
    const significant = difference > this.widen * down || -difference > this.widen * up;
    return { difference, interval: [difference - down, difference + up], significant };
  }
}

/** effective is how many samples a share is worth, given those of the whole; as in package stats. */
function effective(n, share, spread) {
  if (share <= 0 || share >= 1 || spread <= 0) return n;
  // The variance of a ratio; the squared weights of all, over their squared sum, are 1/n.
  const variance = ((1 - 2 * share) * spread * share + share * share) / n;
  return variance > 0 ? Math.min(n, (share * (1 - share)) / variance) : n;
}

/** between interpolates between the curves whose numbers of samples lie around n. */
function between(curves, share, n) {
  let i = 0;
  while (i < curves.length - 1 && curves[i + 1].n >= n) i++;
  const upper = lookUp(curves[i].points, share);
  if (i === curves.length - 1 || curves[i].n <= n) return upper;
  const lower = lookUp(curves[i + 1].points, share);
  // Widths go with 1/sqrt(n).
  const at = (m) => 1 / Math.sqrt(m);
  const t = (at(n) - at(curves[i].n)) / (at(curves[i + 1].n) - at(curves[i].n));
  return [upper[0] + t * (lower[0] - upper[0]), upper[1] + t * (lower[1] - upper[1])];
}

/** lookUp interpolates [share, lo, hi] points, sorted by share. */
function lookUp(points, share) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= share) low = middle;
    else high = middle;
  }
  const a = points[low];
  const b = points[high];
  const t = b[0] > a[0] ? Math.min(1, Math.max(0, (share - a[0]) / (b[0] - a[0]))) : 0;
  return [a[1] + t * (b[1] - a[1]), a[2] + t * (b[2] - a[2])];
}
