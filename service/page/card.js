/** Choice of a model, and the model's card. */

import { html } from "htm/preact";
import { channelsOf, pastOf } from "./covariates.js";
import { INNER, reachOf } from "./request.js";
import { choose, model, models } from "./store.js";
import { counted, digits, frequencyWords, listed, percent, stretch } from "./words.js";

const roomy = matchMedia("(min-width: 1000px)");
const LISTED = 12;
const BASELINES = { last_value: "last value", seasonal_naive: "last season" };

/** Panel with the choice of a model and its card. */
export function Card() {
  const card = model.value;
  return html`<section class="panel" aria-labelledby="card-title">
    <h2 id="card-title" class="quietly">Model card</h2>
    <${ModelChoice} />
    ${card ? html`<${Facts} card=${card} />` : html`<p class="muted">The server has no models.</p>`}
  </section>`;
}

/** Loads a model; if that fails, the select shows the earlier one again. */
const selected = (reference, shown) => async (event) => {
  const select = event.currentTarget;
  await choose(reference(select.value));
  select.value = model.value[shown];
};

/**
 * Choice of a model and, unless `named` is set, of its version.
 * @param {{named?: boolean}} props
 */
export function ModelChoice({ named = false }) {
  const card = model.value;
  return html`<div class="row choices">
    <label class="grow">
      Model
      <select value=${card?.name} onChange=${selected((name) => name, "name")}>
        ${models.value.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    ${!named &&
    card?.versions.length > 1 &&
    html`<label>
      Version
      <select
        value=${card.version}
        onChange=${selected((version) => `${card.name}@${version}`, "version")}
      >
        ${card.versions.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>`}
  </div>`;
}

function Facts({ card }) {
  const { test, verdict } = card;
  const few = card.targets.length < card.channels.length;
  const channels = channelsOf(card);
  const covariates = [
    ...pastOf(card).map((one) => ["past", one]),
    ...card.covariates.future.map((one) => ["future", one]),
    ...card.covariates.static.map((one) => ["static", one]),
  ];
  return html`
    <p class="lead">
      Reads ${stretch(card.context, card.frequency)} of ${counted(channels.length, "channel")}${covariates.length
        ? ` and ${counted(covariates.length, "covariate")}`
        : ""},
      ${" "}${frequencyWords(card.frequency)}; forecasts ${stretch(card.horizon, card.frequency)}${few
        ? ` of ${listed(card.targets)}`
        : ""}.
    </p>
    ${verdict && html`<${Verdict} test=${test} text=${verdict} />`}
    <details open=${roomy.matches}>
      <summary>Details</summary>
      ${test ? html`<${Accuracy} test=${test} />` : html`<p class="hint">The export did not measure its accuracy.</p>`}
      <dl>
        <dt>Intervals</dt>
        <dd><${Coverage} card=${card} /></dd>
        <dt>Verified</dt>
        <dd>${verified(card)}</dd>
        <dt>Longest horizon</dt>
        <dd>${stretch(card.max_horizon, card.frequency)}</dd>
        <dt>Times</dt>
        <dd>${card.needs_timestamps ? "required: the model reads the calendar" : "optional"}</dd>
        <dt>Runs on</dt>
        <dd>${card.provider.replace("ExecutionProvider", "")}</dd>
        <dt>Parameters</dt>
        <dd>${card.parameters.toLocaleString("en")}, ${card.architecture}</dd>
        <dt>Version</dt>
        <dd>${card.version}</dd>
        <dt>Channels</dt>
        <dd>
          ${channels.slice(0, LISTED).map(
            (name) =>
              html`<div>
                ${name}${few && card.targets.includes(name) && " (forecast)"}
                ${card.bounds[name] &&
                html`<span class="muted"> ${limits(card.bounds[name])}</span>`}
              </div>`,
          )}
          ${channels.length > LISTED && `and ${channels.length - LISTED} more`}
        </dd>
        ${covariates.length > 0 &&
        html`<dt>Covariates</dt>
          <dd>
            ${covariates.map(
              ([kind, { name, type }]) =>
                html`<div key=${name}>${name}<span class="muted"> ${kind}, ${type}</span></div>`,
            )}
          </dd>`}
      </dl>
    </details>
  `;
}

const limits = ({ low, high }) =>
  low === null ? `up to ${high}` : high === null ? `from ${low}` : `${low} to ${high}`;

const baselinesOf = (test) => Object.keys(BASELINES).filter((name) => test[name]);

function Verdict({ test, text }) {
  const worse = baselinesOf(test).some((name) => test[name].mae < test.model.mae);
  const words = text.replace(/ \([^)]*\)/g, "");
  return html`<p class="verdict">
    <span class=${worse ? "bad" : "good"} aria-hidden="true">${worse ? "▼" : "▲"}</span> ${" "}
    ${words[0].toUpperCase()}${words.slice(1)}.
  </p>`;
}

function Accuracy({ test }) {
  const rows = [
    ["this model", test.model],
    ...baselinesOf(test).map((name) => [BASELINES[name], test[name]]),
  ];
  const best = (error) => Math.min(...rows.map(([, errors]) => errors[error]));
  return html`<table>
    <caption>
      Errors in ${counted(test.windows, "test window")}, in standard deviations
    </caption>
    <thead>
      <tr><td></td><th scope="col">MSE</th><th scope="col">MAE</th></tr>
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
  </table>`;
}

function Coverage({ card }) {
  if (!card.quantiles) return card.calibration_missing ?? "none";
  if (!card.calibration) return "quantiles of the model";
  const first = card.calibration.coverage.filter(({ first_step: step }) => step === 1);
  return html`
    ${first.map(
      ({ level, coverage }) =>
        html`<div>${percent(level)} covers ${percent(coverage)} of the test data: ${" "}<${CoverageWords} level=${level} share=${coverage} /></div>`,
    )}
    <div>for up to ${stretch(reachOf(card), card.frequency)}</div>
  `;
}

/** The coverage of an interval, compared with its level. */
function CoverageWords({ level, share }) {
  const over = share - level;
  if (Math.abs(over) <= 0.02) return html`<span class="good">as expected</span>`;
  const size = Math.abs(over) <= 0.05 ? "a little" : "too";
  return html`<span class=${over < -0.05 ? "bad" : ""}>${size} ${over < 0 ? "narrow" : "wide"}</span>`;
}

function verified({ verification: { checks, reference } }) {
  const errors = checks.filter(({ tolerance }) => tolerance < 0.1).map(({ max_error: error }) => error);
  if (!errors.length) return `against ${reference}`;
  return `${counted(checks.length, "check")} against ${reference}, largest error ${Math.max(...errors).toExponential(1)}`;
}

/**
 * The levels of the intervals that a chart draws, in words.
 * @param {number} level
 */
export const bandWords = (level) =>
  level > INNER ? `${INNER * 100} and ${percent(level)}` : percent(level);
