/** What the page knows: signals, and the two actions that change them. Nothing else is global. */

import { signal } from "@preact/signals";
import { ApiError, get, post } from "./api.js";
import { requestOf } from "./request.js";

export { key } from "./api.js";
export { theme } from "./theme.js";

/**
 * @typedef {object} Problem
 * @property {string} kind
 * @property {number} [row] row of the source
 * @property {number} [channel] column of the source; -1 is the time's
 * @property {string} message
 *
 * @typedef {object} Source What is to be forecast.
 * @property {string} name
 * @property {string[]} channels
 * @property {string[] | null} timestamps ISO 8601, as a clock shows them
 * @property {string | null} [timeZone] IANA name of that clock
 * @property {(number | null)[][]} values rows × channels
 * @property {string | null} frequency pandas alias
 * @property {number[][] | null} actual rows × targets that followed
 * @property {Problem[]} problems
 */

/** The cards of `GET /models`. */
export const models = signal([]);
/** The card of `GET /models/{name}` that was chosen. */
export const model = signal(null);
/** @type {import("@preact/signals").Signal<Source | null>} */
export const source = signal(null);
/** How to forecast; `channelsShown` null shows all. */
export const options = signal({
  horizon: null,
  level: 0.95,
  missing: "error",
  channelsShown: null,
  holdBack: 0,
});
/** The last answer of `POST /forecast`. */
export const answer = signal(null);
/** What it answers: `{request, source, card, options}`. */
export const asked = signal(null);
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

let begun = 0;
let running = 0;
let refused = 0;

/**
 * Runs an action; what the API refuses becomes `problem`, until one that began later succeeds.
 * @template T
 * @param {() => Promise<T>} action
 * @returns {Promise<T | undefined>}
 */
export async function attempt(action) {
  const turn = ++begun;
  running += 1;
  busy.value = true;
  try {
    const result = await action();
    if (turn > refused) problem.value = null;
    return result;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A later one's may be there already.
    if (turn > refused) {
      refused = turn;
      problem.value = error;
    }
    return undefined;
  } finally {
    running -= 1;
    busy.value = running > 0;
  }
}

/** Reads which models there are, and takes the first one if none is chosen. */
export const readModels = () =>
  attempt(async () => {
    models.value = await get("/models");
    if (model.value === null && models.value.length) await load(models.value[0].name);
  });

/**
 * Takes a model.
 * @param {string} reference name, or name@version
 */
export const choose = (reference) => attempt(() => load(reference));

let wanted = 0;

/** Of several that are chosen one after the other only the last is taken. */
async function load(reference) {
  const turn = ++wanted;
  const card = await get(`/models/${encodeURIComponent(reference)}`);
  if (turn !== wanted) return;
  forget();
  model.value = card;
  set({ horizon: card.horizon, channelsShown: null });
}

let latest = 0;

/** Drops the answer, and one that is still to come. */
export function forget() {
  latest += 1;
  answer.value = asked.value = null;
}

/** Forecasts the source; an answer that a later one has overtaken is dropped. */
export async function forecast() {
  const turn = ++latest;
  const made = { source: source.value, card: model.value, options: options.value };
  const request = requestOf(made.source, made.card, made.options);
  const body = await attempt(() => post("/forecast", request, "answer"));
  if (turn !== latest) return;
  if (body) asked.value = { ...made, request };
  answer.value = body ?? null;
}
