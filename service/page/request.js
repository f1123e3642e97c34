/** Bodies of requests from the page's source and options. */

import { listed } from "./words.js";

/** Level of the inner interval, if the outer one is wider. */
export const INNER = 0.8;

/**
 * The levels of the intervals' quantiles in ascending order.
 * @param {number | null} level level of the outer interval
 * @returns {number[]}
 */
export function quantilesOf(level) {
  if (level === null) return [];
  const shares = level > INNER ? [INNER, level] : [level];
  const exact = (value) => Number(value.toFixed(6));
  const low = shares.map((share) => exact((1 - share) / 2));
  return [...low, ...low.map((value) => exact(1 - value))].sort((one, other) => one - other);
}

/**
 * The level of the outer interval: at most the widest that the model's quantile levels allow.
 * @param {number | null} level the level that the user chose
 * @param {object} card of `GET /models/{name}`
 * @returns {number | null} in whole percent if it is lower; null for no interval
 */
export function shareOf(level, card) {
  if (level === null || !card.quantile_levels) return null;
  const [lowest, highest] = card.quantile_levels;
  const most = Math.floor(100 * (1 - 2 * Math.max(lowest, 1 - highest)) + 1e-6) / 100;
  return most > 0 ? Math.min(level, most) : null;
}

/**
 * The rows of the source that are sent: those the model reads and, if the first of them has missing
 * values, earlier rows that fill them.
 * @returns {{first: number, end: number}}
 */
export function windowOf(source, card, { holdBack = 0, missing = "error" }) {
  const end = Math.max(0, source.values.length - holdBack);
  let first = Math.max(0, end - card.context);
  if (missing !== "error") {
    const columns = columnsOf(source, card).filter((column) => column >= 0);
    const unknown = new Set(columns.filter((column) => source.values[first]?.[column] === null));
    while (unknown.size && first > 0) {
      first -= 1;
      for (const column of unknown) {
        if (source.values[first][column] !== null) unknown.delete(column);
      }
    }
  }
  return { first, end };
}

/**
 * Columns of the model's channels in the source; -1 for missing channels.
 * @returns {number[]}
 */
export const columnsOf = (source, card) =>
  card.channels.map((channel) => source.channels.indexOf(channel));

/**
 * The body of `POST /forecast` for a source.
 * @param {import("./store.js").Source} source
 * @param {object} card of `GET /models/{name}`
 * @param {object} options as in the store
 * @param {{all?: boolean}} [which] all: every row, for backtests; else the rows the model reads
 * @returns {object}
 */
export function requestOf(source, card, options, { all = false } = {}) {
  const { first, end } = all
    ? { first: 0, end: source.values.length }
    : windowOf(source, card, options);
  const columns = columnsOf(source, card);
  const rows = source.values.slice(first, end).map((row) => columns.map((column) => row[column]));
  const input = {
    name: source.name,
    channels: card.channels,
    series: card.channels.length === 1 ? rows.map(([value]) => value) : rows,
  };
  if (source.timestamps) input.timestamps = source.timestamps.slice(first, end);
  if (source.timeZone) input.time_zone = source.timeZone;
  const horizon = options.horizon ?? card.horizon;
  const sent = { horizon };
  const quantiles = reachOf(card) >= horizon ? quantilesOf(shareOf(options.level, card)) : [];
  if (quantiles.length) sent.quantiles = quantiles;
  if (options.missing !== "error") sent.missing = options.missing;
  return { model: `${card.name}@${card.version}`, inputs: [input], options: sent };
}

/**
 * Number of steps with intervals; 0 if the model has none.
 * @param {object} card
 * @returns {number}
 */
export const reachOf = (card) => (card.quantiles ? (card.calibration?.steps ?? card.horizon) : 0);

/**
 * The values after the rows that are sent.
 * @returns {(number | null)[][] | null} rows × targets; null if unknown
 */
export function actualOf(source, card, { holdBack = 0 }) {
  if (!holdBack) return source.actual;
  const columns = card.targets.map((target) => source.channels.indexOf(target));
  const held = source.values.slice(-holdBack);
  return held.map((row) => columns.map((column) => row[column]));
}

/**
 * The reason why a source cannot be sent.
 * @returns {string | null} null if it can
 */
export function refusalOf(source, card, options) {
  const absent = card.channels.filter((channel) => !source.channels.includes(channel));
  if (absent.length) return `no column for ${listed(absent)}`;
  if (card.needs_timestamps && !source.timestamps) return "this model reads the calendar, so the rows need times";
  const { first, end } = windowOf(source, card, options);
  if (end - first < card.context) {
    const held = options.holdBack ? `, without the ${options.holdBack} held back` : "";
    return `${end} rows${held}: this model reads ${card.context}`;
  }
  const wrong = source.problems.filter(
    (problem) => problem.row === undefined || (problem.row >= first && problem.row < end),
  );
  const columns = new Set([-1, ...columnsOf(source, card)]);
  const blocking = wrong.find(
    ({ kind, channel = -1 }) =>
      columns.has(channel) && !(kind === "missing" && options.missing !== "error"),
  );
  return blocking ? blocking.message : null;
}

/**
 * The place on the page of an error of the API.
 * @param {string | null} param such as inputs[0].series[17][2]
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {number} first first row of the source that was sent
 * @returns {{field: string, row?: number, channel?: number} | null} channel: column of the source
 */
export function placeOf(param, source, card, first) {
  const cell = /^inputs\[0\]\.series\[(\d+)\](?:\[(\d+)\])?/.exec(param ?? "");
  if (cell) {
    const channel = columnsOf(source, card)[Number(cell[2] ?? 0)];
    return { field: "cell", row: first + Number(cell[1]), channel };
  }
  const time = /^inputs\[0\]\.timestamps\[(\d+)\]/.exec(param ?? "");
  if (time) return { field: "cell", row: first + Number(time[1]), channel: -1 };
  const option = /^options\.(horizon|quantiles)/.exec(param ?? "");
  return option ? { field: option[1] } : null;
}
