/** The table of rows: editable, and only visible rows are in the document. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { html } from "htm/preact";
import { Cell, active, begin, editing } from "./cells.js";
import { textAt } from "./covariates.js";
import { cellsOf } from "./csv.js";
import { covariates, editAll, problems, scenario, span, table } from "./data.js";
import { placeOf } from "./request.js";
import { Scenarios } from "./scenarios.js";
import { timeAfter } from "./source.js";
import { model, problem, source } from "./store.js";
import { counted, listed } from "./words.js";

const HEIGHT = 26;
const NUMBER = 64;
const WIDTH = 118;
const TIME = 178;
const SPARE = 6;
/** Rows of the history in sight before those of the future. */
const BEFORE = 3;
const px = (length) => `${length}px`;

/** The number of calls of `reveal`. */
const reveals = signal(0);

/**
 * Scrolls to a cell and focuses it.
 * @param {{row: number, column: number, scenario?: number}} place column: -1 is that of times
 */
export function reveal({ row, column, scenario: own = 0 }) {
  scenario.value = own;
  active.value = { row, column: placed(column) };
  reveals.value += 1;
}

const placed = (column) => (column < 0 ? Math.max(0, table.value.timeColumn) : column);

/** Messages of wrong cells of the scenario that is shown: by row, then by column of the table. */
const wrong = computed(() => {
  const marks = new Map();
  const mark = ({ row, column, scenario: own = 0 }, message) => {
    const isReplaced = source.value.futures[scenario.value].cells[row]?.[column] !== undefined;
    if (own > scenario.value || (own < scenario.value && isReplaced)) return;
    if (!marks.has(row)) marks.set(row, new Map());
    marks.get(row).set(placed(column), message);
  };
  if (!table.value || !source.value) return marks;
  for (const one of problems.value) {
    if (one.row !== undefined) mark(one, one.message);
  }
  const error = problem.value;
  const place = error && placeOf(error.param, source.value, model.value, span.value);
  if (place?.field === "cell") mark(place, error.message);
  return marks;
});

/** The panel with the table of rows. */
export function Rows() {
  const { rows, header, timeColumn } = table.value;
  const box = useRef(null);
  const visible = useRef(signal({ top: 0, left: 0, height: 320, width: 800 })).current;
  const measure = () => {
    // A scroll event arrives a frame later, when the view may be closed.
    if (!box.current) return;
    const { scrollTop: top, scrollLeft: left, clientHeight: height, clientWidth: width } = box.current;
    visible.value = { top, left, height, width };
  };
  const left = (column) => NUMBER + column * WIDTH + (column > timeColumn && timeColumn >= 0 ? TIME - WIDTH : 0);
  const wide = (column) => (column === timeColumn ? TIME : WIDTH);

  const read = span.value;
  const count = Math.max(rows.length, read.steps && read.end + read.steps);
  const history = source.value.values.length;

  // The forecast follows the last row of the history.
  useLayoutEffect(() => {
    const row = history < count ? history : count - 1;
    box.current.scrollTop = (history < count ? row - BEFORE : count) * HEIGHT;
    active.value = { row, column: 0 };
    measure();
  }, [table.value.name]);
  useEffect(
    () =>
      reveals.subscribe((count) => {
        if (!count) return;
        scrollToActive();
        box.current.focus();
        box.current.scrollIntoView({ block: "nearest" });
      }),
    [],
  );

  function scrollToActive() {
    const { row, column } = active.value;
    const grid = box.current;
    const top = row * HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    const room = grid.clientHeight - 2 * HEIGHT;
    if (top > grid.scrollTop + room) grid.scrollTop = top - room;
    if (left(column) - NUMBER < grid.scrollLeft) grid.scrollLeft = left(column) - NUMBER;
    const right = left(column) + wide(column) - grid.clientWidth;
    if (right > grid.scrollLeft) grid.scrollLeft = right;
    measure();
  }

  function press(event) {
    if (editing.value) return;
    const page = Math.floor(visible.value.height / HEIGHT) - 2;
    const { row: at, column } = active.value;
    // A new table may have fewer rows.
    const row = Math.min(at, count - 1);
    const to = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      PageUp: [row - page, column],
      PageDown: [row + page, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0],
      End: event.ctrlKey ? [count - 1, header.length - 1] : [row, header.length - 1],
    }[event.key];
    if (to) {
      const within = (value, all) => Math.max(0, Math.min(all - 1, value));
      active.value = { row: within(to[0], count), column: within(to[1], header.length) };
      scrollToActive();
    } else if (["Enter", "F2", " "].includes(event.key)) {
      active.value = { row, column };
      scrollToActive();
      begin(textAt(source.value, row, column, scenario.value));
    } else return;
    event.preventDefault();
  }

  /** Pastes cells of a spreadsheet, from the cell of the keyboard on. */
  function paste(event) {
    if (editing.value) return;
    event.preventDefault();
    const { row, column } = active.value;
    const cells = cellsOf(event.clipboardData.getData("text"));
    editAll(
      cells.flatMap((line, down) =>
        line.map((text, along) => [row + down, column + along, text]),
      ).filter(([to, along]) => to < count && along < header.length),
    );
  }

  const { top, left: along, height, width } = visible.value;
  const first = Math.max(0, Math.floor(top / HEIGHT) - SPARE);
  const last = Math.min(count, Math.ceil((top + height) / HEIGHT) + SPARE);
  const columns = header.map((_, i) => i).filter((i) => left(i) + TIME > along && left(i) < along + width);
  const total = left(header.length);
  const { row: at, column: beside } = active.value;
  const inSight = at >= first && at < last && columns.includes(beside);

  const future = [...covariates.value.values()].filter(({ kind }) => kind === "future");
  const later = history < count ? ` and ${counted(count - history, "row")} of the future` : "";
  const ahead = read.steps
    ? `, and ${listed(future.map(({ name }) => name))} to ${read.end + read.steps}`
    : "";

  return html`<section class="panel" aria-labelledby="rows-title">
    <div class="row spread">
      <h2 id="rows-title">Rows</h2>
      <p class="hint">
        ${counted(history, "row")}${later}; the model reads ${read.first + 1} to
        ${` ${read.end}${ahead}`}. Enter or a double click edits a cell, and cells of a spreadsheet can
        be pasted.
      </p>
    </div>
    <${Scenarios} />
    <div
      class="rows"
      role="grid"
      tabindex="0"
      ref=${box}
      aria-labelledby="rows-title"
      aria-rowcount=${count + 1}
      aria-colcount=${header.length + 1}
      aria-activedescendant=${inSight ? `cell-${active.value.row}-${active.value.column}` : undefined}
      onScroll=${measure}
      onKeyDown=${press}
      onPaste=${paste}
    >
      <div role="rowgroup" style=${{ height: px((count + 1) * HEIGHT), width: px(total) }}>
        <div role="row" class="head" aria-rowindex="1" style=${{ width: px(total) }}>
          <span role="columnheader" class="number" aria-colindex="1">row</span>
          ${columns.map(
            (column) =>
              html`<span
                role="columnheader"
                aria-colindex=${column + 2}
                key=${column}
                title=${header[column]}
                style=${{ left: px(left(column)), width: px(wide(column)) }}
                >${header[column]}</span
              >`,
          )}
        </div>
        ${Array.from({ length: last - first }, (_, i) => {
          const row = first + i;
          return html`<div
            role="row"
            key=${row}
            aria-rowindex=${row + 2}
            class=${classOf(row, read, history)}
            style=${{ top: px((row + 1) * HEIGHT), width: px(total) }}
          >
            <span role="rowheader" class="number" aria-colindex="1">${row + 1}</span>
            ${columns.map(
              (column) =>
                html`<${Cell}
                  key=${column}
                  row=${row}
                  column=${column}
                  text=${textOf(row, column)}
                  message=${wrong.value.get(row)?.get(column)}
                  changed=${isChanged(row, column)}
                  left=${left(column)}
                  width=${wide(column)}
                  back=${() => box.current?.focus()}
                />`,
            )}
          </div>`;
        })}
      </div>
    </div>
  </section>`;
}

function classOf(row, { first, end, steps }, history) {
  if (row < first || (row >= history && row >= end + steps)) return "unread";
  return row >= history ? "ahead" : row >= end ? "held" : "";
}

/** The text of a cell; rows after the table have times, too. */
function textOf(row, column) {
  const { rows, timeColumn } = table.value;
  if (column === timeColumn && row >= rows.length) {
    return timeAfter(table.value, source.value.frequency ?? model.value.frequency, row);
  }
  return textAt(source.value, row, column, scenario.value);
}

/** Whether the second scenario is shown, and differs from the first one in a cell. */
function isChanged(row, column) {
  const own = scenario.value && source.value.futures[scenario.value].cells[row]?.[column];
  return own !== undefined && own !== 0 && own !== textAt(source.value, row, column);
}
