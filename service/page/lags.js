/** The lags of a circulant map, as bars over the correlation at every lag. */

import { html } from "htm/preact";
import { cycleOf, inWords, period } from "./periods.js";
import { counted, digits, percent } from "./words.js";
import { useWidth } from "./width.js";

const HEIGHT = 180;
const MARGIN = { top: 22, bottom: 22, side: 8 };
const MOST_LABELS = 3;
// Smaller weights, relative to the largest, have no label.
const LEAST = 0.05;

/**
 * @param {object} props
 * @param {ReturnType<import("./evidence.js").lagsOf>} props.found
 * @param {number[]} props.correlation at every lag
 * @param {string | null} props.frequency
 */
export function Lags({ found, correlation, frequency }) {
  const [element, width] = useWidth();
  const { lags, stride, offset } = found;
  // Lag 0, a step that attends to itself, is not a period.
  const strongest = lags.find(({ lag }) => lag !== 0) ?? lags[0];
  const itself = lags.find(({ lag }) => lag === 0 && strongest.lag !== 0);
  // Lags are not durations if queries and keys begin at different times.
  const calendar = offset ? null : frequency;
  const back = offset ? `, ${backWords(strongest.around, frequency)},` : ",";
  const summary = `Strongest lag: ${inWords(strongest.steps, calendar)}${back} with ${percent(strongest.weight)} of the weight.${itself ? ` ${percent(itself.weight)} is at lag 0.` : ""}`;
  return html`<div class="stack">
    <p class="summary">${summary}</p>
    <div ref=${element} class="lags">
      ${
        width > 0 &&
        html`<${Curve} ...${{ lags, correlation, stride, width, summary }} frequency=${calendar} />`
      }
    </div>
    <p class="hint">
      The line is the correlation at every lag; bars are the lags that the model chose. Lags are
      circular over ${correlation.length} positions: a long lag is a short one in the other direction.
      ${offset > 0 && ` Queries begin ${counted(offset, "step")} after keys.`}
    </p>
    <${Table} ...${{ lags, offset, calendar, frequency }} />
  </div>`;
}

/** The step that a lag reads if queries and keys begin at different times. */
const backWords = (steps, frequency) =>
  `${inWords(steps, frequency)} ${steps < 0 ? "ahead" : "back"}`;

function Curve({ lags, correlation, stride, frequency, width, summary }) {
  const [low, high] = [Math.min(0, ...correlation), Math.max(...correlation, 1e-12)];
  const last = Math.max(1, correlation.length - 1);
  const x = (lag) => MARGIN.side + (lag / last) * (width - 2 * MARGIN.side);
  const y = (value) =>
    MARGIN.top + ((high - value) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const points = correlation.map((value, lag) => `${x(lag).toFixed(1)},${y(value).toFixed(1)}`);
  const largest = lags[0].weight || 1;
  const thick = Math.max(2, Math.min(10, (width / correlation.length) * 0.7));
  return html`<svg
    width=${width}
    height=${HEIGHT}
    role="img"
    aria-label=${`Correlation at ${correlation.length} lags. ${summary}`}
  >
    ${ticksOf(correlation.length, stride, frequency, width).map(
      (lag) =>
        html`<g class="tick">
          <line x1=${x(lag)} x2=${x(lag)} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />
          <text x=${x(lag)} y=${HEIGHT - 7} text-anchor=${lag ? "middle" : "start"}>
            ${lag ? period(lag * stride, frequency) || lag * stride : "0"}
          </text>
        </g>`,
    )}
    ${lags.map(
      ({ lag, weight }) =>
        html`<line
          class="bar"
          x1=${x(lag)}
          x2=${x(lag)}
          y1=${y(low)}
          y2=${y(correlation[lag])}
          stroke-width=${thick}
          opacity=${0.25 + 0.75 * (weight / largest)}
        />`,
    )}
    <polyline class="curve" points=${points.join(" ")} />
    ${labelledOf(lags, x).map(
      ({ lag, steps, weight }) =>
        html`<text
          class="name"
          x=${Math.min(Math.max(x(lag), 30), width - 30)}
          y=${Math.max(12, y(correlation[lag]) - 6)}
          text-anchor="middle"
        >
          ${period(steps, frequency) || steps} · ${percent(weight)}
        </text>`,
    )}
  </svg>`;
}

/** Lags at whole cycles, as many as there is room to label. */
function ticksOf(length, stride, frequency, width) {
  const cycle = Math.max(1, cycleOf(frequency) / stride);
  const base = cycle < length ? cycle : 1;
  const step = Math.ceil(length / base / Math.max(1, Math.floor(width / 80))) * base;
  return Array.from({ length: Math.ceil((length - 1) / step) }, (_, place) =>
    Math.round(place * step),
  );
}

/** The largest lags that are far enough apart for labels. */
function labelledOf(lags, x) {
  const found = [];
  for (const one of lags.filter(({ weight }) => weight >= LEAST * lags[0].weight)) {
    if (found.every(({ lag }) => Math.abs(x(lag) - x(one.lag)) > 90)) found.push(one);
    if (found.length === MOST_LABELS) break;
  }
  return found;
}

function Table({ lags, offset, calendar, frequency }) {
  const largest = lags[0].weight || 1;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Lags by weight">
    <table>
      <caption>
        Lags by weight
      </caption>
      <thead>
        <tr>
          <th scope="col">Lag</th>
          <th scope="col">Weight</th>
          <td></td>
          <th scope="col">Correlation</th>
          <th scope="col">${offset ? "Reads" : "In the other direction"}</th>
        </tr>
      </thead>
      <tbody>
        ${lags.map(
          ({ lag, steps, around, weight, correlation }) =>
            html`<tr key=${lag}>
              <th scope="row">${inWords(steps, calendar)}</th>
              <td>${percent(weight)}</td>
              <td class="share">
                <span style=${{ width: `${(100 * weight) / largest}%` }}></span>
              </td>
              <td>${digits(correlation)}</td>
              <td>${offset ? backWords(around, frequency) : inWords(around, frequency)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
