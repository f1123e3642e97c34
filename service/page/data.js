/** The table to forecast: the model's example or the user's CSV, and repairs of it. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { get } from "./api.js";
import { readCsv, seriesOf } from "./csv.js";
import { refusalOf } from "./request.js";
import { closed, edited, emptied, single, sorted, sourceOf } from "./source.js";
import { answer, attempt, forecast, forget, model, options, set, source } from "./store.js";

/** @type {import("@preact/signals").Signal<import("./csv.js").Table | null>} */
export const table = signal(null);
/** Columns that the user chose for channels. */
export const chosen = signal({});
/** Error of the last file, or null. */
export const readError = signal(null);
/** Whether a change sends a request by itself: after the first forecast of a table. */
const sent = signal(false);

/** The reason why the source cannot be forecast yet, or null. */
export const refusal = computed(() => {
  if (!source.value || !model.value) return "no data";
  return refusalOf(source.value, model.value, options.value);
});

/** Opens the example of the model's bundle. */
export async function openExample() {
  const card = model.value;
  if (!card.example) {
    batch(() => {
      readError.value = "This model has no example. Open a CSV.";
      table.value = source.value = null;
    });
    return;
  }
  const path = `/models/${encodeURIComponent(`${card.name}@${card.version}`)}/example`;
  const before = table.value;
  const example = await attempt(() => get(path));
  // A file that was opened meanwhile stays.
  if (example && model.value === card && table.value === before) open(tableOf(example), true);
}

/** An example as a table, which can be edited like any other. */
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
 * Opens a CSV.
 * @param {string} text
 * @param {string} name
 */
export function openText(text, name) {
  try {
    open(readCsv(text, name), false);
  } catch (error) {
    readError.value = `${name}: ${error.message}`;
  }
}

/** @param {File} file */
export async function openFile(file) {
  openText(await file.text(), file.name.replace(/\.[^.]*$/, ""));
}

function open(read, example) {
  batch(() => {
    readError.value = null;
    chosen.value = {};
    sent.value = example;
    table.value = read;
    set({ holdBack: 0, missing: "error", channelsShown: null });
    forget();
  });
}

// The source depends on table and model; another model gets its own example.
let last = null;
effect(() => {
  const card = model.value;
  const read = table.value;
  if (!card) return;
  const other = last !== null && last !== card;
  last = card;
  if (!read || (other && read.example)) {
    // No source until the model's own example has arrived: rows of another model's must not be sent.
    source.value = null;
    untracked(openExample);
  } else source.value = sourceOf(read, card, chosen.value);
});

// After the first forecast, changes of the sliders send a request after a pause.
let timer;
effect(() => {
  const { horizon, level, missing, holdBack } = options.value;
  void [horizon, level, missing, holdBack, model.value, source.value];
  clearTimeout(timer);
  if (sent.value && refusal.value === null) timer = setTimeout(forecast, answer.peek() ? 150 : 0);
});

/** Forecasts the table. */
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
 * Opens another series of a table of several.
 * @param {string} name
 */
export function openSeries(name) {
  batch(() => {
    table.value = seriesOf(table.value, name);
    forget();
  });
}

/**
 * Sets the time zone of times without an offset.
 * @param {string} timeZone IANA name, or "" for a constant offset
 */
export function setTimeZone(timeZone) {
  table.value = { ...table.value, timeZone };
}

/**
 * Sets the order of day and month, if both orders fit.
 * @param {"dmy" | "mdy"} order
 */
export function setDateOrder(order) {
  table.value = { ...table.value, order, ambiguous: false };
}

/**
 * Changes a cell of the table.
 * @param {number} row
 * @param {number} column of the table
 * @param {string} text
 */
export function edit(row, column, text) {
  if (table.value.rows[row][column] !== text) {
    table.value = edited(table.value, row, column, text);
  }
}
