/** Numbers of steps as durations in words. */

import { stepOf } from "./time.js";
import { counted } from "./words.js";

// The largest first.
const CLOCK = [
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
  ["millisecond", 1e-3],
  ["microsecond", 1e-6],
].map(([name, size]) => [name, Math.round(size * 1e6)]);
const YEAR_SECONDS = 365.25 * 86_400;
const BUSINESS_YEAR = 261;
const CYCLES = { seconds: [60, 86_400, 604_800], business: [5], halves: [24], months: [12] };

/**
 * Duration of a number of steps: `1 week`, `1 day 12 hours`, `52 weeks, about 1 year`.
 * @param {number} steps
 * @param {string | null} frequency a pandas alias
 * @returns {string} empty if the frequency is unknown
 */
export function period(steps, frequency) {
  const step = frequency ? stepOf(frequency) : null;
  if (!step) return "";
  const units = Math.abs(steps) * step.count;
  if (units === 0) return "the same time";
  if (step.unit === "months") return calendar(units);
  if (step.unit === "halves") return units % 2 ? counted(units, "half month") : calendar(units / 2);
  return step.unit === "business" ? business(units) : clock(Math.round(units * 1e6));
}

/**
 * A number of steps and their duration: `24 steps = 1 day`.
 * @param {number} steps
 * @param {string | null} frequency
 * @returns {string}
 */
export function inWords(steps, frequency) {
  const long = period(steps, frequency);
  return counted(Math.abs(steps), "step") + (long ? ` = ${long}` : "");
}

/**
 * The steps of the shortest usual cycle: a day of hours, a week of days, a year of months.
 * @param {string | null} frequency
 * @returns {number} 1 if there is none
 */
export function cycleOf(frequency) {
  const step = frequency ? stepOf(frequency) : null;
  if (!step) return 1;
  const longer = CYCLES[step.unit].find((all) => all > step.count && all % step.count === 0);
  return longer ? longer / step.count : 1;
}

function calendar(months) {
  const years = Math.floor(months / 12);
  const rest = months % 12;
  return [years && counted(years, "year"), rest && counted(rest, "month")]
    .filter(Boolean)
    .join(" ");
}

function business(days) {
  const weeks = days / 5;
  const text = Number.isInteger(weeks) ? counted(weeks, "week") : counted(days, "business day");
  return text + about(days / BUSINESS_YEAR);
}

/** Microseconds in the largest unit that they fill, and the rest in the next smaller one. */
function clock(micros) {
  // Weeks only without a rest: 9 days are 9 days.
  const from = micros % CLOCK[0][1] === 0 ? 0 : 1;
  const first = CLOCK.findIndex(([, size], index) => index >= from && micros >= size);
  const [name, size] = CLOCK[first];
  const [below, part] = CLOCK[first + 1] ?? CLOCK[first];
  const rest = Math.floor((micros % size) / part);
  const more = rest ? ` ${counted(rest, below)}` : "";
  return counted(Math.floor(micros / size), name) + more + about(micros / 1e6 / YEAR_SECONDS);
}

/** Approximate years of days and weeks: those within half a percent of whole years. */
function about(years) {
  const whole = Math.round(years);
  return whole > 0 && Math.abs(years - whole) <= 0.005 * whole
    ? `, about ${counted(whole, "year")}`
    : "";
}
