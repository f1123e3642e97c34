/** Scores of forecasts whose actual values are known: requests for them, and what they mean. */

import { SHARE } from "./backtests.js";
import { counted, percent } from "./words.js";

const DAY = 86_400;
/** Versions that charts show, the latest; more lines are hard to tell apart. */
const MOST = 5;

/**
 * @typedef {object} Filter Forecasts and values that count; empty values are left out.
 * @property {string} [series]
 * @property {string} [namespace] of the series; an empty one is the keys' without a namespace
 * @property {string} [frequency] of the series
 * @property {string} [channel]
 * @property {string} [since] a day such as 2024-03-01, in UTC
 * @property {string} [until]
 *
 * @typedef {object} Row scores of a version, as `GET /models/{model}/accuracy` answers them
 */

/**
 * @param {string} model
 * @param {"accuracy" | "trajectories"} what
 * @param {Filter & Record<string, unknown>} parameters
 * @returns {string} path of the request
 */
export function pathOf(model, what, parameters) {
  const given = Object.entries(parameters).filter(
    ([name, value]) => (value ?? null) !== null && (value !== "" || name === "namespace"),
  );
  return `/models/${encodeURIComponent(model)}/${what}?${new URLSearchParams(given)}`;
}

/** What tells a series from all others. */
export const keyOf = ({ series, namespace, frequency }) =>
  JSON.stringify([series, namespace, frequency]);

/**
 * The series of rows, with titles that tell them apart, in the order of these.
 * @param {Row[]} rows by series
 * @returns {{key: string, title: string, series: string, namespace: string, frequency: string}[]}
 */
export function seriesOf(rows) {
  const found = new Map(rows.map((row) => [keyOf(row), row]));
  const nameOf = ({ series, namespace }) => (namespace ? `${namespace}/${series}` : series);
  const counts = new Map();
  for (const row of found.values()) counts.set(nameOf(row), (counts.get(nameOf(row)) ?? 0) + 1);
  const titleOf = (row) =>
    counts.get(nameOf(row)) > 1 ? `${nameOf(row)} (${row.frequency})` : nameOf(row);
  return [...found]
    .map(([key, row]) => {
      const { series, namespace, frequency } = row;
      return { key, title: titleOf(row), series, namespace, frequency };
    })
    .sort((one, other) => (one.title < other.title ? -1 : 1));
}

/**
 * The versions of rows with their places among the line styles; the latest ones of many.
 * @param {Row[]} rows
 * @returns {{name: string, place: number}[]}
 */
export function versionsOf(rows) {
  const names = [...new Set(rows.map(({ version }) => version))];
  const order = new Intl.Collator("en", { numeric: true }).compare;
  return names
    .sort(order)
    .slice(-MOST)
    .map((name, place) => ({ name, place }));
}

/**
 * The level of the intervals that is nearest to 80%.
 * @param {string[]} levels such as ["0.8", "0.95"]
 * @returns {string | null} null without levels
 */
export function levelOf(levels) {
  const far = (level) => Math.abs(Number(level) - SHARE);
  return levels.reduce((best, one) => (best === null || far(one) < far(best) ? one : best), null);
}

/** The level of the intervals of rows. */
export const levelIn = (rows) => levelOf(rows.flatMap(({ intervals }) => Object.keys(intervals)));

/**
 * The share of actual values inside the intervals by week.
 * @param {Row[]} rows of one version, by day
 * @param {string} level
 * @returns {{monday: number, share: number, count: number}[]} `monday` in seconds since 1970
 */
export function weeksOf(rows, level) {
  const weeks = new Map();
  for (const { day, intervals } of rows) {
    const { coverage = null, count = 0 } = intervals[level] ?? {};
    if (coverage === null) continue;
    const seconds = Date.parse(day) / 1000;
    // 1970 began on a Thursday.
    const monday = seconds - ((((seconds / DAY + 3) % 7) + 7) % 7) * DAY;
    const week = weeks.get(monday) ?? { inside: 0, count: 0 };
    weeks.set(monday, { inside: week.inside + coverage * count, count: week.count + count });
  }
  return [...weeks]
    .sort(([one], [other]) => one - other)
    .map(([monday, { inside, count }]) => ({ monday, share: inside / count, count }));
}

/**
 * Rows of series with the largest MASE first; those without one come last.
 * @param {Row[]} rows by series
 */
export const worstFirst = (rows) =>
  [...rows].sort((one, other) => (other.mase ?? -1) - (one.mase ?? -1));

/**
 * Scores in words.
 * @param {Row} row
 * @param {string | null} level of the interval
 * @returns {string} such as "The error is 12% smaller than that of repeating the last season."
 */
export function wordsOf({ count, mase, intervals }, level) {
  const parts = [`${counted(count, "forecast value")} compared with actual values.`];
  if (mase !== null) {
    const change = Math.abs(1 - mase);
    const size = `${percent(Number(change.toFixed(2)))} ${mase > 1 ? "larger" : "smaller"} than`;
    parts.push(`The error is ${change < 0.005 ? "as large as" : size} that of repeating the last season.`);
  }
  const coverage = level && intervals[level]?.coverage;
  if (typeof coverage === "number") {
    parts.push(`${percent(coverage)} of the actual values are inside the ${percent(Number(level))} intervals.`);
  }
  return parts.join(" ");
}
