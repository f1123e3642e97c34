/** Covariates of a model: their columns in a table, and their values from texts of cells. */

import { columnsByName, number } from "./csv.js";
import { listed } from "./words.js";

/**
 * @typedef {object} Covariate of a model's card
 * @property {string} name
 * @property {"number" | "boolean" | "category"} type
 * @property {string[]} categories
 * @property {boolean} other whether any other category may be sent
 */

const BOOLEANS = { true: true, 1: true, false: false, 0: false };

/**
 * Past covariates that are sent by name. Numbers are channels of the series instead.
 * @param {object} card of `GET /models/{name}`
 * @returns {Covariate[]}
 */
export const pastOf = (card) => card.covariates.past.filter(({ type }) => type !== "number");

/**
 * The channels that are columns of numbers.
 * @param {object} card
 * @returns {string[]}
 */
export function channelsOf(card) {
  const named = pastOf(card).flatMap(({ name, categories }) =>
    categories.length ? categories.map((category) => `${name}=${category}`) : [name],
  );
  return card.channels.filter((channel) => !named.includes(channel));
}

/**
 * The covariates with a value in each row.
 * @param {object} card
 * @returns {(Covariate & {kind: "past" | "future"})[]}
 */
export const rowwise = (card) => [
  ...pastOf(card).map((covariate) => ({ ...covariate, kind: "past" })),
  ...card.covariates.future.map((covariate) => ({ ...covariate, kind: "future" })),
];

/**
 * Names of the columns that a model reads, besides times.
 * @param {object} card
 * @returns {string[]}
 */
export const namesOf = (card) => [...channelsOf(card), ...rowwise(card).map(({ name }) => name)];

/**
 * The covariates of columns of the source.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @returns {(Covariate & {kind: "past" | "future", column: number})[]} column: -1 if there is none
 */
export function covariatesIn({ header, chosen }, card) {
  const all = rowwise(card);
  const places = { ...columnsByName(header, all.map(({ name }) => name)), ...chosen };
  return all.map((covariate) => ({ ...covariate, column: places[covariate.name] }));
}

/**
 * Number of steps after the history whose covariates a model reads: those of all passes.
 * @param {object} card
 * @param {number | null} horizon
 * @returns {number} 0 if it reads no future covariates
 */
export function stepsAhead(card, horizon) {
  if (!card.covariates.future.length) return 0;
  return Math.ceil((horizon ?? card.horizon) / card.horizon) * card.horizon;
}

/**
 * The text of a cell of the source, in a scenario.
 * @param {import("./store.js").Source} source
 * @param {number} row
 * @param {number} column of the table
 * @param {number} [scenario]
 * @returns {string} empty in rows after the table that have no value yet
 */
export const textAt = ({ cells, futures }, row, column, scenario = 0) =>
  futures[scenario].cells[row]?.[column] ??
  futures[0].cells[row]?.[column] ??
  cells[row]?.[column] ??
  "";

/**
 * The value of a text.
 * @param {Covariate} covariate
 * @param {string} text
 * @param {boolean} [comma] whether numbers have a decimal comma
 * @returns {number | boolean | string | null | undefined} null if it is missing, undefined if it is wrong
 */
export function valueOf({ type, categories, other }, text, comma = false) {
  if (categories.includes(text)) return text;
  const read = number(text, comma);
  if (type === "number" || read === null) return read;
  return type === "boolean" ? BOOLEANS[text.toLowerCase()] : other ? text : undefined;
}

/**
 * What a covariate's values are, in words.
 * @param {Covariate} covariate
 */
export const expected = ({ type, categories }) =>
  ({ number: "a number", boolean: "true or false", category: `one of ${listed(categories)}` })[type];

/**
 * The text of a static covariate: the user's, or else that of the first row of its column.
 * @param {import("./store.js").Source} source
 * @param {Covariate} covariate
 * @returns {string} empty if it is unknown
 */
export function staticText({ statics, header, cells }, { name, type }) {
  const column = columnsByName(header, [name])[name];
  return statics[name] ?? cells[0]?.[column] ?? (type === "boolean" ? "false" : "");
}
