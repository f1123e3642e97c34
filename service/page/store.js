/** State of the page: signals and the actions that change them. */

import { signal } from "@preact/signals";
import { ApiError, get, post } from "./api.js";
import { requestOf } from "./request.js";

export { key } from "./api.js";
export { theme } from "./theme.js";

/**
 * @typedef {object} Problem
 * @property {string} kind
 * @property {number} [row] row of the source
 * @property {number} [channel] column of the source; -1 is the column of times
 * @property {number} [column] column of the table; -1 is the column of times
 * @property {number} [scenario]
 * @property {string} message
 *
 * @typedef {object} Source The data to forecast.
 * @property {string} name
 * @property {string[]} channels
 * @property {number[]} columns column of the table of each channel
 * @property {string[] | null} timestamps ISO 8601, in local time
 * @property {string | null} [timeZone] IANA name of their zone
 * @property {(number | null)[][]} values rows × channels
 * @property {string | null} frequency pandas alias
 * @property {number[][] | null} actual rows × targets after the history
 * @property {Problem[]} problems
 * @property {string[]} header of the table
 * @property {string[][]} cells rows of the table; those after `values` have future covariates alone
 * @property {boolean} comma whether numbers have a decimal comma
 * @property {Record<string, number>} chosen columns that the user chose
 * @property {import("./futures.js").Future[]} futures one, or two scenarios
 * @property {Record<string, string>} statics texts of static covariates
 */

/** The cards of `GET /models`. */
export const models = signal([]);
/** The card of the chosen model, of `GET /models/{name}`. */
export const model = signal(null);
/** @type {import("@preact/signals").Signal<Source | null>} */
export const source = signal(null);
/** Options of the forecast; `channelsShown` null shows the first channels. */
export const options = signal({
  horizon: null,
  level: 0.95,
  missing: "error",
  channelsShown: null,
  holdBack: 0,
  importance: false,
});
/** The last answer of `POST /forecast`. */
export const answer = signal(null);
/** The request of `answer`: `{request, source, card, options}`. */
export const requested = signal(null);
export const busy = signal(false);
/** The last error of the API: an `ApiError`, or null. */
export const problem = signal(null);

/**
 * Changes some of the options.
 * @param {object} changes
 */
export function set(changes) {
  options.value = { ...options.value, ...changes };
}

let started = 0;
let running = 0;
let failed = 0;
let failedView = null;

/**
 * Runs an action; an error of the API becomes `problem`, until a later action succeeds.
 * @template T
 * @param {() => Promise<T>} action
 * @param {string | null} view its error stays until an action of the same view succeeds
 * @returns {Promise<T | undefined>}
 */
export async function attempt(action, view = null) {
  const turn = ++started;
  running += 1;
  busy.value = true;
  try {
    const result = await action();
    if (turn > failed && (failedView === null || failedView === view)) problem.value = null;
    return result;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A later action may have failed already.
    if (turn > failed) {
      failed = turn;
      failedView = view;
      problem.value = error;
    }
    return undefined;
  } finally {
    running -= 1;
    busy.value = running > 0;
  }
}

/**
 * Takes away the error of a view that is left.
 * @param {string} view
 */
export function leave(view) {
  if (failedView !== view) return;
  failedView = null;
  problem.value = null;
}

/** Reads the list of models, and loads the first one if none is chosen. */
export const readModels = () =>
  attempt(async () => {
    models.value = await get("/models");
    if (model.value === null && models.value.length) await load(models.value[0].name);
  });

/**
 * Chooses a model.
 * @param {string} reference name, or name@version
 */
export const choose = (reference) => attempt(() => load(reference));

let wanted = 0;

/** Loads a model's card; the last of several loads wins. */
async function load(reference) {
  const turn = ++wanted;
  const card = await get(`/models/${encodeURIComponent(reference)}`);
  if (turn !== wanted) return;
  forget();
  model.value = card;
  set({ horizon: card.horizon, channelsShown: null });
}

let latest = 0;

/** Drops the answer, and that of a request in flight. */
export function forget() {
  latest += 1;
  answer.value = requested.value = null;
}

/** Forecasts the source; drops the answer if there is a later request. */
export async function forecast() {
  const turn = ++latest;
  const made = { source: source.value, card: model.value, options: options.value };
  const request = requestOf(made.source, made.card, made.options, { scenarios: true });
  const body = await attempt(() => post("/forecast", request, "answer"));
  if (turn !== latest) return;
  if (body) requested.value = { ...made, request };
  answer.value = body ?? null;
}
