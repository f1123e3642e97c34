/** Local times: reading, writing, steps of a frequency. Never assumes a time zone. */

const DAY = 86_400;
const CLOCK = String.raw`(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?(?:\s*([AP])\.?M\.?)?`;
// 1013.2 is a number, not a month.
const ISO = new RegExp(
  String.raw`^(\d{4})(?:([-/.])(\d{1,2})\2(\d{1,2})|[-/](\d{1,2}))(?:[T ]${CLOCK})?\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?$`,
  "i",
);
const OTHER = new RegExp(String.raw`^(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?:[T ,]+${CLOCK})?$`, "i");

/**
 * @typedef {object} Time
 * @property {number} wall local time, in seconds as if it were UTC
 * @property {number | null} offset minutes from UTC; null if the text has none
 */

/**
 * Reads a time.
 * @param {string} text ISO 8601, also with a space or slashes; or day and month before the year
 * @param {"dmy" | "mdy"} [order] of times that begin with day or month
 * @returns {Time | null} null if the text is not a time
 */
export function readTime(text, order = "dmy") {
  const iso = ISO.exec(text);
  if (iso) {
    const [, year, , month, day, alone, hour, minute, second, fraction, half, zone] = iso;
    const date = [year, month ?? alone, day ?? "1"];
    return made([...date, hourOf(hour, half), minute, second], fraction, zone);
  }
  const other = OTHER.exec(text);
  if (!other) return null;
  const [, one, point, two, year, hour, minute, second, fraction, half] = other;
  // With points the day is always first.
  const [day, month] = order === "dmy" || point === "." ? [one, two] : [two, one];
  return made([year, month, day, hourOf(hour, half), minute, second], fraction);
}

/** The hour of a 12-hour or 24-hour clock. */
const hourOf = (hour, half) => (half ? (hour % 12) + (/p/i.test(half) ? 12 : 0) : hour);

function made([year, month, ...rest], fraction, zone) {
  const parts = [year, month - 1, ...rest].map((part) => Number(part ?? 0));
  const at = new Date(Date.UTC(...parts));
  const same =
    at.getUTCMonth() === parts[1] &&
    at.getUTCDate() === parts[2] &&
    at.getUTCHours() === parts[3] &&
    parts[4] < 60 &&
    parts[5] < 60;
  if (!same) return null;
  const wall = at.getTime() / 1000 + (fraction ? Number(`0.${fraction}`) : 0);
  return { wall, offset: zone ? offsetOf(zone) : null };
}

function offsetOf(zone) {
  if (/[a-z]/i.test(zone)) return 0;
  const minutes = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3).replace(":", ""));
  return zone[0] === "-" ? -minutes : minutes;
}

/**
 * A time in ISO 8601, with its offset if it has one.
 * @param {number} wall seconds
 * @param {number | null} [offset] minutes
 * @returns {string}
 */
export function isoOf(wall, offset = null) {
  const micros = Math.round(wall * 1e6);
  const text = new Date(Math.floor(micros / 1e3)).toISOString();
  const rest = ((micros % 1e3) + 1e3) % 1e3;
  const fine = rest ? String(rest).padStart(3, "0") : "";
  const clock = micros % 1e6 ? text.slice(0, 23) + fine : text.slice(0, 19);
  if (offset === null) return clock;
  if (offset === 0) return `${clock}Z`;
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const size = Math.abs(offset);
  return `${clock}${offset < 0 ? "-" : "+"}${two(size / 60)}:${two(size % 60)}`;
}

/**
 * Seconds on the axis of a chart; times with offsets get the offset of the first one.
 * @param {string[]} timestamps ISO 8601
 * @param {number | null} [offset] minutes; that of the first time if absent
 * @returns {number[]}
 */
export function secondsOf(timestamps, offset) {
  const times = timestamps.map((text) => readTime(text));
  const clock = offset ?? times[0]?.offset ?? null;
  return times.map((time) =>
    time.offset === null || clock === null ? time.wall : time.wall + (clock - time.offset) * 60,
  );
}

/**
 * A time in words, as precise as the frequency.
 * @param {number} seconds as on the axis
 * @param {string | null} [frequency]
 * @returns {string} such as Mon 2024-03-04 13:00
 */
export function timeWords(seconds, frequency = null) {
  const at = new Date(Math.round(seconds * 1e6) / 1e3);
  const text = at.toISOString();
  const { unit = "" } = aliasOf(frequency);
  if (/^[MQ]$/.test(unit)) return text.slice(0, 7);
  if (unit === "Y") return text.slice(0, 4);
  const day = at.toLocaleDateString("en", { weekday: "short", timeZone: "UTC" });
  const clock = /^(D|B|W|SM)$/.test(unit) ? "" : ` ${text.slice(11, at.getUTCMilliseconds() ? 23 : at.getUTCSeconds() ? 19 : 16)}`;
  return `${day} ${text.slice(0, 10)}${clock}`;
}

/**
 * @typedef {object} Step a frequency as a number of units
 * @property {"seconds" | "business" | "halves" | "months"} unit
 * @property {number} count
 * @property {(year: number, month: number) => number[]} [days] days of a month with steps, if the alias names them
 */

const ALIAS = /^(\d*)(B(?=[MQY])|L)?(us|ms|s|min|h|D|B|WOM|W|SM|M|Q|Y)([SE])?(?:-(\d*)([A-Z]*))?/;
export const WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/**
 * The parts of a frequency.
 * @param {string | null} frequency a pandas alias such as h, 15min, W-SUN, MS
 * @returns {{many: number, unit?: string, days?: Step["days"]}} no unit if the alias is unknown
 */
export function aliasOf(frequency) {
  const [, count, before, unit, ...rest] = ALIAS.exec(frequency ?? "") ?? [];
  const many = Number(count || 1);
  return { many, unit: unit === "WOM" ? "M" : unit, days: daysOf(before, unit, ...rest) };
}

/** Function for the days of a month with steps of an alias such as MS; two for half months. */
function daysOf(before, unit, edge, number, anchor) {
  const end = edge === "E" || before === "L";
  const lastOf = (year, month) => new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  if (unit === "SM") {
    const day = Number(number || 15);
    return (year, month) => (end ? [day, lastOf(year, month)] : [1, day]);
  }
  if (unit !== "WOM" && !edge) return undefined;
  const only = unit === "WOM" ? WEEKDAYS.indexOf(anchor) : null;
  const counts = (day) => (only === null ? before !== "B" || day % 6 !== 0 : day === only);
  return (year, month) => {
    let day = end ? lastOf(year, month) : 1;
    while (!counts(new Date(Date.UTC(year, month, day)).getUTCDay())) day += end ? -1 : 1;
    return [day + 7 * (Number(number || 1) - 1)];
  };
}

/**
 * @param {string} frequency a pandas alias
 * @returns {Step | null}
 */
export function stepOf(frequency) {
  const { many, unit, days } = aliasOf(frequency);
  if (!unit) return null;
  if (unit === "B") return { unit: "business", count: many };
  if (unit === "SM") return { unit: "halves", count: many, days };
  const months = { M: 1, Q: 3, Y: 12 }[unit];
  if (months) return { unit: "months", count: many * months, days };
  return { unit: "seconds", count: many * { us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, D: DAY, W: 7 * DAY }[unit] };
}

/**
 * Whether two frequencies have the same spacing, such as 60min and h.
 * @param {string} one
 * @param {string} other
 */
export function sameStep(one, other) {
  const [first, second] = [stepOf(one), stepOf(other)];
  return first?.unit === second?.unit && first?.count === second?.count;
}

/**
 * The time some steps later.
 * @param {number} start seconds
 * @param {Step} step
 * @param {number} steps
 * @param {number} [day] day of the month, if a shorter month moved `start` before it
 * @returns {number}
 */
export function later(start, step, steps, day) {
  if (step.unit === "seconds") return start + step.count * steps;
  if (step.unit === "business") {
    let at = start;
    for (let left = step.count * steps; left > 0; ) {
      at += DAY;
      if (![0, 6].includes(new Date(at * 1000).getUTCDay())) left -= 1;
    }
    return at;
  }
  const at = new Date(start * 1000);
  if (step.days) {
    const year = at.getUTCFullYear();
    const own = step.days(year, at.getUTCMonth());
    const part = own.filter((one) => one < at.getUTCDate()).length + step.count * steps;
    const then = at.getUTCMonth() + Math.floor(part / own.length);
    return Date.UTC(year, then, step.days(year, then)[part % own.length]) / 1000 + timeOfDay(start);
  }
  const month = at.getUTCMonth() + step.count * steps;
  const last = new Date(Date.UTC(at.getUTCFullYear(), month + 1, 0)).getUTCDate();
  const moved = Date.UTC(at.getUTCFullYear(), month, Math.min(day ?? at.getUTCDate(), last));
  return moved / 1000 + timeOfDay(start);
}

// Seconds since midnight, before 1970 too.
const timeOfDay = (seconds) => ((seconds % DAY) + DAY) % DAY;
