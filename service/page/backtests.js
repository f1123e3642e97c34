/** Models beside each other on the same rows: who can take part, what is asked, who did best. */

import { placeOf, quantilesOf, reachOf, refusalOf, requestOf, shareOf } from "./request.js";
import { sameStep } from "./time.js";
import { counted, frequencyWords } from "./words.js";

/** The interval that is looked at. */
export const SHARE = 0.8;

/**
 * @typedef {object} Metric
 * @property {string} title
 * @property {(errors: {mse: number, mae: number}) => number | null} [of] of a model or a baseline
 * @property {(channel: object) => number | null} [held] of a model alone
 */
/** @type {Record<string, Metric>} */
export const METRICS = {
  mae: { title: "MAE", of: ({ mae }) => mae },
  rmse: { title: "RMSE", of: ({ mse }) => (mse === null ? null : Math.sqrt(mse)) },
  coverage: {
    title: `Coverage of ${100 * SHARE}% intervals`,
    held: ({ intervals }) => intervals?.[0]?.coverage ?? null,
  },
};

/**
 * Why a model cannot forecast a source.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {object} options as in the store
 * @returns {string | null} null where it can
 */
export function unfit(source, card, options) {
  const { frequency } = source;
  if (frequency && !sameStep(frequency, card.frequency)) {
    return `it reads ${frequencyWords(card.frequency)} rows, these are ${frequencyWords(frequency)}`;
  }
  return refusalOf(source, card, options);
}

/**
 * The steps that all of some models can forecast.
 * @param {object[]} cards
 * @param {number | null} wanted
 */
export const commonHorizon = (cards, wanted) =>
  Math.min(wanted ?? Infinity, ...cards.map(({ max_horizon: most }) => most));

/**
 * Of how many origins the rows hold both the context of every model and what followed.
 * @param {number} rows
 * @param {object[]} cards
 * @param {number} horizon steps of each forecast, and from an origin to the next
 */
export const originsIn = (rows, cards, horizon) =>
  Math.max(0, Math.floor((rows - rowsFor(cards, horizon)) / horizon) + 1);

/**
 * The rows that one origin takes.
 * @param {object[]} cards
 * @param {number} horizon
 */
export const rowsFor = (cards, horizon) =>
  Math.max(...cards.map(({ context }) => context)) + horizon;

/**
 * The body of `POST /backtest`: the latest origins, from no more rows than they take.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {{horizon: number, origins: number, missing: string}} how
 * @returns {object}
 */
export function backtestOf(source, card, { horizon, origins, missing }) {
  const first = firstOf(source, card, { horizon, origins });
  const latest = {
    ...source,
    values: source.values.slice(first),
    timestamps: source.timestamps?.slice(first) ?? null,
  };
  const { model, inputs } = requestOf(
    latest,
    card,
    { horizon, level: null, missing },
    { all: true },
  );
  const options = { horizon, origins, missing };
  if (reachOf(card) >= horizon && shareOf(SHARE, card) === SHARE) options.quantiles = quantilesOf(SHARE);
  return { model, inputs, options };
}

/**
 * The first row of the source that a backtest sends.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {{horizon: number, origins: number}} how
 */
export const firstOf = (source, card, { horizon, origins }) =>
  Math.max(0, source.values.length - card.context - origins * horizon);

/**
 * What a model refused, and where in the source.
 * @param {import("./api.js").ApiError} error
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {number} first row of the source that was sent
 * @returns {string}
 */
export function inPlace({ message, param }, source, card, first) {
  const place = placeOf(param, source, card, first);
  if (place?.row === undefined) return message;
  const channel = source.channels[place.channel] ?? "time";
  return `row ${place.row + 1}, ${channel}: ${message}`;
}

/**
 * @typedef {object} Row
 * @property {string} channel
 * @property {(number | null)[]} values a column each
 * @property {number} best place of the best of all; -1 where there is none
 */
/**
 * A table of results: channels in rows, models and after them baselines in columns.
 * @param {object[]} results contents of answers of `POST /backtest`, a model each
 * @param {string} metric of `METRICS`
 * @returns {{baselines: string[], rows: Row[]}}
 */
export function tabled(results, metric) {
  const { of, held } = METRICS[metric];
  const channels = [...new Set(results.flatMap((one) => one.channels.map(({ name }) => name)))];
  const seasonal = (own) => own?.seasonal_naive ?? null;
  const season = results.flatMap((one) => one.channels.map(seasonal)).find(Boolean)?.season;
  const baselines = held ? [] : ["last value"];
  if (season && of) baselines.push(`last ${counted(season, "step")}`);
  const rows = channels.map((channel) => {
    const found = results.map((one) => one.channels.find(({ name }) => name === channel));
    const values = found.map((result) => (result ? (of ?? held)(result) : null));
    const others = [found.find(Boolean).last_value, found.map(seasonal).find(Boolean) ?? null];
    values.push(...baselines.map((_, at) => others[at] && of(others[at])));
    return { channel, values, best: bestOf(held ? values.map(distance) : values) };
  });
  return { baselines, rows };
}

/** Of a coverage: neither too wide nor too narrow is good. */
const distance = (share) => (share === null ? null : Math.abs(share - SHARE));

function bestOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 1 ? values.indexOf(Math.min(...known)) : -1;
}

/**
 * How a model, or a baseline, did over all channels: its error as a share of that of repeating the
 * last value, the geometric mean over channels, for these differ in unit.
 * @param {object} result content of an answer
 * @param {string} metric
 * @param {(channel: object) => object | null} [pick] the baseline
 * @returns {number | null} null of metrics that are no errors
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
