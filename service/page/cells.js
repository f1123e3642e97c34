/** A cell of the table of rows: a text, a category to choose, or a checkbox. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { valueOf } from "./covariates.js";
import { covariates, edit, editable, table } from "./data.js";
import { source } from "./store.js";

/** The cell of the keyboard, and whether it is being edited. */
export const active = signal({ row: 0, column: 0 });
export const editing = signal(false);
const px = (length) => `${length}px`;

/**
 * Begins to edit the cell of the keyboard; changes it if it is a checkbox.
 * @param {string} text of the cell
 */
export function begin(text) {
  const { row, column } = active.value;
  if (!editable(row, column)) return;
  const covariate = covariates.value.get(column);
  if (covariate?.type === "boolean") edit(row, column, String(!valueOf(covariate, text)));
  else editing.value = true;
}

/**
 * @param {object} props
 * @param {number} props.row
 * @param {number} props.column of the table
 * @param {string} props.text
 * @param {string} [props.message] what is wrong with it
 * @param {boolean} props.changed whether the second scenario changes it
 * @param {number} props.left in pixels, as the width
 * @param {number} props.width
 * @param {() => void} props.back gives the focus back to the table
 */
export function Cell({ row, column, text, message, changed, left, width, back }) {
  const here = active.value.row === row && active.value.column === column;
  const covariate = covariates.value.get(column);
  const isOpen = editable(row, column);
  const point = () => (active.value = { row, column });
  const label = `Row ${row + 1}, ${table.value.header[column]}`;
  const id = `cell-${row}-${column}`;
  const isBeyond = row >= source.value.values.length && covariate?.kind !== "future";
  const hasCheckbox = covariate?.type === "boolean" && !(isBeyond && !text);
  const states = { wrong: message, here, changed, fixed: isBeyond };
  return html`<span
    role="gridcell"
    id=${hasCheckbox ? undefined : id}
    aria-colindex=${column + 2}
    aria-invalid=${message ? "true" : undefined}
    aria-readonly=${isOpen ? undefined : "true"}
    title=${message}
    class=${Object.keys(states).filter((state) => states[state]).join(" ")}
    style=${{ left: px(left), width: px(width) }}
    onClick=${point}
    onDblClick=${() => {
      point();
      if (!hasCheckbox) begin(text);
    }}
  >
    ${hasCheckbox
      ? html`<${Checkbox} ...${{ id, label, row, column, text, covariate, isOpen, back }} />`
      : here && editing.value
        ? html`<${Field} ...${{ label, row, column, text, covariate, back }} />`
        : text || (message ? "(empty)" : "")}
  </span>`;
}

/** A boolean; it is indeterminate without a value. */
function Checkbox({ id, label, row, column, text, covariate, isOpen, back }) {
  const value = valueOf(covariate, text) ?? null;
  const change = () => {
    edit(row, column, String(!value));
    back();
  };
  return html`${value === null && text}<input
      type="checkbox"
      id=${id}
      tabindex="-1"
      aria-label=${label}
      checked=${value === true}
      indeterminate=${value === null}
      disabled=${!isOpen}
      onChange=${change}
    />`;
}

/** The field of a cell that is being edited. */
function Field({ label, row, column, text, covariate, back }) {
  const field = useRef(null);
  useLayoutEffect(() => {
    field.current.focus();
    field.current.select?.();
  }, []);
  const keep = (event) => edit(row, column, event.currentTarget.value);
  // Scrolling the cell out of the document closes it, too.
  const close = (event) => {
    if (!editing.value) return;
    editing.value = false;
    if (event.key !== "Escape") keep(event);
  };
  const press = (event) => {
    if (event.key === "Enter" || event.key === "Escape") {
      event.preventDefault();
      close(event);
      back();
    }
    event.stopPropagation();
  };
  const props = { ref: field, "aria-label": label, onKeyDown: press, onBlur: close };
  if (covariate?.type !== "category") return html`<input ...${props} defaultValue=${text} />`;
  return html`<select ...${props} value=${text} onChange=${keep}>
    <${Categories} covariate=${covariate} text=${text} />
  </select>`;
}

/**
 * The options of a category.
 * @param {{covariate: import("./covariates.js").Covariate, text: string}} props text: the current one
 */
export function Categories({ covariate: { categories, other }, text }) {
  const names = other && !categories.includes("other") ? [...categories, "other"] : categories;
  const all = text && !names.includes(text) ? [...names, text] : names;
  return html`
    <option value="">– none –</option>
    ${all.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
  `;
}
