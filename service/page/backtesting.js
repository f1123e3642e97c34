/** Backtests of several models on the same rows. */

import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { useAnswers } from "./answers.js";
import {
  METRICS,
  SHARE,
  backtestOf,
  commonRowsAfter,
  inPlace,
  originsIn,
  overall,
  rowsFor,
  spanOf,
  tableOf,
} from "./backtests.js";
import { ModelError, Swatch } from "./overlay.js";
import { Steps } from "./steps.js";
import { options } from "./store.js";
import { secondsOf, timeWords } from "./time.js";
import { counted, digits, percent } from "./words.js";

// Origins at first; the field Origins changes it.
const ORIGINS = 32;

/**
 * @param {object} props
 * @param {{name: string, place: number, card: object}[]} props.lines the models
 * @param {import("./store.js").Source} props.data
 * @param {number} props.horizon of each forecast
 */
export function Backtests({ lines, data, horizon }) {
  const cards = lines.map(({ card }) => card);
  const rows = data.values.length;
  const most = originsIn(rows, cards, horizon);
  const wanted = useSignal(ORIGINS);
  const { missing } = options.value;
  const origins = Math.min(wanted.value, most);
  const after = commonRowsAfter(cards, horizon);
  const how = { horizon, origins, after };
  const bodyOf = (card) => backtestOf(data, card, { ...how, missing });
  const answers = useAnswers("/backtest", lines, most ? bodyOf : null, [
    data,
    horizon,
    origins,
    after,
    missing,
  ]);
  const shown = lines.filter(({ name }) => answers[name]?.content);
  const [first] = shown;
  const ready = first !== undefined;
  const sent = ready && spanOf(data, first.card, how).first;
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Backtest</h2>
      ${most > 1 && html`<${Origins} wanted=${wanted} most=${most} />`}
    </div>
    ${
      most === 0
        ? html`<p>
            Too few rows: a backtest takes at least ${rowsFor(cards, horizon)}, the context and
            ${` ${counted(after, "step")} after it, and there are ${rows}. `}
            <a href="#/forecast">Open a longer CSV</a> or choose a shorter horizon.
          </p>`
        : html`<p class="muted">
            Forecasts from ${counted(origins, "origin")}, ${counted(horizon, "step")} apart, each
            from the rows before it
            only${ready && `: ${period(first, answers[first.name], sent)}`}.
            ${origins < 8 && " Few origins give uncertain errors."} Errors on rows that a model was
            trained on are too small.
          </p>`
    }
    ${lines.map(
      ({ name, card }) =>
        answers[name]?.error &&
        html`<${ModelError}
          name=${name}
          message=${inPlace(answers[name].error, data, card, spanOf(data, card, how))}
        />`,
    )}
    ${most > 0 && shown.length < lines.length && html`<p class="hint" role="status">Loading …</p>`}
    ${ready && html`<${Results} shown=${shown} answers=${answers} />`}
  </section>`;
}

/** First and last origin as times, or as rows of the source. */
function period({ card }, { content }, sent) {
  const [from, to] = [content.first_origin, content.last_origin].map((origin) =>
    typeof origin === "string"
      ? timeWords(secondsOf([origin])[0], card.frequency)
      : `row ${sent + origin + 1}`,
  );
  return from === to ? `at ${from}` : `from ${from} to ${to}`;
}

function Origins({ wanted, most }) {
  return html`<label class="inline">
    Origins
    <input
      type="number"
      min="1"
      max=${most}
      value=${Math.min(wanted.value, most)}
      onChange=${(event) => {
        wanted.value = Math.max(1, Math.round(Number(event.currentTarget.value)) || 1);
      }}
    />
    of ${most}
  </label>`;
}

function Results({ shown, answers }) {
  const metric = useSignal("mae");
  const results = shown.map(({ name }) => answers[name].content);
  const { baselines, rows } = tableOf(results, metric.value);
  const channel = useSignal(null);
  const chosen = rows.some((row) => row.channel === channel.value)
    ? channel.value
    : rows[0].channel;
  const calibrated = results.some((one) => one.channels[0].intervals);
  return html`
    <div class="row">
      <label class="inline">
        Metric
        <select
          value=${metric.value}
          onChange=${(event) => {
            metric.value = event.currentTarget.value;
          }}
        >
          ${Object.entries(METRICS)
            .filter(([, { coverage }]) => calibrated || !coverage)
            .map(([name, { title }]) => html`<option key=${name} value=${name}>${title}</option>`)}
        </select>
      </label>
    </div>
    <${Table} ...${{ shown, results, baselines, rows }} metric=${metric.value} />
    <div class="row">
      <label class="inline">
        Errors per step of
        <select
          value=${chosen}
          onChange=${(event) => {
            channel.value = event.currentTarget.value;
          }}
        >
          ${rows.map(({ channel: name }) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </label>
    </div>
    <${Steps} lines=${shown} results=${results} channel=${chosen} />
  `;
}

function Table({ shown, results, baselines, rows, metric }) {
  const { title, coverage } = METRICS[metric];
  const text = coverage ? percent : digits;
  const totals = results.map((result) => overall(result, metric));
  const season = (channel) => channel.seasonal_naive;
  if (baselines.length) totals.push(1);
  const seasonal = results.find(({ channels }) => channels.some(season));
  if (baselines.length > 1) totals.push(overall(seasonal, metric, season));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Errors by channel">
    <table>
      <caption>
        ${title} by
        channel${coverage ? `; the nearest to ${percent(SHARE)} is the best` : ", in its unit"}
      </caption>
      <thead>
        <tr>
          <th scope="col">Channel</th>
          ${shown.map(
            ({ name, place }) =>
              html`<th scope="col" key=${name}><${Swatch} place=${place} /> ${name}</th>`,
          )}
          ${baselines.map((name) => html`<th scope="col" key=${name}>${name}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ({ channel, values, best }) =>
            html`<tr key=${channel}>
              <th scope="row">${channel}</th>
              ${values.map(
                (value, place) =>
                  html`<td class=${place === best ? "winner" : ""}>
                    ${place === best && html`<span class="badge">best</span>`} ${text(value)}
                  </td>`,
              )}
            </tr>`,
        )}
      </tbody>
      ${
        totals.some((total) => total !== null) &&
        html`<tfoot>
          <tr>
            <th scope="row">All channels, relative to the last value</th>
            ${totals.map((total) => html`<td>${percent(total)}</td>`)}
          </tr>
        </tfoot>`
      }
    </table>
  </div>`;
}
