/** The table that is to be forecast: the model's example or a CSV of one's own, and its repairs. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { get } from "./api.js";
import { readCsv, seriesOf } from "./csv.js";
import { refusalOf } from "./request.js";
import { closed, edited, emptied, single, sorted, sourceOf } from "./source.js";
import { answer, attempt, forecast, forget, model, options, set, source } from "./store.js";

/** @type {import("@preact/signals").Signal<import("./csv.js").Table | null>} */
export const table = signal(null);
/** Columns that were chosen for channels. */
export const chosen = signal({});
/** What is wrong with what was opened, or null. */
export const unread = signal(null);
/** Whether what was opened may be sent without being asked: after the first time it was asked. */
const sent = signal(false);

/** Why the source cannot be forecast as it is, or null. */
export const refusal = computed(() => {
  if (!source.value || !model.value) return "no data";
  return refusalOf(source.value, model.value, options.value);
});

/** Takes the example that the model's bundle carries. */
export async function openExample() {
  const card = model.value;
  if (!card.example) {
    batch(() => {
      unread.value = "This model carries no example. Open a CSV of your own.";
      table.value = source.value = null;
    });
    return;
  }
  const path = `/models/${encodeURIComponent(`${card.name}@${card.version}`)}/example`;
  const before = table.value;
  const example = await attempt(() => get(path));
  // What was opened meanwhile stays.
  if (example && model.value === card && table.value === before) open(tableOf(example), true);
}

/** An example as a table, so that it can be looked at and edited like any other. */
function tableOf({ request, actual }) {
  const [{ name, channels, series, timestamps }] = request.inputs;
  const clock = (text) => text.replace(/T(\d\d:\d\d)(:00(?!:))?/, " $1");
  const cells = (row) => row.map((value) => (value === null ? "" : String(value)));
  return {
    name,
    header: [...(timestamps ? ["time"] : []), ...channels],
    rows: series.map((row, i) => [...(timestamps ? [clock(timestamps[i])] : []), ...cells(row)]),
    comma: false,
    timeColumn: timestamps ? 0 : -1,
    order: "dmy",
    ambiguous: false,
    timeZone: "",
    actual,
    example: true,
  };
}

/**
 * Takes a CSV.
 * @param {string} text
 * @param {string} name
 */
export function openText(text, name) {
  try {
    open(readCsv(text, name), false);
  } catch (error) {
    unread.value = `${name}: ${error.message}`;
  }
}

/** @param {File} file */
export async function openFile(file) {
  openText(await file.text(), file.name.replace(/\.[^.]*$/, ""));
}

function open(read, example) {
  batch(() => {
    unread.value = null;
    chosen.value = {};
    sent.value = example;
    table.value = read;
    set({ holdBack: 0, missing: "error", channelsShown: null });
    forget();
  });
}

// The source is what the table is for the model; an example is that of its own model.
let last = null;
effect(() => {
  const card = model.value;
  const read = table.value;
  if (!card) return;
  const other = last !== null && last !== card;
  last = card;
  if (!read || (other && read.example)) {
    // Until the model's own example is there, nothing is: another one's rows are not to be sent.
    source.value = null;
    untracked(openExample);
  } else source.value = sourceOf(read, card, chosen.value);
});

// What has been asked for once follows the sliders, as soon as they rest.
let resting;
effect(() => {
  const { horizon, level, missing, holdBack } = options.value;
  void [horizon, level, missing, holdBack, model.value, source.value];
  clearTimeout(resting);
  if (sent.value && refusal.value === null) resting = setTimeout(forecast, answer.peek() ? 150 : 0);
});

/** Sends what was opened. */
export function send() {
  if (sent.value) forecast();
  else sent.value = true;
}

/**
 * Repairs all problems of a kind in the table.
 * @param {string} kind
 */
export function repair(kind) {
  const { problems, columns, frequency } = source.value;
  const repaired = {
    number: (read) => emptied(read, problems, columns),
    order: sorted,
    duplicate: (read) => single(read, problems),
    gap: (read) => closed(read, problems, frequency),
  };
  table.value = repaired[kind](table.value);
}

/**
 * Takes another series of a table that has several.
 * @param {string} name
 */
export function openSeries(name) {
  batch(() => {
    table.value = seriesOf(table.value, name);
    forget();
  });
}

/**
 * Says whose clock times without an offset are of.
 * @param {string} timeZone IANA name, or "" for one that never changes
 */
export function clockOf(timeZone) {
  table.value = { ...table.value, timeZone };
}

/**
 * Says what times begin with that may begin with either.
 * @param {"dmy" | "mdy"} order
 */
export function orderBy(order) {
  table.value = { ...table.value, order, ambiguous: false };
}

/**
 * Writes a cell of the table.
 * @param {number} row
 * @param {number} column of the table
 * @param {string} text
 */
export function edit(row, column, text) {
  if (table.value.rows[row][column] !== text) {
    table.value = edited(table.value, row, column, text);
  }
}
