/** The numbers of a chart as a table, which is made when the user opens it. */

import { useState } from "preact/hooks";
import { html } from "htm/preact";
import { digits } from "./words.js";

/**
 * @param {object} props
 * @param {string} props.of title of the chart
 * @param {() => {first: string, rows: string[],
 *   columns: {label: string, values: (number | null)[]}[]}} props.made heading of the first column,
 *   names of the rows, and columns with a value for each row
 * @param {number} [props.range] of the values, which decides their number of digits
 */
export function Numbers({ of, made, range }) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Numbers<span class="quietly"> of ${of}</span></summary>
    ${open && html`<${Table} of=${of} range=${range} ...${made()} />`}
  </details>`;
}

function Table({ of, range, first, rows, columns }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Numbers of ${of}`}>
    <table>
      <caption>
        ${of}
      </caption>
      <thead>
        <tr>
          <th scope="col">${first}</th>
          ${columns.map(({ label }) => html`<th scope="col" key=${label}>${label}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row, place) =>
            html`<tr key=${row}>
              <th scope="row">${row}</th>
              ${columns.map(({ values }) => html`<td>${digits(values[place], range)}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
