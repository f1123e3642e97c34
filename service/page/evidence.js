/** What a stage of attention looked at, by the form of its evidence, as one map to draw. */

/**
 * @typedef {number|string|{start: number|string, end: number|string}|null} Label
 * @typedef {object} Stage As an answer has it.
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
 * @property {Label[]} rows What looks, without padding.
 * @property {Label[]} columns What is looked at, without padding.
 * @property {Float64Array} values Row by row.
 * @property {number} largest
 * @property {number} elsewhere Mean share of a row that positions have which stand for nothing.
 */

/**
 * The weights of one channel and one head; of a sparse map 0 where nothing was kept.
 * @param {Stage} stage
 * @param {{channel?: number, head?: number}} [choice] Places on these axes, if there are any.
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
 * What the positions of an axis are.
 * @param {Label[]} labels
 * @param {string[]} channels Names of the channels.
 * @returns {'patches'|'channels'|'steps'|'positions'} Positions have numbers alone.
 */
export function axisOf(labels, channels) {
  const [first] = labels;
  if (first !== null && typeof first === "object") return "patches";
  if (typeof first === "string") return channels.includes(first) ? "channels" : "steps";
  // History is before 0, the first forecast step.
  return first < 0 ? "steps" : "positions";
}

/**
 * Where positions are in a series: the rows of the history, and after them the forecast's steps.
 * @param {number} rows Of the history.
 * @param {string[]} times Of the history's rows and the forecast's steps; empty without any.
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
 * What a row looked at, for marks in a chart: weights of rows of the series, relative to the
 * largest; that of a patch is shared by its steps.
 * @param {Matrix} matrix
 * @param {number} row
 * @param {ReturnType<typeof placing>} placeOf
 * @returns {[from: number, to: number, weight: number][]} first and last row
 */
export function lookedAt(matrix, row, placeOf) {
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

// What is fainter is not seen.
const LEAST = 0.02;

/**
 * The largest weights, the largest first; of equal ones the earlier row.
 * @param {Matrix} matrix
 * @param {number} count
 * @param {number} [from] the first row that counts
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
 * How much each column gets on average over the rows.
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
 * A map of at most so many cells a side, each the largest of those that it stands for.
 * @param {Matrix} matrix
 * @param {number} most Rows and columns.
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
 * The lags of a circulant map, those of the largest weight first.
 * @param {Stage} stage
 * @param {ReturnType<typeof placing>} placeOf
 * @returns {{stride: number, offset: number, lags: {lag: number, steps: number, around: number,
 *   weight: number, correlation: number}[]}} steps from a position to the next, and from the first
 *   key to the first query; `around` counts a lag the other way round the ring of positions, or,
 *   where the offset is not 0, how many steps back in time it reads
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
