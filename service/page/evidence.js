/** Attention of a stage, of any form, as a matrix for a heatmap. */

/**
 * @typedef {number|string|{start: number|string, end: number|string}|null} Label
 * @typedef {object} Stage A stage of an answer's attention.
 * @property {string} name
 * @property {string} kind
 * @property {'dense'|'circulant'|'sparse'|'none'} form
 * @property {string[]} [axes]
 * @property {any[]} [weights]
 * @property {any[]} [keys]
 * @property {string[]} [channels]
 * @property {number[]} [heads]
 * @property {Label[]} [query]
 * @property {Label[]} [key]
 * @property {number[]} [lags]
 * @property {number[]} [lag_weights]
 * @property {number[]} [correlation]
 */
/**
 * @typedef {object} Matrix Weights of one channel and head.
 * @property {Label[]} rows Queries, without padding.
 * @property {Label[]} columns Keys, without padding.
 * @property {Float64Array} values Row by row.
 * @property {number} largest
 * @property {number} elsewhere Mean weight of a row on padding.
 */

/**
 * The weights of one channel and one head; a sparse map has 0 at keys that were not kept.
 * @param {Stage} stage
 * @param {{channel?: number, head?: number}} [choice] Indices on these axes, if they exist.
 * @returns {Matrix}
 */
export function matrixOf(stage, { channel = 0, head = 0 } = {}) {
  let { weights, keys } = stage;
  for (const axis of stage.axes) {
    if (axis !== "channel" && axis !== "head") continue;
    const place = axis === "channel" ? channel : head;
    weights = weights[place];
    keys = keys?.[place];
  }
  const rows = unpadded(stage.query);
  const columns = unpadded(stage.key);
  const values = new Float64Array(rows.length * columns.length);
  let [largest, outside] = [0, 0];
  for (let row = 0; row < rows.length; row += 1) {
    weights[row].forEach((weight, place) => {
      const column = keys ? keys[row][place] : place;
      if (column < 0) return;
      if (column >= columns.length) {
        outside += weight;
        return;
      }
      // A query may keep a key more than once.
      const cell = row * columns.length + column;
      values[cell] += weight;
      largest = Math.max(largest, values[cell]);
    });
  }
  return { rows, columns, values, largest, elsewhere: outside / rows.length };
}

function unpadded(labels) {
  const last = labels.findLastIndex((label) => label !== null);
  return labels.slice(0, last + 1);
}

/**
 * Kind of an axis's positions.
 * @param {Label[]} labels
 * @param {string[]} channels Names of the channels.
 * @returns {'patches'|'channels'|'steps'|'positions'} Positions have only numbers.
 */
export function axisOf(labels, channels) {
  const [first] = labels;
  if (first !== null && typeof first === "object") return "patches";
  if (typeof first === "string") return channels.includes(first) ? "channels" : "steps";
  // Step 0 is the first forecast step.
  return first < 0 ? "steps" : "positions";
}

/**
 * Maps positions to rows of a series: the history's rows, then the forecast's steps.
 * @param {number} rows Rows of the history.
 * @param {string[]} times Times of the history's rows and the forecast's steps; empty without times.
 * @param {(time: string) => number} secondsOf Reads a time.
 * @returns {(label: Label) => [number, number]|null} First and last row of a position, if any.
 */
export function placing(rows, times, secondsOf) {
  const at = new Map(times.map((time, row) => [secondsOf(time), row]));
  const place = (label) => (typeof label === "number" ? rows + label : at.get(secondsOf(label)));
  return (label) => {
    if (label === null) return null;
    const [from, to] = typeof label === "object" ? [label.start, label.end] : [label, label];
    const found = [place(from), place(to)];
    return found.every((row) => row >= 0) ? found : null;
  };
}

/**
 * Marks of a chart for the weights of one query: weights of rows of the series, relative to the
 * largest. Steps of a patch share its weight equally.
 * @param {Matrix} matrix
 * @param {number} row
 * @param {ReturnType<typeof placing>} placeOf
 * @returns {[from: number, to: number, weight: number][]} first and last row
 */
export function marksOf(matrix, row, placeOf) {
  const shares = new Map();
  matrix.columns.forEach((label, column) => {
    const [from, to] = placeOf(label) ?? [0, -1];
    const share = matrix.values[row * matrix.columns.length + column] / (to - from + 1);
    for (let at = from; at <= to; at += 1) shares.set(at, (shares.get(at) ?? 0) + share);
  });
  const largest = Math.max(...shares.values());
  const marks = [];
  for (const at of [...shares.keys()].sort((one, other) => one - other)) {
    const weight = shares.get(at) / largest;
    if (!(weight >= LEAST)) continue;
    const last = marks.at(-1);
    if (last && last[1] === at - 1 && Math.abs(last[2] - weight) < LEAST) last[1] = at;
    else marks.push([at, at, weight]);
  }
  return marks;
}

// Fainter marks are invisible.
const LEAST = 0.02;

/**
 * The largest weights in descending order; equal ones in order of rows.
 * @param {Matrix} matrix
 * @param {number} count
 * @param {number} [from] the first row to include
 * @returns {{row: number, column: number, weight: number}[]}
 */
export function strongest({ values, columns }, count, from = 0) {
  const found = [];
  const width = columns.length;
  let least = 0;
  for (let cell = Math.max(0, from) * width; cell < values.length; cell += 1) {
    const weight = values[cell];
    if (weight <= least) continue;
    const place = found.findIndex((one) => one.weight < weight);
    const entry = { row: Math.floor(cell / width), column: cell % width, weight };
    found.splice(place < 0 ? found.length : place, 0, entry);
    if (found.length > count) found.pop();
    if (found.length === count) least = found.at(-1).weight;
  }
  return found;
}

/**
 * Mean weight of each column over the rows.
 * @param {Matrix} matrix
 */
export function received({ values, rows, columns }) {
  const sums = new Float64Array(columns.length);
  values.forEach((weight, cell) => {
    sums[cell % columns.length] += weight / rows.length;
  });
  return sums;
}

/**
 * A map with at most `most` rows and columns; each cell is the largest of its cells.
 * @param {Matrix} matrix
 * @param {number} most Limit of rows and of columns.
 * @returns {{values: Float64Array, rows: number, columns: number}}
 */
export function pooled({ values, rows, columns }, most) {
  const size = [rows.length, columns.length].map((length) => Math.min(length, most));
  const [height, width] = size;
  const found = new Float64Array(height * width);
  values.forEach((weight, cell) => {
    const row = Math.floor((Math.floor(cell / columns.length) * height) / rows.length);
    const column = Math.floor(((cell % columns.length) * width) / columns.length);
    const place = row * width + column;
    found[place] = Math.max(found[place], weight);
  });
  return { values: found, rows: height, columns: width };
}

/**
 * The lags of a circulant map, in descending order of weight.
 * @param {Stage} stage
 * @param {ReturnType<typeof placing>} placeOf
 * @returns {{stride: number, offset: number, lags: {lag: number, steps: number, around: number,
 *   weight: number, correlation: number}[]}} `stride`: steps from a position to the next. `offset`:
 *   steps from the first key to the first query. `around`: steps of a lag in the other direction
 *   around the ring of positions, or, if the offset is not 0, how many steps back in time it reads
 */
export function lagsOf(stage, placeOf) {
  const ring = stage.query.length;
  const [query, next] = stage.query.slice(0, 2).map((label) => placeOf(label)?.[0]);
  const key = placeOf(stage.key[0])?.[0];
  const stride = next - query || 1;
  const offset = query - key || 0;
  const lags = stage.lags.map((lag, place) => ({
    lag,
    steps: lag * stride,
    around: offset ? offset - lag * stride : ((ring - lag) % ring) * stride,
    weight: stage.lag_weights[place],
    correlation: stage.correlation[lag],
  }));
  return { stride, offset, lags: lags.sort((one, other) => other.weight - one.weight) };
}
