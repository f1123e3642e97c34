/** Backtests of models on the same rows: which models fit, their requests, tables of errors. */

import { stepsAhead } from "./covariates.js";
import { placeOf, quantilesOf, reachOf, refusalOf, requestOf, shareOf } from "./request.js";
import { sameStep } from "./time.js";
import { counted, frequencyWords } from "./words.js";

/** Share of the interval whose coverage is measured. */
export const SHARE = 0.8;

/**
 * @typedef {object} Metric
 * @property {string} title
 * @property {(errors: {mse: number, mae: number}) => number | null} [of] error of a model or a baseline
 * @property {(channel: object) => number | null} [coverage] of a model's intervals
 */
/** @type {Record<string, Metric>} */
export const METRICS = {
  mae: { title: "MAE", of: ({ mae }) => mae },
  rmse: { title: "RMSE", of: ({ mse }) => (mse === null ? null : Math.sqrt(mse)) },
  coverage: {
    title: `Coverage of ${100 * SHARE}% intervals`,
    coverage: ({ intervals }) => intervals?.[0]?.coverage ?? null,
  },
};

/**
 * @typedef {object} How
 * @property {number} horizon steps of each forecast, and from an origin to the next
 * @property {number} origins
 * @property {number} after number of rows after the last origin
 */

/**
 * The reason why a model cannot forecast a source.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {object} options as in the store
 * @returns {string | null} null if it can
 */
export function mismatchOf(source, card, options) {
  const { frequency } = source;
  if (frequency && !sameStep(frequency, card.frequency)) {
    return `it reads ${frequencyWords(card.frequency)} rows, these are ${frequencyWords(frequency)}`;
  }
  return refusalOf(source, card, options);
}

/**
 * The longest horizon that all models can forecast.
 * @param {object[]} cards
 * @param {number | null} wanted
 */
export const commonHorizon = (cards, wanted) =>
  Math.min(wanted ?? Infinity, ...cards.map(({ max_horizon: most }) => most));

/** Number of rows that a model takes after an origin: its covariates may go on after the horizon. */
const rowsAfter = (card, horizon) => Math.max(horizon, stepsAhead(card, horizon));

/**
 * Number of rows after the last origin, so that all models have the same one.
 * @param {object[]} cards
 * @param {number} horizon
 */
export const commonRowsAfter = (cards, horizon) =>
  Math.max(...cards.map((card) => rowsAfter(card, horizon)));

/**
 * Number of origins that have the rows that every model takes before and after them.
 * @param {number} rows
 * @param {object[]} cards
 * @param {number} horizon steps of each forecast, and from an origin to the next
 */
export const originsIn = (rows, cards, horizon) =>
  Math.max(0, Math.floor((rows - rowsFor(cards, horizon)) / horizon) + 1);

/**
 * Number of rows for one origin.
 * @param {object[]} cards
 * @param {number} horizon
 */
export const rowsFor = (cards, horizon) =>
  Math.max(...cards.map(({ context }) => context)) + commonRowsAfter(cards, horizon);

/**
 * The body of `POST /backtest`: the latest origins, and only the rows that they need.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {How & {missing: string}} how
 * @returns {object}
 */
export function backtestOf(source, card, { horizon, origins, after, missing }) {
  const span = spanOf(source, card, { horizon, origins, after });
  const { model, inputs } = requestOf(source, card, { horizon, level: null, missing }, { span });
  const options = { horizon, origins, missing };
  if (reachOf(card) >= horizon && shareOf(SHARE, card) === SHARE) options.quantiles = quantilesOf(SHARE);
  return { model, inputs, options };
}

/**
 * The rows of the source that a backtest sends. It reads no covariates after them.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {How} how
 * @returns {import("./inputs.js").Span}
 */
export function spanOf(source, card, { horizon, origins, after }) {
  const last = source.values.length - after;
  const first = Math.max(0, last - (origins - 1) * horizon - card.context);
  // The server places the last origin by the end of the rows.
  return { first, end: last + rowsAfter(card, horizon), steps: 0 };
}

/**
 * An error's message with its row and channel in the source.
 * @param {import("./api.js").ApiError} error
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {{first: number, end: number}} span rows that were sent
 * @returns {string}
 */
export function inPlace({ message, param }, source, card, span) {
  const place = placeOf(param, source, card, span);
  return place?.row === undefined ? message : `row ${place.row + 1}, ${place.name}: ${message}`;
}

/**
 * @typedef {object} Row
 * @property {string} channel
 * @property {(number | null)[]} values one for each column
 * @property {number} best column of the best value; -1 if there are fewer than two values
 */
/**
 * A table of results: a row for each channel, a column for each model and each baseline.
 * @param {object[]} results contents of answers of `POST /backtest`, one for each model
 * @param {string} metric of `METRICS`
 * @returns {{baselines: string[], rows: Row[]}}
 */
export function tableOf(results, metric) {
  const { of, coverage } = METRICS[metric];
  const channels = [...new Set(results.flatMap((one) => one.channels.map(({ name }) => name)))];
  const seasonal = (own) => own?.seasonal_naive ?? null;
  const season = results.flatMap((one) => one.channels.map(seasonal)).find(Boolean)?.season;
  const baselines = coverage ? [] : ["last value"];
  if (season && of) baselines.push(`last ${counted(season, "step")}`);
  const rows = channels.map((channel) => {
    const found = results.map((one) => one.channels.find(({ name }) => name === channel));
    const values = found.map((result) => (result ? (of ?? coverage)(result) : null));
    const others = [found.find(Boolean).last_value, found.map(seasonal).find(Boolean) ?? null];
    values.push(...baselines.map((_, at) => others[at] && of(others[at])));
    return { channel, values, best: bestOf(coverage ? values.map(distance) : values) };
  });
  return { baselines, rows };
}

/** Distance of a coverage from `SHARE`: intervals may be too wide or too narrow. */
const distance = (share) => (share === null ? null : Math.abs(share - SHARE));

function bestOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 1 ? values.indexOf(Math.min(...known)) : -1;
}

/**
 * Error over all channels, of a model or a baseline: the geometric mean of the ratios to the error of
 * the last value, because channels have different units.
 * @param {object} result content of an answer
 * @param {string} metric
 * @param {(channel: object) => object | null} [pick] the baseline
 * @returns {number | null} null if the metric is not an error
 */
export function overall({ channels }, metric, pick = (channel) => channel) {
  const { of } = METRICS[metric];
  if (!of) return null;
  const logs = channels
    .filter(pick)
    .map((channel) => Math.log(of(pick(channel)) / of(channel.last_value)))
    .filter(Number.isFinite);
  return logs.length ? Math.exp(logs.reduce((sum, log) => sum + log, 0) / logs.length) : null;
}
