/** Bodies of requests from the page's source and options. */

import { channelsOf, covariatesIn, staticText, stepsAhead, valueOf } from "./covariates.js";
import { fieldsOf, known, problemsOf } from "./inputs.js";
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
 * values, earlier rows that fill them; and the steps after them whose covariates are sent.
 * @returns {import("./inputs.js").Span}
 */
export function windowOf(source, card, { holdBack = 0, missing = "error", horizon = null }) {
  const end = Math.max(0, source.values.length - holdBack);
  let first = Math.max(0, end - card.context);
  if (missing !== "error" && first < end) {
    const columns = columnsOf(source, card).filter((column) => column >= 0);
    const tests = columns.map((column) => (row) => source.values[row][column] !== null);
    let open = [...tests, ...known(source, card)].filter((has) => !has(first));
    while (open.length && first > 0) {
      first -= 1;
      open = open.filter((has) => !has(first));
    }
  }
  return { first, end, steps: stepsAhead(card, horizon) };
}

/**
 * Columns of the model's channels in the source; -1 for missing channels.
 * @returns {number[]}
 */
export const columnsOf = (source, card) =>
  channelsOf(card).map((channel) => source.channels.indexOf(channel));

/**
 * The body of `POST /forecast` or `POST /backtest` for a source.
 * @param {import("./store.js").Source} source
 * @param {object} card of `GET /models/{name}`
 * @param {object} options as in the store
 * @param {{span?: import("./inputs.js").Span, scenarios?: boolean}} [which] span: the rows to send;
 *   those that the model reads if absent. scenarios: whether to send the second scenario
 * @returns {object}
 */
export function requestOf(source, card, options, which = {}) {
  const { span = windowOf(source, card, options), scenarios = false } = which;
  const { first, end } = span;
  const columns = columnsOf(source, card);
  const rows = source.values.slice(first, end).map((row) => columns.map((column) => row[column]));
  const input = {
    name: source.name,
    channels: channelsOf(card),
    series: columns.length === 1 ? rows.map(([value]) => value) : rows,
  };
  if (source.timestamps) input.timestamps = source.timestamps.slice(first, end);
  if (source.timeZone) input.time_zone = source.timeZone;
  Object.assign(input, fieldsOf(source, card, span, scenarios));
  const horizon = options.horizon ?? card.horizon;
  const sent = { horizon };
  const quantiles = reachOf(card) >= horizon ? quantilesOf(shareOf(options.level, card)) : [];
  if (quantiles.length) sent.quantiles = quantiles;
  if (options.missing !== "error") sent.missing = options.missing;
  if (options.importance) sent.importance = true;
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
  const covariates = covariatesIn(source, card);
  const columnless = covariates.filter(({ column }) => column < 0).map(({ name }) => name);
  const absent = [
    ...channelsOf(card).filter((channel) => !source.channels.includes(channel)),
    ...columnless,
  ];
  if (absent.length) return `no column for ${listed(absent)}`;
  const unset = card.covariates.static.find(
    (covariate) => (valueOf(covariate, staticText(source, covariate), source.comma) ?? null) === null,
  );
  if (unset) return `no value for ${unset.name}`;
  if (card.needs_timestamps && !source.timestamps) return "this model reads the calendar, so the rows need times";
  const span = windowOf(source, card, options);
  const { first, end, steps } = span;
  if (end - first < card.context) {
    const held = options.holdBack ? `, without the ${options.holdBack} held back` : "";
    return `${end} rows${held}: this model reads ${card.context}`;
  }
  const columns = new Set([-1, ...columnsOf(source, card)]);
  const wrong = source.problems.filter(
    ({ row, channel = -1 }) =>
      columns.has(channel) &&
      (row === undefined || (row >= first && row < (channel < 0 ? end + steps : end))),
  );
  const blocking = [...wrong, ...problemsOf(source, card, span)].find(
    ({ kind }) => !(kind === "missing" && options.missing !== "error"),
  );
  return blocking ? blocking.message : null;
}

const CELL = /^inputs\[0\]\.series\[(\d+)\](?:\[(\d+)\])?/;
const TIME = /^inputs\[0\]\.timestamps\[(\d+)\]/;
const COVARIATE =
  /^inputs\[0\]\.(?:scenarios\[(\d+)\]\.)?(past|future|static)_covariates\.(.+?)(?:\[(\d+)\])?$/;
const OPTION = /^options\.(horizon|quantiles|importance)/;

/**
 * The place on the page of an error of the API.
 * @param {string | null} param such as inputs[0].series[17][2]
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {{first: number, end: number}} span rows of the source that were sent
 * @returns {{field: string, name?: string, row?: number, column?: number, scenario?: number} | null}
 *   field: cell, static, or an option; column: of the table, -1 for times
 */
export function placeOf(param, source, card, { first, end }) {
  const cell = CELL.exec(param ?? "");
  if (cell) {
    const channel = columnsOf(source, card)[Number(cell[2] ?? 0)];
    const [name, column] = [source.channels[channel], source.columns[channel]];
    return { field: "cell", row: first + Number(cell[1]), column, name };
  }
  const time = TIME.exec(param ?? "");
  if (time) return { field: "cell", row: first + Number(time[1]), column: -1, name: "time" };
  const [found, scenario, kind, name, at] = COVARIATE.exec(param ?? "") ?? [];
  if (kind === "static") return { field: "static", name };
  const column = covariatesIn(source, card).find((covariate) => covariate.name === name)?.column;
  if (found && at !== undefined && column >= 0) {
    const row = (scenario === undefined ? first : end) + Number(at);
    return { field: "cell", row, column, name, scenario: Number(scenario ?? 0) };
  }
  const option = OPTION.exec(param ?? "");
  return option ? { field: option[1] } : null;
}
