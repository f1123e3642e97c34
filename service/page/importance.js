/** Importance: how far the forecast moves without each input, as bars. */

import { useState } from "preact/hooks";
import { html } from "htm/preact";
import { answer, requested } from "./store.js";
import { digits, listed } from "./words.js";

const KINDS = {
  channel: "channel",
  past: "past covariate",
  future: "future covariate",
  static: "static covariate",
};

/**
 * @typedef {object} Bar
 * @property {string} name of the input
 * @property {string} kind channel, past, future or static
 * @property {number | null} change mean absolute change of the forecast, in its units; null if it
 *   is not measured
 * @property {number | null} relative in standard deviations of the target; null if they are unknown
 * @property {number} share of the largest bar
 */

/**
 * The bars of a target: the largest first, those without a change last.
 * @param {object[]} importance of an answer
 * @param {number} target
 * @returns {Bar[]}
 */
export function barsOf(importance, target) {
  const of = (values) => (Array.isArray(values) ? values[target] : values);
  const bars = importance.map(({ name, kind, change, relative }) => ({
    name,
    kind,
    change: of(change),
    relative: of(relative),
  }));
  const largest = largestOf(bars, "change");
  return bars
    .map((bar) => ({ ...bar, share: largest ? bar.change / largest : 0 }))
    .sort((one, other) => (other.change ?? -1) - (one.change ?? -1));
}

const largestOf = (bars, field) => Math.max(0, ...bars.map((bar) => bar[field] ?? 0));

/** The panel with the bars of the last answer, if it has importance. */
export function Importance() {
  const [{ importance }] = answer.value.outputs[0].content;
  const { targets } = requested.value.card;
  const [chosen, choose] = useState(null);
  if (!importance) return null;
  const target = Math.max(0, targets.indexOf(chosen));
  const bars = barsOf(importance, target);
  const range = largestOf(bars, "change");
  const isRelative = bars.some(({ relative }) => relative !== null);
  const spread = largestOf(bars, "relative");
  return html`<section class="panel" aria-labelledby="importance-title">
    <div class="row spread">
      <h2 id="importance-title">Importance</h2>
      ${targets.length > 1 &&
      html`<label class="inline">
        for
        <select value=${targets[target]} onChange=${(event) => choose(event.currentTarget.value)}>
          ${targets.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </label>`}
    </div>
    <p class="hint">
      A bar is how far this forecast moves on average with the input replaced by its training mean,
      or by each of its values; it shows what this forecast uses, not what causes what.
    </p>
    <div class="scroll bars" tabindex="0" role="region" aria-label="Importance of each input">
      <table>
        <caption class="quietly">
          Importance for ${targets[target]}: the most important ${listed(bars.map(({ name }) => name), 2)}
        </caption>
        <thead>
          <tr>
            <th scope="col">Input</th>
            <td></td>
            <th scope="col">Change</th>
            ${isRelative && html`<th scope="col"><abbr title="in standard deviations">Std. dev.</abbr></th>`}
          </tr>
        </thead>
        <tbody>
          ${bars.map(
            ({ name, kind, change, relative, share }) =>
              html`<tr key=${`${kind} ${name}`}>
                <th scope="row">${name}<span class="muted kind"> ${KINDS[kind]}</span></th>
                <td class="share"><span style=${{ width: `${100 * share}%` }}></span></td>
                <td>${digits(change, range / 10)}</td>
                ${isRelative && html`<td>${digits(relative, spread / 10)}</td>`}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}
