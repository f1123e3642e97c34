/** Covariates of a request, from the cells of the rows that it sends and of the steps after them. */

import { covariatesIn, expected, staticText, textAt, valueOf } from "./covariates.js";

/**
 * @typedef {object} Span rows of the source
 * @property {number} first first row that is sent
 * @property {number} end row after the last one of the history
 * @property {number} steps number of rows after it whose future covariates are sent
 */

/**
 * The fields of covariates of an input.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {Span} span
 * @param {boolean} scenarios whether to send the second scenario, if there is one
 * @returns {object}
 */
export function fieldsOf(source, card, { first, end, steps }, scenarios) {
  const all = covariatesIn(source, card);
  const valuesOf = (covariate, from, to, scenario) =>
    Array.from(
      { length: to - from },
      (_, i) =>
        valueOf(covariate, textAt(source, from + i, covariate.column, scenario), source.comma) ??
        null,
    );
  const named = (kind, from, to, scenario) =>
    Object.fromEntries(
      all
        .filter((covariate) => covariate.kind === kind)
        .map((covariate) => [covariate.name, valuesOf(covariate, from, to, scenario)]),
    );
  const fields = {
    past_covariates: named("past", first, end),
    future_covariates: named("future", first, end + steps),
    static_covariates: Object.fromEntries(
      card.covariates.static.map((covariate) => [
        covariate.name,
        valueOf(covariate, staticText(source, covariate), source.comma) ?? null,
      ]),
    ),
  };
  const sent = Object.fromEntries(
    Object.entries(fields).filter(([, values]) => Object.keys(values).length),
  );
  const [base, other] = source.futures;
  if (scenarios && other && steps) {
    sent.scenarios = [
      { name: base.name },
      { name: other.name, future_covariates: named("future", end, end + steps, 1) },
    ];
  }
  return sent;
}

/**
 * Covariates without a value, or with a wrong one, in the rows that a request sends.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {Span} span
 * @returns {import("./store.js").Problem[]}
 */
export function problemsOf(source, card, { first, end, steps }) {
  const problems = [];
  const all = covariatesIn(source, card).filter(({ column }) => column >= 0);
  source.futures.forEach(({ name, cells }, scenario) => {
    for (const covariate of all) {
      const { kind, column } = covariate;
      const last = kind === "future" ? end + steps : end;
      for (let row = scenario ? end : first; row < last; row += 1) {
        // The second scenario has the cells of the first, except for those that it changes.
        if (scenario && cells[row]?.[column] === undefined) continue;
        const text = textAt(source, row, column, scenario);
        const value = valueOf(covariate, text, source.comma);
        if (value !== null && value !== undefined) continue;
        const place = `row ${row + 1}, ${covariate.name}${scenario ? ` in ${name}` : ""}`;
        problems.push({
          kind: value === null ? "missing" : "value",
          row,
          column,
          scenario,
          message: value === null ? `${place}: no value` : `${place}: “${text}” is not ${expected(covariate)}`,
        });
      }
    }
  });
  return problems;
}

/**
 * Tests of rows, one for each covariate: whether the row has a value.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @returns {((row: number) => boolean)[]}
 */
export const known = (source, card) =>
  covariatesIn(source, card)
    .filter(({ column }) => column >= 0)
    .map(
      (covariate) => (row) =>
        valueOf(covariate, textAt(source, row, covariate.column), source.comma) !== null,
    );
