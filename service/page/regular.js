/** Whether times are regular: their frequency, gaps, duplicates, order. */

import { later, stepOf } from "./time.js";

const DAY = 86_400;
const SPACINGS = [
  [7 * DAY, "W"],
  [DAY, "D"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/**
 * The frequency that most neighbours are apart.
 * @param {number[]} seconds in any order
 * @returns {string | null} a pandas alias; null where there are too few times, or no such spacing
 */
export function frequencyOf(seconds) {
  const sorted = Float64Array.from(new Set(seconds)).sort();
  if (sorted.length < 3) return null;
  const counts = new Map();
  for (let i = 1; i < sorted.length; i += 1) {
    const apart = sorted[i] - sorted[i - 1];
    counts.set(apart, (counts.get(apart) ?? 0) + 1);
  }
  const [most] = [...counts].sort((one, other) => other[1] - one[1])[0];
  const months = { 28: 1, 29: 1, 30: 1, 31: 1, 90: 3, 91: 3, 92: 3, 365: 12, 366: 12 }[most / DAY];
  if (months) return monthly(sorted, months);
  if (most === DAY && counts.has(3 * DAY) && !weekends(sorted)) return "B";
  const [unit, name] = SPACINGS.find(([size]) => most % size === 0) ?? [];
  if (!name) return null;
  return `${most === unit ? "" : most / unit}${name}`;
}

const weekends = (sorted) =>
  sorted.some((second) => [0, 6].includes(new Date(second * 1000).getUTCDay()));

function monthly(sorted, months) {
  const unit = { 1: "M", 3: "Q", 12: "Y" }[months];
  const at = (second) => new Date(second * 1000).getUTCDate();
  if (sorted.every((second) => at(second) === 1)) return `${unit}S`;
  // The day after the last one of a month is a first one.
  if (sorted.every((second) => at(second + DAY) === 1)) return `${unit}E`;
  return unit;
}

/**
 * What keeps times from being regular.
 * @param {number[]} seconds one a row; NaN where there is none
 * @param {string | null} frequency
 * @returns {{kind: "order" | "duplicate" | "gap" | "between", row: number, steps?: number}[]} by
 *   row; a gap is before its row, `steps` are the rows that it lacks
 */
export function irregular(seconds, frequency) {
  const found = [];
  const step = frequency === null ? null : stepOf(frequency);
  let before = NaN;
  // The day that months return to after a shorter one.
  const day = Math.max(...dayRange(seconds, step));
  for (let row = 0; row < seconds.length; row += 1) {
    const now = seconds[row];
    // Beside a time that cannot be read nothing is known.
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

/** The days of the month that occur, as far as they matter. */
function dayRange(seconds, step) {
  if (step?.unit !== "months") return [31];
  const days = new Set();
  for (const second of seconds) {
    if (!Number.isNaN(second)) days.add(new Date(second * 1000).getUTCDate());
  }
  return [1, ...days];
}

/** How many steps lie between two times; null where the later one is no step. */
function between(before, now, step, day) {
  if (step.unit === "seconds") {
    const steps = (now - before) / step.count;
    return Number.isInteger(steps) ? steps - 1 : null;
  }
  const size = step.unit === "business" ? step.count * DAY : step.count * 28 * DAY;
  const most = Math.ceil((now - before) / size);
  for (let steps = 1; steps <= most; steps += 1) {
    const there = later(before, step, steps, day);
    if (there === now) return steps - 1;
    if (there > now) break;
  }
  return null;
}
