/** Parser of Prometheus' text format, and rates and quantiles of counters and histograms. */

/** @typedef {{labels: Record<string, string>, value: number}} Sample */
/** @typedef {[bound: number, count: number][]} Buckets Cumulative, by ascending upper bound. */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n", "\\": "\\", '"': '"' };

/**
 * Reads a scrape.
 * @param {string} text
 * @returns {Map<string, Sample[]>} Samples by name, `_bucket`, `_sum` and `_count` included.
 */
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, escaped) => ESCAPED[escaped] ?? escaped);
    }
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value: numberOf(match[3]) });
  }
  return found;
}

function numberOf(text) {
  const infinite = /^([+-]?)Inf$/i.exec(text);
  return infinite ? (infinite[1] === "-" ? -Infinity : Infinity) : Number(text);
}

/**
 * The sum of a family's samples whose labels pass a test; 0 without samples.
 * @param {Map<string, Sample[]>} metrics
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [fits]
 */
export function total(metrics, name, fits = () => true) {
  let sum = 0;
  for (const { labels, value } of metrics.get(name) ?? []) if (fits(labels)) sum += value;
  return sum;
}

/**
 * A histogram, summed over the label sets that pass a test.
 * @param {Map<string, Sample[]>} metrics
 * @param {string} name Without `_bucket`.
 * @param {(labels: Record<string, string>) => boolean} [fits]
 * @returns {{buckets: Buckets, sum: number, count: number}}
 */
export function histogram(metrics, name, fits = () => true) {
  const counts = new Map();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    if (!fits(labels)) continue;
    const bound = numberOf(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  const buckets = [...counts].sort(([one], [other]) => one - other);
  return {
    buckets,
    sum: total(metrics, `${name}_sum`, fits),
    count: total(metrics, `${name}_count`, fits),
  };
}

/**
 * Counts between two scrapes; the later scrape if the counters were reset.
 * @param {ReturnType<typeof histogram>} before
 * @param {ReturnType<typeof histogram>} after
 */
export function difference(before, after) {
  if (after.count < before.count) return after;
  const earlier = new Map(before.buckets);
  return {
    buckets: after.buckets.map(([bound, count]) => [bound, count - (earlier.get(bound) ?? 0)]),
    sum: after.sum - before.sum,
    count: after.count - before.count,
  };
}

/**
 * A quantile as of Prometheus' `histogram_quantile`: linear within its bucket.
 * @param {Buckets} buckets
 * @param {number} level Between 0 and 1.
 * @returns {number|null} Null without values; at most the last finite bound.
 */
export function quantile(buckets, level) {
  const count = buckets.at(-1)?.[1] ?? 0;
  if (!count) return null;
  const rank = level * count;
  let [low, below] = [0, 0];
  for (const [bound, held] of buckets) {
    if (held >= rank) {
      if (bound === Infinity) return low;
      return held === below ? bound : low + ((bound - low) * (rank - below)) / (held - below);
    }
    [low, below] = [bound, held];
  }
  return low;
}
