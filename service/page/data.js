/** The table to forecast: the model's example or the user's CSV, and repairs of it. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { get } from "./api.js";
import { covariatesIn, textAt } from "./covariates.js";
import { readCsv, seriesOf } from "./csv.js";
import { tableOf } from "./example.js";
import { alone, duplicated, withFuture } from "./futures.js";
import { problemsOf } from "./inputs.js";
import { refusalOf, windowOf } from "./request.js";
import { closed, edited, emptied, single, sorted, sourceOf } from "./source.js";
import { answer, attempt, forecast, forget, model, options, set, source } from "./store.js";

/** @type {import("@preact/signals").Signal<import("./csv.js").Table | null>} */
export const table = signal(null);
/** Columns that the user chose for channels and covariates. */
export const chosen = signal({});
/** The scenario whose future the table of rows shows. */
export const scenario = signal(0);
/** Error of the last file, or null. */
export const readError = signal(null);
/** Whether a change sends a request by itself: after the first forecast of a table. */
const sent = signal(false);

/** The reason why the source cannot be forecast yet, or null. */
export const refusal = computed(() => {
  if (!source.value || !model.value) return "no data";
  return refusalOf(source.value, model.value, options.value);
});

/** The rows that the next request sends. */
export const span = computed(() => windowOf(source.value, model.value, options.value));

/** The covariate of each column of the table that has one. */
export const covariates = computed(
  () =>
    new Map(
      covariatesIn(source.value, model.value)
        .filter(({ column }) => column >= 0)
        .map((one) => [one.column, one]),
    ),
);

/** Problems of the source, and of covariates in the rows that are sent. */
export const problems = computed(() => [
  // A covariate of numbers may be a channel of another model.
  ...source.value.problems.filter(({ column }) => !covariates.value.has(column)),
  ...problemsOf(source.value, model.value, span.value),
]);

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
  if (example && model.value === card && table.value === before) open(tableOf(example, card), true);
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
    scenario.value = 0;
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
  if (other) scenario.value = 0;
  if (!read || (other && read.example)) {
    // No source until the model's own example has arrived: rows of another model's must not be sent.
    source.value = null;
    untracked(openExample);
  } else source.value = sourceOf(read, card, chosen.value);
});

// After the first forecast, changes of the sliders send a request after a pause.
let timer;
effect(() => {
  const { horizon, level, missing, holdBack, importance } = options.value;
  void [horizon, level, missing, holdBack, importance, model.value, source.value];
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
  // Those of the source count values of covariates that are not numbers, too.
  const found = problems.value;
  const { frequency } = source.value;
  const repaired = {
    number: (read) => emptied(read, found),
    order: sorted,
    duplicate: (read) => single(read, found),
    gap: (read) => closed(read, found, frequency),
  };
  table.value = repaired[kind](table.value);
}

/**
 * Opens another series of a table of several.
 * @param {string} name
 */
export function openSeries(name) {
  batch(() => {
    scenario.value = 0;
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
 * Whether the user may change a cell: rows after the table, and the future of the second scenario,
 * have future covariates alone.
 * @param {number} row
 * @param {number} column of the table
 */
export function editable(row, column) {
  if (covariates.value.get(column)?.kind === "future") return true;
  return row < (scenario.value ? span.value.end : table.value.rows.length);
}

/**
 * Changes a cell of the table, or of the scenario that is shown.
 * @param {number} row
 * @param {number} column of the table
 * @param {string} text
 */
export const edit = (row, column, text) => editAll([[row, column, text]]);

/**
 * Changes cells at once.
 * @param {[number, number, string][]} cells row, column and text of each
 */
export function editAll(cells) {
  const own = (row) => scenario.value > 0 && row >= span.value.end;
  const changed = cells
    .map(([row, column, text]) => [row, column, text.trim()])
    .filter(
      ([row, column, text]) =>
        editable(row, column) && textAt(source.value, row, column, scenario.value) !== text,
    );
  const isFuture = ([row]) => own(row) || row >= table.value.rows.length;
  const rest = changed.filter((cell) => !isFuture(cell));
  let next = rest.length ? edited(table.value, rest) : table.value;
  for (const [row, column, text] of changed.filter(isFuture)) {
    next = withFuture(next, own(row) ? 1 : 0, row, column, text);
  }
  table.value = next;
}

/** Duplicates the future into a second scenario, and shows it. */
export const duplicate = () =>
  batch(() => {
    table.value = duplicated(table.value);
    scenario.value = 1;
  });

/** Removes the second scenario. */
export const removeScenario = () =>
  batch(() => {
    scenario.value = 0;
    table.value = alone(table.value);
  });

/**
 * Sets the text of a static covariate.
 * @param {string} name
 * @param {string} text
 */
export function setStatic(name, text) {
  table.value = { ...table.value, statics: { ...table.value.statics, [name]: text } };
}
