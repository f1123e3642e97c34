/** Makes a source for forecasts from a table, with a list of problems; and repairs of them. */

import { channelsOf, rowwise } from "./covariates.js";
import { columnsByName, number } from "./csv.js";
import { following, futuresOf } from "./futures.js";
import { frequencyOf, irregular } from "./regular.js";
import { isoOf, later, readTime, sameStep, stepOf } from "./time.js";
import { counted, frequencyWords } from "./words.js";

/**
 * The source of a model's forecast.
 * @param {import("./csv.js").Table} table
 * @param {object} card of the model
 * @param {Record<string, number>} [chosen] columns that the user chose for channels and covariates
 * @returns {import("./store.js").Source}
 */
export function sourceOf(table, card, chosen = {}) {
  const names = channelsOf(card);
  const places = { ...columnsByName(table.header, names), ...chosen };
  const channels = names.filter((channel) => places[channel] >= 0);
  const columns = channels.map((channel) => places[channel]);
  const end = historyEnd(table, card, card.targets.map((target) => places[target]));
  table.header.forEach((title, column) => {
    if (column === table.timeColumn || columns.includes(column)) return;
    if (channels.includes(title) || !numeric(table, column)) return;
    channels.push(title);
    columns.push(column);
  });
  const problems = [];
  const read = reader(table, columns);
  const values = table.rows.slice(0, end).map((cells, row) => {
    const { values: numbers, complete } = read(cells);
    if (!complete) {
      columns.forEach((column, channel) => {
        if (numbers[channel] !== null) return;
        const missing = number(cells[column], table.comma) === null;
        const place = `row ${row + 1}, ${channels[channel]}`;
        problems.push({
          kind: missing ? "missing" : "number",
          row,
          channel,
          column,
          message: missing ? `${place}: no value` : `${place}: “${cells[column]}” is not a number`,
        });
      });
    }
    return numbers;
  });
  const times = table.timeColumn < 0 ? null : timesOf(table.rows.map(read));
  if (times) problems.push(...timeProblems(table, times, card));
  return {
    name: table.name,
    channels,
    columns,
    timestamps: times && times.texts.slice(0, end),
    timeZone: table.timeZone || null,
    values,
    frequency: times && times.frequency,
    actual: table.actual ?? null,
    problems,
    header: table.header,
    cells: table.rows,
    comma: table.comma,
    chosen,
    futures: futuresOf(table),
    statics: table.statics ?? {},
  };
}

/** The row after the last one of the history: later rows have future covariates alone. */
function historyEnd(table, card, targets) {
  const { rows, comma } = table;
  if (!card.covariates.future.length || targets.some((column) => column < 0)) return rows.length;
  const known = (cells) => targets.some((column) => number(cells[column], comma) !== null);
  return rows.findLastIndex(known) + 1;
}

/**
 * The text of the time of a row after the table.
 * @param {import("./csv.js").Table} table
 * @param {string | null} frequency
 * @param {number} row
 * @returns {string} empty if the times are not known
 */
export function timeAfter({ rows, timeColumn, order }, frequency, row) {
  const last = timeColumn < 0 ? "" : (rows.at(-1)?.[timeColumn] ?? "");
  const [time, step] = [readTime(last, order), frequency && stepOf(frequency)];
  if (!time || !step) return "";
  const text = isoOf(later(time.wall, step, row - rows.length + 1), time.offset);
  const short = /:\d\d:\d\d/.test(last) ? text : text.replace(/(T\d\d:\d\d):00(?!\.)/, "$1");
  const day = /:/.test(last) ? short : short.replace(/T00:00$/, "");
  return last.includes("T") ? day : day.replace("T", " ");
}

let cache = { form: "", rows: new WeakMap() };

/** A reader of rows, which caches each row until it is edited. */
function reader({ comma, timeColumn, order }, columns) {
  const form = JSON.stringify([comma, timeColumn, order, columns]);
  if (cache.form !== form) cache = { form, rows: new WeakMap() };
  const { rows } = cache;
  return (cells) => {
    if (!rows.has(cells)) {
      const values = columns.map((column) => number(cells[column], comma) ?? null);
      const time = timeColumn < 0 ? null : readTime(cells[timeColumn], order);
      const text = time ? isoOf(time.wall, time.offset) : cells[timeColumn];
      rows.set(cells, { values, complete: !values.includes(null), time, text });
    }
    return rows.get(cells);
  };
}

/** Whether a column has numbers: another model may read it, though this one does not. */
function numeric(table, column) {
  const sample = table.rows.slice(0, 200).map((row) => number(row[column], table.comma));
  const known = sample.filter((value) => value !== null);
  return known.length > 0 && known.filter((value) => value !== undefined).length >= known.length / 2;
}

function timesOf(cells) {
  const read = cells.map(({ time }) => time);
  // Hours are regular in UTC, even across daylight saving changes; days are regular in local time.
  const wall = read.map((time) => time?.wall ?? NaN);
  const moments = read.map((time) => (time ? time.wall - (time.offset ?? 0) * 60 : NaN));
  const valid = (seconds) => seconds.filter((second) => !Number.isNaN(second));
  const byClock = frequencyOf(valid(wall));
  const subDaily = byClock !== null && /(s|min|h)$/.test(byClock);
  const seconds = subDaily ? moments : wall;
  const frequency = frequencyOf(valid(seconds));
  return { read, seconds, frequency, texts: cells.map(({ text }) => text) };
}

function timeProblems(table, { read, seconds, frequency }, card) {
  const cell = (row) => table.rows[row][table.timeColumn];
  const problems = [];
  if (table.ambiguous) {
    problems.push({ kind: "order of days", message: `${cell(0)} may begin with the day or the month` });
  }
  read.forEach((time, row) => {
    if (!time) {
      const message = cell(row) ? `“${cell(row)}” is not a time` : "no time";
      problems.push({ kind: "time", row, channel: -1, column: -1, message: `row ${row + 1}: ${message}` });
    }
  });
  const messages = {
    order: (row) => `row ${row + 1}: ${cell(row)} is earlier than the row before`,
    duplicate: (row) => `row ${row + 1}: ${cell(row)} is a duplicate`,
    between: (row) => `row ${row + 1}: ${cell(row)} is not a step of ${frequencyWords(frequency)} data`,
    gap: (row, steps) => `${counted(steps, "row")} missing before row ${row + 1}, ${cell(row)}`,
  };
  // With a time zone the server checks the times: a skipped hour of daylight saving is not a gap.
  for (const { kind, row, steps } of table.timeZone ? [] : irregular(seconds, frequency)) {
    const place = { row, channel: -1, column: -1 };
    problems.push({ kind, ...place, steps, message: messages[kind](row, steps) });
  }
  if (frequency !== null && !sameStep(frequency, card.frequency)) {
    const [here, wanted] = [frequency, card.frequency].map(frequencyWords);
    problems.push({ kind: "frequency", message: `the rows are ${here}; the model reads ${wanted} rows` });
  }
  return problems;
}

/**
 * A table with cells changed.
 * @param {import("./csv.js").Table} table
 * @param {[number, number, string][]} cells row, column and text of each
 */
export function edited(table, cells) {
  const rows = [...table.rows];
  for (const [row, column, text] of cells) rows[row] = rows[row].with(column, text);
  return { ...table, rows };
}

/**
 * A table without cells that are not numbers, in the columns of channels.
 * @param {import("./csv.js").Table} table
 * @param {import("./store.js").Problem[]} problems
 */
export function emptied(table, problems) {
  const rows = [...table.rows];
  for (const { kind, row, column } of problems) {
    if (kind === "number") rows[row] = rows[row].with(column, "");
  }
  return { ...table, rows };
}

/**
 * A table sorted by time.
 * @param {import("./csv.js").Table} table
 */
export function sorted(table) {
  const moment = (row) => {
    const time = readTime(row[table.timeColumn], table.order);
    return time ? time.wall - (time.offset ?? 0) * 60 : Infinity;
  };
  const keyed = table.rows.map((row) => [moment(row), row]);
  return { ...table, rows: keyed.sort(([one], [other]) => one - other || 0).map(([, row]) => row) };
}

/**
 * A table with the last row of each time.
 * @param {import("./csv.js").Table} table
 * @param {import("./store.js").Problem[]} problems
 */
export function single(table, problems) {
  const again = new Set(problems.filter(({ kind }) => kind === "duplicate").map(({ row }) => row - 1));
  const rows = table.rows.filter((_, row) => !again.has(row));
  return following({ ...table, rows }, -again.size);
}

/**
 * A table with empty rows in its gaps.
 * @param {import("./csv.js").Table} table
 * @param {import("./store.js").Problem[]} problems
 * @param {string} frequency
 */
export function closed(table, problems, frequency) {
  const step = stepOf(frequency);
  const lacking = new Map(
    problems.filter(({ kind }) => kind === "gap").map(({ row, steps }) => [row, steps]),
  );
  const rows = table.rows.flatMap((row, index) => {
    const steps = lacking.get(index) ?? 0;
    if (!steps) return [row];
    const { wall, offset } = readTime(table.rows[index - 1][table.timeColumn], table.order);
    const between = Array.from({ length: steps }, (_, i) => {
      const time = isoOf(later(wall, step, i + 1), offset);
      return table.header.map((_name, column) => (column === table.timeColumn ? time : ""));
    });
    return [...between, row];
  });
  return following({ ...table, rows }, rows.length - table.rows.length);
}
