/** Options of a forecast: horizon, intervals, rows held back, importance; and the button. */

import { html } from "htm/preact";
import { bandWords } from "./card.js";
import { refusal, send, span } from "./data.js";
import { placeOf, reachOf, shareOf } from "./request.js";
import { model, options, problem, set, source } from "./store.js";
import { stretch } from "./words.js";

/** The bar above the charts. */
export function Controls() {
  const room = source.value.values.length - model.value.context;
  return html`<section class="panel controls" aria-label="Options">
    <${Horizon} />
    <${Level} />
    ${room > 0 && html`<${HoldBack} room=${room} />`}
    <div class="send">
      <button class="primary" onClick=${send} disabled=${refusal.value !== null}>
        Forecast
      </button>
      ${refusal.value && html`<p class="bad" role="status">Cannot forecast: ${refusal.value}.</p>`}
      <${Importance} />
    </div>
  </section>`;
}

/** The API's error about an option, if any. */
function optionError(field) {
  const error = problem.value;
  const place = error && placeOf(error.param, source.value, model.value, span.value);
  return place?.field === field
    ? html`<p class="bad" role="alert" id=${`${field}-error`}>${error.message}</p>`
    : null;
}

function Horizon() {
  const { horizon, max_horizon: most, frequency } = model.value;
  const steps = options.value.horizon ?? horizon;
  const error = optionError("horizon");
  return html`<div class="field">
    <div class="row spread">
      <label for="horizon">Horizon</label><strong>${stretch(steps, frequency)}</strong>
    </div>
    <input
      type="range"
      id="horizon"
      min="1"
      max=${most}
      value=${steps}
      list="rolled"
      aria-valuetext=${stretch(steps, frequency)}
      aria-describedby="horizon-hint"
      onInput=${(event) => set({ horizon: Number(event.target.value) })}
    />
    <datalist id="rolled"><option value=${horizon}></option></datalist>
    <p class="hint" id="horizon-hint">
      ${most === horizon
        ? `At most ${horizon} steps.`
        : steps > horizon
          ? `Steps from ${horizon + 1} on are forecast from earlier forecasts.`
          : `Up to ${horizon} steps in one pass; up to ${most} from earlier forecasts.`}
    </p>
    ${error}
  </div>`;
}

function Level() {
  const card = model.value;
  const { level } = options.value;
  const horizon = options.value.horizon ?? card.horizon;
  const none = !card.quantiles
    ? `No intervals: ${card.calibration_missing ?? "this model was not calibrated"}.`
    : reachOf(card) < horizon
      ? `No intervals: they exist for up to ${reachOf(card)} steps.`
      : null;
  const widest = shareOf(0.99, card) ?? 0.99;
  const share = Math.round(Math.min(level ?? 0.95, widest) * 100);
  return html`<div class="field">
    <div class="row spread">
      <label for="interval">Interval</label>
      <strong>${none || level === null ? "none" : bandWords(share / 100)}</strong>
    </div>
    <input
      type="range"
      id="interval"
      min=${Math.min(50, Math.round(100 * widest))}
      max=${Math.round(100 * widest)}
      value=${share}
      disabled=${none !== null || level === null}
      aria-valuetext=${`${share}%`}
      onInput=${(event) => set({ level: Number(event.target.value) / 100 })}
    />
    ${none
      ? html`<p class="hint">${none}</p>`
      : html`<label class="inline hint">
          <input
            type="checkbox"
            checked=${level !== null}
            onChange=${(event) => set({ level: event.target.checked ? 0.95 : null })}
          />
          Show intervals
        </label>`}
    ${optionError("quantiles")}
  </div>`;
}

function Importance() {
  return html`<div class="field">
    <label class="inline">
      <input
        type="checkbox"
        checked=${options.value.importance}
        aria-describedby="importance-hint"
        onChange=${(event) => set({ importance: event.target.checked })}
      />
      Importance of each input
    </label>
    <p class="hint" id="importance-hint">Takes a forecast or more for each input.</p>
    ${optionError("importance")}
  </div>`;
}

function HoldBack({ room }) {
  const { holdBack, horizon } = options.value;
  const change = (rows) => set({ holdBack: Math.max(0, Math.min(room, rows || 0)) });
  return html`<div class="field">
    <label>
      Hold back the last rows
      <input
        type="number"
        min="0"
        max=${room}
        value=${holdBack}
        onChange=${(event) => change(event.target.valueAsNumber)}
      />
    </label>
    <p class="hint">
      The chart then compares the forecast with them.
      ${!holdBack &&
      html` <button class="link" onClick=${() => change(horizon ?? model.value.horizon)}>
        The last ${Math.min(room, horizon ?? model.value.horizon)}
      </button>`}
    </p>
  </div>`;
}
