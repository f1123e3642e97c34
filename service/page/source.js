/** From a table to a source for forecasts, with every problem named; and their repairs. */

import { matched, number } from "./csv.js";
import { frequencyOf, irregular } from "./regular.js";
import { isoOf, later, readTime, sameStep, stepOf } from "./time.js";
import { counted, frequencyWords } from "./words.js";

/**
 * The source that a table is for a model.
 * @param {import("./csv.js").Table} table
 * @param {object} card of the model
 * @param {Record<string, number>} [chosen] columns of channels that are not found by name
 * @returns {import("./store.js").Source & {columns: number[]}} `columns`: of the table, a channel each
 */
export function sourceOf(table, card, chosen = {}) {
  const places = { ...matched(table.header, card.channels), ...chosen };
  const channels = card.channels.filter((channel) => places[channel] >= 0);
  const columns = channels.map((channel) => places[channel]);
  table.header.forEach((title, column) => {
    if (column === table.timeColumn || columns.includes(column)) return;
    if (channels.includes(title) || !numeric(table, column)) return;
    channels.push(title);
    columns.push(column);
  });
  const problems = [];
  const read = reader(table, columns);
  const values = table.rows.map((cells, row) => {
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
          message: missing ? `${place}: no value` : `${place}: “${cells[column]}” is no number`,
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
    timestamps: times && times.texts,
    timeZone: table.timeZone || null,
    values,
    frequency: times && times.frequency,
    actual: table.actual ?? null,
    problems,
  };
}

let remembered = { form: "", rows: new WeakMap() };

/** Reads the cells of a row, once as long as it is not edited. */
function reader({ comma, timeColumn, order }, columns) {
  const form = JSON.stringify([comma, timeColumn, order, columns]);
  if (remembered.form !== form) remembered = { form, rows: new WeakMap() };
  const { rows } = remembered;
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

/** Whether a column that no channel names holds numbers, for other models may read it. */
function numeric(table, column) {
  const sample = table.rows.slice(0, 200).map((row) => number(row[column], table.comma));
  const known = sample.filter((value) => value !== null);
  return known.length > 0 && known.filter((value) => value !== undefined).length >= known.length / 2;
}

function timesOf(cells) {
  const read = cells.map(({ time }) => time);
  // Moments are regular where the clock changes, what it shows is not; days follow the clock.
  const wall = read.map((time) => time?.wall ?? NaN);
  const moments = read.map((time) => (time ? time.wall - (time.offset ?? 0) * 60 : NaN));
  const sound = (seconds) => seconds.filter((second) => !Number.isNaN(second));
  const byClock = frequencyOf(sound(wall));
  const subDaily = byClock !== null && /(s|min|h)$/.test(byClock);
  const seconds = subDaily ? moments : wall;
  const frequency = frequencyOf(sound(seconds));
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
      const message = cell(row) ? `“${cell(row)}” is no time` : "no time";
      problems.push({ kind: "time", row, channel: -1, message: `row ${row + 1}: ${message}` });
    }
  });
  const said = {
    order: (row) => `row ${row + 1}: ${cell(row)} is earlier than the row before`,
    duplicate: (row) => `row ${row + 1}: ${cell(row)} is there twice`,
    between: (row) => `row ${row + 1}: ${cell(row)} is no step of ${frequencyWords(frequency)} data`,
    gap: (row, steps) => `${counted(steps, "row")} missing before row ${row + 1}, ${cell(row)}`,
  };
  // Where the clock changes, only who knows its time zone tells a gap from an hour that is none.
  for (const { kind, row, steps } of table.timeZone ? [] : irregular(seconds, frequency)) {
    problems.push({ kind, row, channel: -1, steps, message: said[kind](row, steps) });
  }
  if (frequency !== null && !sameStep(frequency, card.frequency)) {
    const [here, wanted] = [frequency, card.frequency].map(frequencyWords);
    problems.push({ kind: "frequency", message: `the rows are ${here}, the model reads ${wanted} ones` });
  }
  return problems;
}

/**
 * A table with a cell changed.
 * @param {import("./csv.js").Table} table
 * @param {number} row
 * @param {number} column
 * @param {string} text
 */
export function edited(table, row, column, text) {
  const rows = [...table.rows];
  rows[row] = rows[row].with(column, text.trim());
  return { ...table, rows };
}

/**
 * A table with every cell emptied that is no number, of the columns that are read.
 * @param {import("./csv.js").Table} table
 * @param {import("./store.js").Problem[]} problems
 * @param {number[]} columns of the channels
 */
export function emptied(table, problems, columns) {
  const rows = [...table.rows];
  for (const { kind, row, channel } of problems) {
    if (kind === "number") rows[row] = rows[row].with(columns[channel], "");
  }
  return { ...table, rows };
}

/**
 * A table in the order of its times.
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
 * A table that keeps the last row of each time.
 * @param {import("./csv.js").Table} table
 * @param {import("./store.js").Problem[]} problems
 */
export function single(table, problems) {
  const again = new Set(problems.filter(({ kind }) => kind === "duplicate").map(({ row }) => row - 1));
  return { ...table, rows: table.rows.filter((_, row) => !again.has(row)) };
}

/**
 * A table whose gaps are rows without values.
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
  return { ...table, rows };
}
