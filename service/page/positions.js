/** Positions of an axis of attention, in words. */

import { axisOf } from "./evidence.js";
import { secondsOf, timeWords } from "./time.js";

const KINDS = { patches: "patch", channels: "channel", steps: "step", positions: "position" };

/**
 * @typedef {object} Reader Describes positions of an axis.
 * @property {string} kind of a position, in words
 * @property {(label: import("./evidence.js").Label) => string} long
 * @property {(label: import("./evidence.js").Label) => string} short for the axis of a heatmap
 * @property {ReturnType<import("./evidence.js").placing>} place first and last row, if it has any
 */

/**
 * @param {import("./evidence.js").Label[]} labels of the axis
 * @param {object} about
 * @param {string[]} about.channels names of the model's channels
 * @param {string | null} about.frequency
 * @param {number} about.rows of the history
 * @param {ReturnType<import("./evidence.js").placing>} about.placeOf
 * @returns {Reader}
 */
export function reader(labels, { channels, frequency, rows, placeOf }) {
  const axis = axisOf(labels, channels);
  const kind = KINDS[axis];
  const nowhere = () => null;
  if (axis === "channels") return { kind, long: String, short: String, place: nowhere };
  if (axis === "positions") {
    return { kind, long: (label) => `position ${label}`, short: String, place: nowhere };
  }
  const time = (label) => timeWords(secondsOf([label])[0], frequency);
  const count = (label) => (label < 0 ? `step −${-label}` : `forecast step ${label + 1}`);
  const point = (label) => (typeof label === "number" ? count(label) : time(label));
  // Without the year, which is the same for all.
  const brief = (label) => (typeof label === "number" ? count(label) : shortened(time(label)));
  const ahead = (label) => {
    const step = (placeOf(label)?.[1] ?? -1) - rows;
    const numbered = typeof (label.end ?? label) === "number";
    return step < 0 || numbered ? "" : ` (forecast step ${step + 1})`;
  };
  if (axis === "steps") {
    return { kind, long: (label) => point(label) + ahead(label), short: brief, place: placeOf };
  }
  return {
    kind,
    long: (label) => `${point(label.start)} to ${point(label.end)}${ahead(label)}`,
    short: ({ start }) => brief(start),
    place: placeOf,
  };
}

/** A time without weekday and year, if it has a day. */
const shortened = (text) => text.replace(/^\w{3} \d{4}-(?=\d\d-\d\d)/, "");
