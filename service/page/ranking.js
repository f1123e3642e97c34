/** Series by their errors, the worst first. */

import { html } from "htm/preact";
import { keyOf, levelIn, seriesOf, worstFirst } from "./scores.js";
import { digits, percent } from "./words.js";

const SHOWN = 20;

/**
 * @param {object} props
 * @param {import("./scores.js").Row[]} props.rows by series
 * @param {number} props.more rows that the server left out
 * @param {string | undefined} props.chosen key of a series
 * @param {(series: ReturnType<typeof seriesOf>[0]) => void} props.choose
 */
export function Ranking({ rows, more, chosen, choose }) {
  const shown = worstFirst(rows).slice(0, SHOWN);
  const hidden = rows.length - shown.length + more;
  const level = levelIn(rows);
  const known = new Map(seriesOf(rows).map((one) => [one.key, one]));
  const several = new Set(rows.map(({ version }) => version)).size > 1;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Series by error">
      <table class="ranking">
        <caption class="quietly">
          Series by error, the worst first
        </caption>
        <thead>
          <tr>
            <th scope="col">Series</th>
            ${several && html`<th scope="col">Version</th>`}
            <th scope="col">MASE</th>
            <th scope="col">MAE</th>
            <th scope="col">Bias</th>
            ${level && html`<th scope="col">In ${percent(Number(level))}</th>`}
            <th scope="col">Values</th>
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            ({ version, count, mae, mase, bias, intervals, ...row }) =>
              html`<tr key=${`${keyOf(row)}@${version}`}>
                <th scope="row">
                  <button
                    class="link"
                    aria-pressed=${keyOf(row) === chosen}
                    onClick=${() => choose(known.get(keyOf(row)))}
                  >
                    ${known.get(keyOf(row)).title}
                  </button>
                </th>
                ${several && html`<td>${version}</td>`}
                <td class=${mase > 1 ? "bad" : ""}>${digits(mase, 1)}</td>
                <td>${digits(mae)}</td>
                <td>${digits(bias, mae)}</td>
                ${level && html`<td>${percent(intervals[level]?.coverage)}</td>`}
                <td>${count.toLocaleString("en")}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="hint">
      MASE is the mean absolute error (MAE) over that of repeating the last season: above 1 the
      forecasts are worse. Bias is the mean of forecast less actual value.
      ${hidden > 0 && ` ${hidden.toLocaleString("en")} better ones are not shown.`}
    </p>`;
}
