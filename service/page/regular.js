/** Regularity of times: frequency, gaps, duplicates, order. */

import { WEEKDAYS, aliasOf, later, stepOf } from "./time.js";

const DAY = 86_400;
const SPACINGS = [
  [7 * DAY, "W"],
  [DAY, "D"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "us"],
];
// Fractions of seconds are inexact; whole microseconds are exact.
const micros = (seconds) => Math.round(seconds * 1e6);

/**
 * The frequency of most neighbouring times.
 * @param {number[]} seconds in any order
 * @returns {string | null} a pandas alias; null if there are too few times, or no alias fits
 */
export function frequencyOf(seconds) {
  const sorted = Float64Array.from(new Set(seconds)).sort();
  if (sorted.length < 3) return null;
  const apart = Array.from(sorted.subarray(1), (second, i) => micros(second - sorted[i]) / 1e6);
  const mean = (sorted.at(-1) - sorted[0]) / apart.length;
  const byCalendar = mean >= 13 * DAY ? calendarOf(sorted, apart) : null;
  if (byCalendar) return byCalendar;
  const most = commonest(apart);
  if (most === DAY && apart.includes(3 * DAY) && !weekends(sorted)) return "B";
  const [unit, name] = SPACINGS.find(([size]) => micros(most) % micros(size) === 0) ?? [];
  const many = micros(most) / micros(unit);
  return name && many <= MOST_UNITS ? times(many, name) : null;
}

// The largest count of an alias.
const MOST_UNITS = 999999;

const times = (many, name) => `${many === 1 ? "" : many}${name}`;

const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];

function commonest(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1])[0][0];
}

const weekends = (sorted) =>
  sorted.some((second) => [0, 6].includes(new Date(second * 1000).getUTCDay()));

// The day after the last day of a month is a first day.
const isLast = (second) => new Date((second + DAY) * 1000).getUTCDate() === 1;

const monthsOf = (sorted) =>
  Array.from(sorted, (second) => {
    const at = new Date(second * 1000);
    return at.getUTCFullYear() * 12 + at.getUTCMonth();
  });

/** A frequency of months or half months; null if none fits, or if a number of days does. */
function calendarOf(sorted, apart) {
  const days = Array.from(sorted, (second) => new Date(second * 1000).getUTCDate());
  const onOneDay = new Set(days).size === 1 || sorted.every(isLast);
  if (!onOneDay && new Set(apart).size === 1) return null;
  return halfMonthly(sorted, days) ?? (median(apart) >= 28 * DAY ? monthly(sorted, days) : null);
}

/** A frequency of months, quarters or years, anchored to the day of all times. */
function monthly(sorted, days) {
  const all = monthsOf(sorted);
  const months = Math.max(1, commonest(all.slice(1).map((month, i) => month - all[i])));
  const [size, unit] = [[12, "Y"], [3, "Q"], [1, "M"]].find(([one]) => months % one === 0);
  const name = (before, after) => times(months / size, before + unit + after);
  if (days.every((day) => day === 1)) return name("", "S");
  if (sorted.every(isLast)) return name("", "E");
  const weekday = WEEKDAYS[new Date(sorted[0] * 1000).getUTCDay()];
  const weeks = [`WOM-${Math.min(Math.ceil(days[0] / 7), 4)}${weekday}`, `LWOM-${weekday}`];
  const found = [name("B", "S"), name("B", "E"), ...weeks.map((week) => times(months, week))].find(
    (alias) => {
      const { days: daysOf } = aliasOf(alias);
      return all.every((month, i) => daysOf(Math.floor(month / 12), month % 12)[0] === days[i]);
    },
  );
  return new Set(days).size > 1 && found ? found : name("", "");
}

/** Half months: an edge of the month and one other day; null if the days are others. */
function halfMonthly(sorted, days) {
  const all = monthsOf(sorted);
  for (const [edge, atEdge] of [["S", days.map((day) => day === 1)], ["E", Array.from(sorted, isLast)]]) {
    const others = new Set(days.filter((_, i) => !atEdge[i]));
    const halves = all.map((month, i) => 2 * month + Number(atEdge[i] === (edge === "E")));
    const apart = halves.slice(1).map((half, i) => half - halves[i]);
    const many = commonest(apart);
    // A single odd day does not make months into half months.
    const isUsual = 2 * apart.filter((one) => one === many).length > apart.length;
    const [day] = others;
    if (others.size === 1 && isUsual && many % 2 && day < 28) {
      return times(many, `SM${edge}-${day}`);
    }
  }
  return null;
}

/**
 * Irregularities of times.
 * @param {number[]} seconds one for each row; NaN if the time is invalid
 * @param {string | null} frequency
 * @returns {{kind: "order" | "duplicate" | "gap" | "between", row: number, steps?: number}[]} by
 *   row; a gap is before its row and lacks `steps` rows
 */
export function irregular(seconds, frequency) {
  const found = [];
  const step = frequency === null ? null : stepOf(frequency);
  let before = NaN;
  // The day of the month that later steps return to after a shorter month.
  const day = Math.max(...dayRange(seconds, step));
  for (let row = 0; row < seconds.length; row += 1) {
    const now = seconds[row];
    // Comparisons with NaN are false: no problem next to an invalid time.
    if (now === before) found.push({ kind: "duplicate", row });
    else if (now < before) found.push({ kind: "order", row });
    else if (step && !Number.isNaN(now - before)) {
      const lacking = between(before, now, step, day);
      if (lacking === null) found.push({ kind: "between", row });
      else if (lacking) found.push({ kind: "gap", row, steps: lacking });
    }
    before = now;
  }
  return found;
}

/** The days of the month that occur, if the step is in months. */
function dayRange(seconds, step) {
  if (step?.unit !== "months") return [31];
  const days = new Set();
  for (const second of seconds) {
    if (!Number.isNaN(second)) days.add(new Date(second * 1000).getUTCDate());
  }
  return [1, ...days];
}

/** Number of missing steps between two times; null if the later one is between steps. */
function between(before, now, step, day) {
  if (step.unit === "seconds") {
    const steps = micros(now - before) / micros(step.count);
    return Number.isInteger(steps) ? steps - 1 : null;
  }
  const size = step.count * (step.unit === "months" ? 28 : 1) * DAY;
  const most = Math.ceil((now - before) / size);
  for (let steps = 1; steps <= most; steps += 1) {
    const there = later(before, step, steps, day);
    if (there === now) return steps - 1;
    if (there > now) break;
  }
  return null;
}
