/** Rates and latency of the server now, with their course over the last minutes. */

import { useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { ApiError, get } from "./api.js";
import { usePolling } from "./polling.js";
import { STAGES, between, ofMetrics, ofStatistics, times } from "./readings.js";
import { counted, percent } from "./words.js";

const SECONDS = 2;
// Five minutes.
const KEPT = 150;
// Current rates are those of the last ten seconds.
const RECENT = 6;
const [WIDTH, HEIGHT] = [160, 36];
const NO_METRICS =
  "This port has no /metrics: FORETELL_OPERATIONS_PORT moves them to another port. These numbers " +
  "come from /v2/models/stats, which has means but no queues and quantiles.";

/** Reads the server's counters while the view is open. */
export function Live() {
  const [readings, changes, failure] = [useSignal([]), useSignal([]), useSignal(null)];
  const metrics = useRef(true);
  const latest = readings.value.at(-1);
  usePolling(async () => {
    try {
      const reading = await read(metrics);
      readings.value = [...readings.value, reading].slice(-RECENT);
      if (readings.value.length > 1) {
        const change = between(readings.value[0], reading);
        changes.value = [...changes.value, change].slice(-KEPT);
      }
      failure.value = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      failure.value = error;
    }
  }, SECONDS);
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Live</h2>
      <p class="hint">every ${SECONDS} seconds while this view is open</p>
    </div>
    ${failure.value && html`<p class="error" role="alert">${failure.value.message}</p>`}
    ${latest && !latest.detailed && html`<p class="note">${NO_METRICS}</p>`}
    ${latest && html`<${Numbers} changes=${changes.value} reading=${latest} />`}
  </section>`;
}

/** The metrics; if this port has none, the statistics from then on. */
async function read(metrics) {
  const at = performance.now() / 1000;
  if (metrics.current) {
    try {
      return ofMetrics(await get("/metrics"), at);
    } catch (error) {
      if (error.status !== 404) throw error;
      metrics.current = false;
    }
  }
  return ofStatistics(await get("/v2/models/stats"), at);
}

const short = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));
const milliseconds = (value) => (value === null ? "–" : `${short(value)} ms`);

function Numbers({ changes, reading }) {
  const { detailed, queued, inFlight, memory, loads } = reading;
  const now = changes.at(-1);
  const tiles = [
    ["Requests", (change) => change.requests, (value) => `${short(value)} /s`],
    ["Errors", (change) => change.errors, (value) => `${short(value)} /s`],
    detailed
      ? ["Latency, median", (change) => change.latency.p50, milliseconds]
      : ["Latency, mean", (change) => change.latency.mean, milliseconds],
    detailed && ["Latency, p99", (change) => change.latency.p99, milliseconds],
    detailed
      ? ["Batch fill", (change) => change.fill, percent]
      : ["Windows per batch", (change) => change.fill, short],
    detailed && ["Windows waiting", (change) => change.queued, () => String(queued)],
    detailed && ["Requests in flight", (change) => change.inFlight, () => String(inFlight)],
  ].filter(Boolean);
  const totals = [
    counted(reading.requests, "request"),
    counted(reading.errors, "error"),
    ...Object.entries(loads).map(([outcome, number]) => `${counted(number, "model")} ${outcome}`),
  ];
  if (memory) totals.push(`${short(memory / 2 ** 20)} MiB of memory`);
  return html`
    <dl class="tiles">
      ${tiles.map(([name, pick, text]) => {
        const values = changes.map(pick);
        return html`<div key=${name}>
          <dt>${name}</dt>
          <dd>${now ? text(values.at(-1)) : "–"}</dd>
          <dd class="line"><${Sparkline} values=${values} most=${KEPT} /></dd>
        </div>`;
      })}
    </dl>
    <${Stages} reading=${reading} now=${now} />
    <p class="hint">
      ${`Since the server started: ${totals.join(", ")}. Requests of this view are not counted.`}
    </p>
  `;
}

function Stages({ reading, now }) {
  const rows = STAGES.filter((name) => name in reading.stages);
  const columns = reading.detailed
    ? [
        ["Median", "p50"],
        ["p99", "p99"],
        ["Mean", "mean"],
      ]
    : [["Mean", "mean"]];
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Latency by stage">
    <table>
      <caption>
        Latency by stage: in the last ${(RECENT - 1) * SECONDS} seconds, and since the server started
      </caption>
      <thead>
        <tr>
          <th scope="col">Stage</th>
          ${columns.map(([title]) => html`<th scope="col">${title} now</th>`)}
          ${columns.map(([title]) => html`<th scope="col">${title} in total</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((name) => {
          const all = times(reading.stages[name]);
          return html`<tr key=${name}>
            <th scope="row">${name}</th>
            ${columns.map(([, key]) => html`<td>${milliseconds(now?.stages[name][key] ?? null)}</td>`)}
            ${columns.map(([, key]) => html`<td>${milliseconds(all[key])}</td>`)}
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

/** A line without axes; null breaks it. */
function Sparkline({ values, most }) {
  const top = Math.max(...values.map((value) => value ?? 0), 1e-9);
  const x = (place) => ((most - values.length + place) / (most - 1)) * WIDTH;
  const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 3);
  let drawing = false;
  const path = values.map((value, place) => {
    const command = drawing ? "L" : "M";
    drawing = value !== null;
    return drawing ? `${command}${x(place).toFixed(1)} ${y(value).toFixed(1)}` : "";
  });
  return html`<svg
    class="sparkline"
    viewBox=${`0 0 ${WIDTH} ${HEIGHT}`}
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    <path d=${path.join("")} />
  </svg>`;
}
