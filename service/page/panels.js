/** A forecast by channel: the content of charts, tables and summaries. */

import { actualOf, windowOf } from "./request.js";
import { later, readTime, secondsOf, stepOf } from "./time.js";
import { digits, percent, stretch } from "./words.js";

/** Rows of history in charts, if the context is shorter. */
const HISTORY = 1000;
/** Points of more steps would merge into a line. */
const DOTTED = 60;
/** Line of the second scenario. */
const OTHER = { kind: "forecast", colour: "--model-1", dash: [8, 3] };

/**
 * @typedef {object} Panel
 * @property {string} channel
 * @property {(number | null)[]} history one for each row that is drawn
 * @property {(number | null)[]} forecast one for each step, like the next three
 * @property {(number | null)[] | null} actual null if unknown
 * @property {{share: number, low: number[], high: number[]}[]} intervals the widest first
 * @property {{name: string, forecast: number[], difference: number[]} | null} other the second
 *   scenario, and its difference to the first
 * @property {string} summary
 *
 * @typedef {object} Panels
 * @property {number[]} x of the rows that are drawn and of the steps
 * @property {boolean} time whether x are seconds
 * @property {number} rows number of x that are history
 * @property {number | null} rolledFrom the first step that was forecast from earlier forecasts
 * @property {string | null} frequency
 * @property {string[]} scenarios names of the scenarios; empty if there is only one
 * @property {[number, number]} home range that is shown at first
 * @property {Panel[]} panels
 */

/**
 * @param {object} answer of `POST /forecast`
 * @param {{source: import("./store.js").Source, card: object, options: object}} requested
 * @returns {Panels}
 */
export function panelsOf(answer, { source, card, options }) {
  const [forecast] = answer.outputs[0].content;
  const { end } = windowOf(source, card, options);
  const first = Math.max(0, end - Math.max(HISTORY, card.context));
  const columns = card.targets.map((target) => source.channels.indexOf(target));
  const steps = forecast.mean_forecast.length;
  const { x, time } = axisOf(source, card, forecast, first, end);
  const actual = actualOf(source, card, options);
  const rows = end - first;
  const [, second] = forecast.scenarios ?? [];
  const seen = Math.min(rows, card.context, Math.max(4 * steps, 24));
  return {
    x,
    time,
    rows,
    rolledFrom: forecast.rolled_from ?? null,
    frequency: card.frequency,
    scenarios: (forecast.scenarios ?? []).map(({ name }) => name),
    home: [x[rows - seen], x.at(-1)],
    panels: card.targets.map((channel, target) => {
      const panel = {
        channel,
        history: source.values.slice(first, end).map((row) => row[columns[target]]),
        forecast: column(forecast.mean_forecast, target),
        actual: actual && Array.from({ length: steps }, (_, i) => actual[i]?.[target] ?? null),
        intervals: intervalsOf(forecast.quantiles ?? {}, target),
        other: second
          ? {
              name: second.name,
              forecast: column(second.mean_forecast, target),
              difference: column(second.difference, target),
            }
          : null,
      };
      return { ...panel, summary: summaryOf(panel, card.frequency) };
    }),
  };
}

const column = (rows, target) =>
  rows.map((row) => (Array.isArray(row) ? row[target] : row));

function axisOf(source, card, forecast, first, end) {
  const steps = forecast.mean_forecast.length;
  if (!source.timestamps) {
    // Row numbers as in the table of rows.
    return { x: Array.from({ length: end - first + steps }, (_, i) => first + i + 1), time: false };
  }
  const history = source.timestamps.slice(first, end);
  // Rows before the model's context may have invalid times.
  if (history.some((text) => readTime(text) === null)) {
    return axisOf({ ...source, timestamps: null }, card, forecast, first, end);
  }
  const { offset } = readTime(history[0]);
  const past = secondsOf(history);
  const step = stepOf(card.frequency);
  const future = forecast.timestamps
    ? secondsOf(forecast.timestamps, offset)
    : Array.from({ length: steps }, (_, i) => later(past.at(-1), step, i + 1));
  const x = [...past, ...future];
  const ascending = x.every((value, i) => i === 0 || value > x[i - 1]);
  return ascending ? { x, time: true } : axisOf({ ...source, timestamps: null }, card, forecast, first, end);
}

/** The widest interval first, which is drawn first. */
function intervalsOf(quantiles, target) {
  const levels = Object.keys(quantiles).sort((one, other) => one - other);
  return levels.slice(0, levels.length / 2).map((low, i) => ({
    share: Number((1 - 2 * low).toFixed(6)),
    low: column(quantiles[low], target),
    high: column(quantiles[levels.at(-1 - i)], target),
  }));
}

/** Mean absolute error against the known values, and the number of them in each interval. */
export function errorOf({ forecast, actual, intervals }) {
  const known = (actual ?? []).flatMap((value, i) => (value === null ? [] : [i]));
  if (!known.length) return null;
  const sum = known.reduce((total, i) => total + Math.abs(actual[i] - forecast[i]), 0);
  const coverage = intervals.map(({ share, low, high }) => ({
    share,
    covered: known.filter((i) => actual[i] >= low[i] && actual[i] <= high[i]).length,
  }));
  return { mae: sum / known.length, steps: known.length, coverage };
}

/**
 * The difference of a second scenario to the first one, in words.
 * @param {{name: string, difference: number[]}} other
 * @returns {string} such as "difference of scenario 2: +24.0 in sum, +2.00 on average"
 */
export function differenceWords({ name, difference }) {
  const sum = difference.reduce((total, value) => total + value, 0);
  const signed = (value) => `${value < 0 ? "" : "+"}${digits(value)}`;
  return `difference of ${name}: ${signed(sum)} in sum, ${signed(sum / difference.length)} on average`;
}

function summaryOf(panel, frequency) {
  const { forecast, intervals } = panel;
  const range = ([low, high]) => `${digits(low, high - low)} to ${digits(high, high - low)}`;
  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const parts = [`forecast ${range(ends(forecast))} over ${stretch(forecast.length, frequency)}`];
  if (intervals.length) {
    const [{ share, low, high }] = intervals;
    parts.push(`${percent(share)} interval ${range([Math.min(...low), Math.max(...high)])}`);
  }
  if (panel.other) parts.push(differenceWords(panel.other));
  const error = errorOf(panel);
  if (error) {
    const known = panel.actual.filter((value) => value !== null);
    parts.push(`actual ${range(ends(known))}, mean absolute error ${digits(error.mae)}`);
  }
  return `${parts.join("; ")}.`;
}

/**
 * The series and bands of a chart.
 * @param {Panels} all
 * @param {Panel} panel
 * @returns {{series: object[], bands: [number, number, number][]}}
 */
export function drawn({ rows }, panel) {
  const before = Array(rows).fill(null);
  const after = Array(panel.forecast.length).fill(null);
  // Lines of the forecast begin where the history ends.
  const joined = (values) => [...before.slice(1), panel.history.at(-1), ...values];
  const series = panel.intervals.flatMap(({ share, low, high }) => [
    { label: `upper end of ${percent(share)}`, values: joined(high), kind: "bound" },
    { label: `lower end of ${percent(share)}`, values: joined(low), kind: "bound" },
  ]);
  const bands = panel.intervals.map((_, i) => [2 * i, 2 * i + 1, i ? 0.22 : 0.14]);
  series.push({ label: "history", values: [...panel.history, ...after], kind: "history" });
  series.push({ label: "forecast", values: joined(panel.forecast), kind: "forecast" });
  if (panel.other) {
    series.push({ label: panel.other.name, values: joined(panel.other.forecast), ...OTHER });
  }
  if (panel.actual) {
    const points = panel.actual.length <= DOTTED;
    series.push({ label: "actual", values: [...before, ...panel.actual], kind: "actual", points });
  }
  return { series, bands };
}
