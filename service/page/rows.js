/** The table of rows: editable, and only visible rows are in the document. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { html } from "htm/preact";
import { edit, table } from "./data.js";
import { placeOf, windowOf } from "./request.js";
import { model, options, problem, source } from "./store.js";
import { counted } from "./words.js";

const HEIGHT = 26;
const NUMBER = 64;
const WIDTH = 118;
const TIME = 178;
const SPARE = 6;
const px = (length) => `${length}px`;

/** The cell of the keyboard, whether it is being edited, and the number of calls of `reveal`. */
const active = signal({ row: 0, column: 0 });
const editing = signal(false);
const reveals = signal(0);

/**
 * Scrolls to a cell and focuses it.
 * @param {number} row
 * @param {number} channel of the source; -1 is the column of times
 */
export function reveal(row, channel) {
  active.value = { row, column: columnOf(channel) };
  reveals.value += 1;
}

const columnOf = (channel) =>
  channel < 0 ? Math.max(0, table.value.timeColumn) : source.value.columns[channel];

/** Messages of wrong cells: by row, then by column of the table. */
const wrong = computed(() => {
  const marks = new Map();
  const mark = (row, channel, message) => {
    if (!marks.has(row)) marks.set(row, new Map());
    marks.get(row).set(columnOf(channel), message);
  };
  if (!table.value || !source.value) return marks;
  for (const { row, channel, message } of source.value.problems) {
    if (row !== undefined) mark(row, channel, message);
  }
  const error = problem.value;
  const { first } = windowOf(source.value, model.value, options.value);
  const place = error && placeOf(error.param, source.value, model.value, first);
  if (place?.field === "cell") mark(place.row, place.channel, error.message);
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

  // The forecast follows the last row.
  useLayoutEffect(() => {
    box.current.scrollTop = rows.length * HEIGHT;
    active.value = { row: rows.length - 1, column: 0 };
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
    const row = Math.min(at, rows.length - 1);
    const to = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      PageUp: [row - page, column],
      PageDown: [row + page, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0],
      End: event.ctrlKey ? [rows.length - 1, header.length - 1] : [row, header.length - 1],
    }[event.key];
    if (to) {
      const within = (value, count) => Math.max(0, Math.min(count - 1, value));
      active.value = { row: within(to[0], rows.length), column: within(to[1], header.length) };
      scrollToActive();
    } else if (event.key === "Enter" || event.key === "F2") {
      active.value = { row, column };
      scrollToActive();
      editing.value = true;
    } else return;
    event.preventDefault();
  }

  const { top, left: along, height, width } = visible.value;
  const first = Math.max(0, Math.floor(top / HEIGHT) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + height) / HEIGHT) + SPARE);
  const columns = header.map((_, i) => i).filter((i) => left(i) + TIME > along && left(i) < along + width);
  const read = windowOf(source.value, model.value, options.value);
  const total = left(header.length);
  const { row: at, column: beside } = active.value;
  const inSight = at >= first && at < last && columns.includes(beside);

  return html`<section class="panel" aria-labelledby="rows-title">
    <div class="row spread">
      <h2 id="rows-title">Rows</h2>
      <p class="hint">
        ${counted(rows.length, "row")}; the model reads ${read.first + 1} to ${read.end}. Enter or a
        double click edits a cell.
      </p>
    </div>
    <div
      class="rows"
      role="grid"
      tabindex="0"
      ref=${box}
      aria-labelledby="rows-title"
      aria-rowcount=${rows.length + 1}
      aria-colcount=${header.length + 1}
      aria-activedescendant=${inSight ? `cell-${active.value.row}-${active.value.column}` : undefined}
      onScroll=${measure}
      onKeyDown=${press}
    >
      <div role="rowgroup" style=${{ height: px((rows.length + 1) * HEIGHT), width: px(total) }}>
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
        ${rows.slice(first, last).map((cells, i) => {
          const row = first + i;
          return html`<div
            role="row"
            key=${row}
            aria-rowindex=${row + 2}
            class=${row >= read.end ? "held" : row < read.first ? "unread" : ""}
            style=${{ top: px((row + 1) * HEIGHT), width: px(total) }}
          >
            <span role="rowheader" class="number" aria-colindex="1">${row + 1}</span>
            ${columns.map(
              (column) =>
                html`<${Cell}
                  key=${column}
                  row=${row}
                  column=${column}
                  text=${cells[column]}
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

function Cell({ row, column, text, left, width, back }) {
  const here = active.value.row === row && active.value.column === column;
  const message = wrong.value.get(row)?.get(column);
  const field = useRef(null);
  const edited = here && editing.value;
  useLayoutEffect(() => field.current?.select(), [edited]);
  // Scrolling the cell out of the document closes it, too.
  const close = (event) => {
    if (!editing.value) return;
    editing.value = false;
    if (event.key !== "Escape") edit(row, column, event.currentTarget.value);
  };
  const press = (event) => {
    if (event.key === "Enter" || event.key === "Escape") {
      close(event);
      back();
    }
    event.stopPropagation();
  };
  return html`<span
    role="gridcell"
    id=${`cell-${row}-${column}`}
    aria-colindex=${column + 2}
    aria-invalid=${message ? "true" : undefined}
    title=${message}
    class=${`${message ? "wrong" : ""} ${here ? "here" : ""}`}
    style=${{ left: px(left), width: px(width) }}
    onClick=${() => (active.value = { row, column })}
    onDblClick=${() => {
      active.value = { row, column };
      editing.value = true;
    }}
  >
    ${edited
      ? html`<input
          ref=${field}
          aria-label=${`Row ${row + 1}, ${table.value.header[column]}`}
          defaultValue=${text}
          onKeyDown=${press}
          onBlur=${close}
        />`
      : text || (message ? "(empty)" : "")}
  </span>`;
}
