/** The numbers behind a chart, as a table that is made when it is opened. */

import { useState } from "preact/hooks";
import { html } from "htm/preact";
import { digits } from "./words.js";

/**
 * @param {object} props
 * @param {string} props.of what the chart shows
 * @param {string} props.first what rows are
 * @param {string[]} props.rows
 * @param {{label: string, values: (number | null)[]}[]} props.columns a value a row each
 */
export function Numbers({ of, first, rows, columns }) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Numbers<span class="quietly"> of ${of}</span></summary>
    ${
      open &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${`Numbers of ${of}`}>
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
                  ${columns.map(({ values }) => html`<td>${digits(values[place])}</td>`)}
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`
    }
  </details>`;
}
