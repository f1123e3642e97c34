/** Numbers and frequencies in words. */

import { aliasOf } from "./time.js";

const UNITS = {
  us: ["microsecond", "every microsecond"],
  ms: ["millisecond", "every millisecond"],
  s: ["second", "every second"],
  min: ["minute", "every minute"],
  h: ["hour", "hourly"],
  D: ["day", "daily"],
  B: ["business day", "every business day"],
  W: ["week", "weekly"],
  SM: ["half month", "every half month"],
  M: ["month", "monthly"],
  Q: ["quarter", "quarterly"],
  Y: ["year", "yearly"],
};

/**
 * A number with enough digits for differences of a thousandth of the range.
 * @param {number | null | undefined} value
 * @param {number} [range] range of its neighbours; its own size if absent
 * @returns {string}
 */
export function digits(value, range = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const scale = Math.abs(range) || Math.abs(value) || 1;
  if (scale >= 1e15 || scale < 1e-12) return value.toPrecision(4);
  const decimals = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(scale))));
  const text = value.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/**
 * @param {number | null | undefined} share
 * @returns {string} such as 94.5%
 */
export const percent = (share) =>
  share === null || share === undefined ? "–" : `${Number((share * 100).toFixed(1))}%`;

/**
 * @param {number} count
 * @param {string} noun in the singular
 * @returns {string} such as "1 row", "1,200 rows"
 */
export const counted = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : /(s|ch)$/.test(noun) ? "es" : "s"}`;

/**
 * @param {string} frequency a pandas alias such as h, 15min, W-SUN, MS
 * @returns {string} such as hourly, every 15 minutes
 */
export function frequencyWords(frequency) {
  const { many, unit } = aliasOf(frequency);
  if (!unit) return frequency;
  const [one, each] = UNITS[unit];
  return many === 1 ? each : `every ${many} ${one}s`;
}

/**
 * A number of steps as a duration.
 * @param {number} steps
 * @param {string | null} frequency
 * @returns {string} such as "24 hours", "24 steps" if the frequency is unknown
 */
export function stretch(steps, frequency) {
  const { many, unit } = aliasOf(frequency);
  return counted(steps * many, unit ? UNITS[unit][0] : "step");
}

/**
 * A list of names; only the first ones if there are many.
 * @param {string[]} names
 * @param {number} [most]
 * @returns {string} such as "a, b and 3 more"
 */
export function listed(names, most = 6) {
  const more = names.length - most;
  return more > 0 ? `${names.slice(0, most).join(", ")} and ${more.toLocaleString("en")} more` : names.join(", ");
}
