/** The model that is chosen, and what is known of it. */

import { html } from "htm/preact";
import { INNER, reachOf } from "./request.js";
import { choose, model, models } from "./store.js";
import { counted, digits, frequencyWords, percent, stretch } from "./words.js";

const roomy = matchMedia("(min-width: 1000px)");
const BASELINES = { last_value: "last value", seasonal_naive: "last season" };

/** Choice of a model, and its data card. */
export function Card() {
  const card = model.value;
  return html`<section class="panel" aria-labelledby="card-title">
    <h2 id="card-title">Model</h2>
    <${ModelChoice} />
    ${card ? html`<${Facts} card=${card} />` : html`<p class="muted">No model is served.</p>`}
  </section>`;
}

/** Choice of a model and its version. */
export function ModelChoice() {
  const card = model.value;
  return html`<div class="row choices">
    <label class="grow">
      Model
      <select value=${card?.name} onChange=${(event) => choose(event.target.value)}>
        ${models.value.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    ${card?.versions.length > 1 &&
    html`<label>
      Version
      <select
        value=${card.version}
        onChange=${(event) => choose(`${card.name}@${event.target.value}`)}
      >
        ${card.versions.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>`}
  </div>`;
}

function Facts({ card }) {
  const few = card.targets.length < card.channels.length;
  return html`
    <p class="lead">
      Reads ${stretch(card.context, card.frequency)} of ${counted(card.channels.length, "channel")},
      ${" "}${frequencyWords(card.frequency)}; forecasts ${stretch(card.horizon, card.frequency)}${few
        ? ` of ${card.targets.join(", ")}`
        : ""}.
    </p>
    <${Accuracy} card=${card} />
    <details open=${roomy.matches}>
      <summary>Details</summary>
      <dl>
        <dt>Intervals</dt>
        <dd><${Coverage} card=${card} /></dd>
        <dt>Verified</dt>
        <dd>${verified(card)}</dd>
        <dt>Longest horizon</dt>
        <dd>${stretch(card.max_horizon, card.frequency)}</dd>
        <dt>Times</dt>
        <dd>${card.needs_timestamps ? "needed: it reads the calendar" : "optional"}</dd>
        <dt>Runs on</dt>
        <dd>${card.provider.replace("ExecutionProvider", "")}</dd>
        <dt>Parameters</dt>
        <dd>${card.parameters.toLocaleString("en")}, ${card.architecture}</dd>
        <dt>Version</dt>
        <dd>${card.version}</dd>
      </dl>
    </details>
    <details>
      <summary>Channels</summary>
      <ul class="names">
        ${card.channels.map(
          (name) =>
            html`<li>
              ${name}${few && card.targets.includes(name) && " (forecast)"}
              ${card.bounds[name] && html`<span class="muted"> ${limits(card.bounds[name])}</span>`}
            </li>`,
        )}
      </ul>
    </details>
  `;
}

const limits = ({ low, high }) =>
  low === null ? `up to ${high}` : high === null ? `from ${low}` : `${low} to ${high}`;

function Accuracy({ card }) {
  const { test, verdict } = card;
  if (!test) return html`<p class="hint">Its accuracy was not measured.</p>`;
  const baselines = Object.keys(BASELINES).filter((name) => test[name]);
  const worse = baselines.some((name) => test[name].mae < test.model.mae);
  const rows = [["this model", test.model], ...baselines.map((name) => [BASELINES[name], test[name]])];
  const best = (error) => Math.min(...rows.map(([, errors]) => errors[error]));
  return html`
    ${verdict &&
    html`<p class="verdict">
      <span class=${worse ? "bad" : "good"} aria-hidden="true">${worse ? "▼" : "▲"}</span> ${" "}
      ${verdict.replace(/ \([^)]*\)/g, "").replace(/^./, (letter) => letter.toUpperCase())}.
    </p>`}
    <table>
      <caption>
        Errors of ${counted(test.windows, "test window")}, in standard deviations
      </caption>
      <thead>
        <tr><th scope="col"></th><th scope="col">MSE</th><th scope="col">MAE</th></tr>
      </thead>
      <tbody>
        ${rows.map(
          ([name, errors]) =>
            html`<tr>
              <th scope="row">${name}</th>
              ${["mse", "mae"].map(
                (error) =>
                  html`<td class=${errors[error] === best(error) ? "best" : ""}>
                    ${digits(errors[error], 1)}
                  </td>`,
              )}
            </tr>`,
        )}
      </tbody>
    </table>
  `;
}

function Coverage({ card }) {
  if (!card.quantiles) return card.calibration_missing ?? "none";
  const first = card.calibration.coverage.filter(({ first_step: step }) => step === 1);
  const said = first.map(
    ({ level, coverage }) => `${percent(level)} held ${percent(coverage)}`,
  );
  const reach = stretch(reachOf(card), card.frequency);
  return said.length ? `${said.join(", ")} of the test; up to ${reach}` : `up to ${reach}`;
}

function verified({ verification: { checks, reference } }) {
  const errors = checks.filter(({ tolerance }) => tolerance < 0.1).map(({ max_error: error }) => error);
  if (!errors.length) return `against ${reference}`;
  return `${counted(checks.length, "check")} against ${reference}, largest error ${Math.max(...errors).toPrecision(2)}`;
}

/**
 * The bands of a level, in words.
 * @param {number} level
 */
export const bandWords = (level) =>
  level > INNER ? `${percent(INNER)} and ${percent(level)}` : percent(level);
