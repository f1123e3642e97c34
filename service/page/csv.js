/** Reads the text of a CSV as a table: columns, times, numbers. Independent of models. */

import Papa from "papaparse";
import { readTime } from "./time.js";
import { frequencyOf, irregular } from "./regular.js";

const MISSING = new Set(["", "na", "n/a", "nan", "null", "none", "-", "–", "#n/a"]);
const SAMPLE_ROWS = 200;

/**
 * @typedef {object} Table
 * @property {string} name
 * @property {string[]} header
 * @property {string[][]} rows cells as written; all rows are as long as the header
 * @property {boolean} comma whether numbers have a decimal comma
 * @property {number} timeColumn -1 if no column has times
 * @property {"dmy" | "mdy"} order of times that begin with day or month
 * @property {boolean} ambiguous whether the other order fits as well
 * @property {string} timeZone IANA name of the zone of times without an offset, or ""
 * @property {{column: number, name: string, names: string[], rows: string[][]}} [long] of a table
 *   of several series: the column with their names, the current series, and the rows of all
 * @property {(number | null)[][]} [actual] rows × targets after the history, of an example
 * @property {boolean} [example] whether it comes from the model's bundle
 * @property {import("./futures.js").Future[]} [futures] scenarios that the user edited
 * @property {Record<string, string>} [statics] texts of static covariates
 */

/**
 * Reads a CSV with any delimiter.
 * @param {string} text
 * @param {string} name of the file
 * @returns {Table}
 * @throws {Error} if the text is not a table
 */
export function readCsv(text, name) {
  const { data, meta } = Papa.parse(text.replace(/^\ufeff/, ""), { skipEmptyLines: "greedy" });
  if (data.length < 2) throw new Error("Expected a line of column names and at least one row of values.");
  const width = Math.max(...data.slice(0, SAMPLE_ROWS).map((row) => row.length));
  const long = data.findIndex((row) => row.length > width);
  if (long >= 0) throw new Error(`Line ${long + 1} has ${data[long].length} cells; expected ${width}.`);
  const cells = data.map((row) => Array.from({ length: width }, (_, i) => (row[i] ?? "").trim()));
  const named = cells[0].some((cell) => cell && number(cell) === undefined && !readTime(cell));
  const header = Array.from(
    { length: width },
    (_, i) => (named && cells[0][i]) || (i ? `column ${i + 1}` : named ? "" : "column 1"),
  );
  const rows = named ? cells.slice(1) : cells;
  const form = formOf(rows, meta.delimiter);
  const table = { name, header, rows, timeZone: "", ...form };
  const column = seriesColumn(header, rows, form.timeColumn);
  if (column < 0) return table;
  const names = [...new Set(rows.map((row) => row[column]))];
  return seriesOf({ ...table, long: { column, name: names[0], names, rows } }, names[0]);
}

/**
 * One series of a table of several.
 * @param {Table} table
 * @param {string} name
 * @returns {Table}
 */
export function seriesOf(table, name) {
  const { column, rows } = table.long;
  return {
    ...table,
    name,
    rows: rows.filter((row) => row[column] === name),
    futures: undefined,
    statics: undefined,
    long: { ...table.long, name },
  };
}

/**
 * The cells of a copied part of a spreadsheet.
 * @param {string} text with tabs between cells
 * @returns {string[][]}
 */
export const cellsOf = (text) =>
  Papa.parse(text.replace(/\r?\n$/, ""), { delimiter: "\t" }).data;

/** The column with the names of several series; -1 if there is none. */
function seriesColumn(header, rows, timeColumn) {
  const distinct = (key) => new Set(rows.map(key)).size;
  if (timeColumn < 0 || distinct((row) => row[timeColumn]) > rows.length / 2) return -1;
  return header.findIndex((title, column) => {
    const named = /^(series|(.*_)?id)$/i.test(title);
    if (column === timeColumn || !(named || number(rows[0][column]) === undefined)) return false;
    return distinct((row) => `${row[timeColumn]}\n${row[column]}`) === rows.length;
  });
}

function formOf(rows, delimiter) {
  const sample = rows.slice(0, SAMPLE_ROWS);
  const timeColumn = rows[0].findIndex((_, column) => timed(sample, column));
  const texts = sample.flatMap((row) => row.filter((_, column) => column !== timeColumn));
  // 1,234 is more than a thousand if other cells have a decimal point, or if the delimiter is not
  // a semicolon.
  const decimal = delimiter === ";" ? /,/ : /,(?!\d{3}$)|^[+-]?0/;
  const commas = texts.filter(
    (text) => /^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$/.test(text) && decimal.test(text),
  ).length;
  const points = texts.filter((text) => /^[+-]?[\d,]+\.(\d{1,2}|\d{4,})$/.test(text)).length;
  return { comma: commas > points, timeColumn, ...orderOf(rows, timeColumn) };
}

function timed(sample, column) {
  const texts = sample.map((row) => row[column]).filter(Boolean);
  if (!texts.length) return false;
  const read = texts.filter((text) => readTime(text) || readTime(text, "mdy")).length;
  return read >= 0.7 * texts.length;
}

/** Order of day and month: the one that all times allow, or that makes them regular. */
function orderOf(rows, column) {
  if (!rows.some((row) => /^\d{1,2}[-/]/.test(row[column] ?? ""))) {
    return { order: "dmy", ambiguous: false };
  }
  const read = (order) => rows.map((row) => readTime(row[column], order)?.wall ?? NaN);
  const odd = (seconds) => {
    const known = seconds.filter((second) => !Number.isNaN(second));
    return seconds.length - known.length + irregular(known, frequencyOf(known)).length;
  };
  const [day, month] = [read("dmy"), read("mdy")];
  if (day.every((second, row) => Object.is(second, month[row]))) {
    return { order: "dmy", ambiguous: false };
  }
  const [byDay, byMonth] = [odd(day), odd(month)];
  return { order: byMonth < byDay ? "mdy" : "dmy", ambiguous: byDay === byMonth };
}

/**
 * Reads a number.
 * @param {string} text
 * @param {boolean} [comma] whether the text has a decimal comma
 * @returns {number | null | undefined} null for a missing value, undefined if the text is not a number
 */
export function number(text, comma = false) {
  if (MISSING.has(text.toLowerCase())) return null;
  let plain = text.replace(/^([+-]?)[\u00a0 ]*/, "$1");
  if (comma) plain = plain.replace(/\.(?=\d{3})/g, "").replace(",", ".");
  else if (/^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(plain)) plain = plain.replaceAll(",", "");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain)) return undefined;
  const value = Number(plain);
  return Number.isFinite(value) ? value : undefined;
}

/**
 * Column of each channel, by name; case, spaces and punctuation do not matter.
 * @param {string[]} header
 * @param {string[]} channels
 * @returns {Record<string, number>} -1 if there is none
 */
export function columnsByName(header, channels) {
  const plain = (name) => name.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  const found = {};
  for (const channel of channels) {
    const exact = header.indexOf(channel);
    found[channel] =
      exact >= 0 ? exact : header.findIndex((title) => plain(title) && plain(title) === plain(channel));
  }
  return found;
}
