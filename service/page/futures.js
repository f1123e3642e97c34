/** The future of a table: cells of rows after its last one, and cells that a second scenario changes. */

/**
 * @typedef {object} Future
 * @property {string} name
 * @property {Record<number, Record<number, string>>} cells texts by row and by column
 */

/** The futures of a table without edits. */
export const UNTOUCHED = [{ name: "scenario 1", cells: {} }];

/**
 * @param {import("./csv.js").Table} table
 * @returns {Future[]} one, or two scenarios
 */
export const futuresOf = (table) => table.futures ?? UNTOUCHED;

/**
 * A table with a cell of a future changed.
 * @param {import("./csv.js").Table} table
 * @param {number} scenario
 * @param {number} row
 * @param {number} column
 * @param {string} text
 */
export function withFuture(table, scenario, row, column, text) {
  const futures = [...futuresOf(table)];
  const { name, cells } = futures[scenario];
  futures[scenario] = { name, cells: { ...cells, [row]: { ...cells[row], [column]: text } } };
  return { ...table, futures };
}

/**
 * A table with a second scenario, equal to the first one.
 * @param {import("./csv.js").Table} table
 */
export const duplicated = (table) => ({
  ...table,
  futures: [futuresOf(table)[0], { name: "scenario 2", cells: {} }],
});

/**
 * A table with the first scenario alone.
 * @param {import("./csv.js").Table} table
 */
export const alone = (table) => ({ ...table, futures: futuresOf(table).slice(0, 1) });

/**
 * A table whose futures follow its last row, after a repair that added or removed rows.
 * @param {import("./csv.js").Table} table
 * @param {number} added number of rows; negative if rows were removed
 */
export const following = (table, added) => ({
  ...table,
  futures: futuresOf(table).map(({ name, cells }) => ({
    name,
    cells: Object.fromEntries(Object.entries(cells).map(([row, own]) => [Number(row) + added, own])),
  })),
});
