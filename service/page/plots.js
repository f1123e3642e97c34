/** The forecast: a chart and a table for each channel; all share cursor and zoom. */

import { useLayoutEffect, useMemo } from "preact/hooks";
import { effect } from "@preact/signals";
import { html } from "htm/preact";
import Chart, { linked, stepBy, zoomBy } from "./chart.js";
import { Numbers } from "./numbers.js";
import { differenceWords, drawn, errorOf, panelsOf } from "./panels.js";
import { Tools } from "./picture.js";
import { answer, busy, options, requested, set } from "./store.js";
import { timeWords } from "./time.js";
import { digits, percent } from "./words.js";

/** Charts that are shown at first. */
const AT_ONCE = 12;
/** Cursor and zoom of all charts. */
export const group = linked();

/**
 * The visible charts and their legend, for a picture.
 * @returns {{charts: {name: string, canvas: HTMLCanvasElement}[], legend: string}}
 */
export function pictures() {
  const charts = [...group.charts].map(({ root, ctx }) => ({
    name: root.closest("figure").querySelector("h3").textContent,
    canvas: ctx.canvas,
  }));
  const { panels, scenarios } = panelsOf(answer.value, requested.value);
  const [{ intervals, actual }] = panels;
  const forecasts = scenarios.length ? [`${scenarios[0]}`, `${scenarios[1]} (dashed)`] : ["forecast"];
  const parts = ["history", ...forecasts, ...intervals.map(({ share }) => `${percent(share)} interval`)];
  return { charts, legend: [...parts, ...(actual ? ["actual (dotted)"] : [])].join(" · ") };
}

/** The last answer: warnings, choice of channels, charts and tables. */
export function Plots() {
  const made = answer.value;
  const all = useMemo(() => panelsOf(made, requested.value), [made]);
  const names = all.panels.map(({ channel }) => channel);
  const shown = options.value.channelsShown ?? names.slice(0, AT_ONCE);
  const panels = all.panels.filter(({ channel }) => shown.includes(channel));
  group.home = all.home;

  // Measure after the frame that draws the charts.
  useLayoutEffect(() => {
    requestAnimationFrame(() =>
      setTimeout(() => {
        if (performance.getEntriesByName("answer").length) performance.measure("drawn", "answer");
        performance.clearMarks("answer");
      }),
    );
  }, [made]);

  const [forecast] = made.outputs[0].content;
  const press = (event) => {
    const action = KEYS[event.key];
    if (!action || event.target.closest("table, summary, button, input")) return;
    action();
    event.preventDefault();
  };
  return html`<section class="panel" aria-labelledby="plots-title" aria-busy=${busy.value}>
    <div class="row spread">
      <h2 id="plots-title">Forecast</h2>
      <${Tools} group=${group} />
    </div>
    ${(made.warnings ?? [])
      // The charts show the first rolled step.
      .filter(({ type }) => type !== "rolled")
      .map(({ message }) => html`<p class="note">${sentence(message)}</p>`)}
    ${forecast.ill_conditioned &&
    html`<p class="note">
      Rounding may decide what the model selects in this history: another machine may return another
      forecast.
    </p>`}
    ${names.length > 1 && html`<${Chips} names=${names} shown=${shown} />`}
    <${Legend} all=${all} />
    <div
      class=${`plots ${panels.length === 1 ? "one" : ""}`}
      role="group"
      tabindex="0"
      aria-label="Charts: left and right move the cursor, plus and minus zoom, 0 resets"
      onKeyDown=${press}
      onMouseLeave=${() => (group.at.value = null)}
    >
      ${panels.map(
        (panel) =>
          html`<${Plot} key=${panel.channel} all=${all} panel=${panel} one=${panels.length === 1} />`,
      )}
    </div>
    <${Announcement} all=${all} panels=${panels} />
  </section>`;
}

const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;
const sentence = (text) => `${capital(text)}${/[.?!]$/.test(text) ? "" : "."}`;

const reset = () => (group.zoom.value = null);
// Other data have other times.
effect(() => {
  if (answer.value === null) reset();
});
const KEYS = {
  ArrowLeft: () => stepBy(group, -1),
  ArrowRight: () => stepBy(group, 1),
  "+": () => zoomBy(group, 0.6),
  "=": () => zoomBy(group, 0.6),
  "-": () => zoomBy(group, 1 / 0.6),
  0: reset,
  Escape: () => (group.at.value = null),
};

function Chips({ names, shown }) {
  const show = (wanted) => set({ channelsShown: names.filter((name) => wanted.includes(name)) });
  const toggle = (name) =>
    show(shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name]);
  // If there are very many channels, a list has those that are off.
  const many = names.length > 2 * AT_ONCE;
  return html`<div class="row chips" role="group" aria-label="Channels">
    ${(many ? shown : names).map(
      (name) =>
        html`<button
          key=${name}
          class="chip"
          aria-pressed=${shown.includes(name)}
          onClick=${() => toggle(name)}
          onDblClick=${() => show([name])}
        >
          ${name}
        </button>`,
    )}
    ${many
      ? html`<select aria-label="Add a channel" onChange=${(event) => toggle(event.target.value)}>
          <option value="">Add a channel (${names.length})</option>
          ${names
            .filter((name) => !shown.includes(name))
            .map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>`
      : html`<button class="quiet" onClick=${() => show(names)}>All</button>`}
  </div>`;
}

function Legend({ all: { panels, scenarios } }) {
  const [{ intervals, actual }] = panels;
  return html`<ul class="legend" aria-label="Legend">
    <li><span class="key line"></span>history</li>
    <li>
      <span class="key line accent"></span>forecast${scenarios.length > 0 && `, ${scenarios[0]}`}
    </li>
    ${scenarios.length > 1 &&
    html`<li><span class="key line other"></span>forecast, ${scenarios[1]}</li>`}
    ${intervals.map(
      ({ share }, i) =>
        html`<li><span class=${`key band ${i ? "inner" : ""}`}></span>${percent(share)} interval</li>`,
    )}
    ${actual && html`<li><span class="key dots"></span>actual</li>`}
  </ul>`;
}

function Plot({ all, panel, one }) {
  const { series, bands } = useMemo(() => drawn(all, panel), [all, panel]);
  const lines = useMemo(() => {
    const start = { x: all.x[all.rows - 1], label: "" };
    if (all.rolledFrom === null) return [start];
    return [start, { x: all.x[all.rows + all.rolledFrom], label: "from earlier forecasts" }];
  }, [all]);
  const error = errorOf(panel);
  return html`<figure>
    <figcaption>
      <h3>${panel.channel}</h3>
      ${panel.other &&
      html`<span class="readout">${capital(differenceWords(panel.other))}</span>`}
      <${Readout} all=${all} panel=${panel} error=${error} />
    </figcaption>
    <${Chart}
      x=${all.x}
      time=${all.time}
      series=${series}
      bands=${bands}
      lines=${lines}
      height=${one ? 380 : 190}
      label=${panel.channel}
      summary=${panel.summary}
      group=${group}
    />
    <${Numbers} of=${panel.channel} made=${() => tableOf(all, panel)} range=${rangeOf(panel)} />
  </figure>`;
}

const rangeOf = ({ forecast }) => Math.max(...forecast) - Math.min(...forecast);

/** A panel's values at an index of the x axis, in words. */
function valuesAt(all, panel, place) {
  const step = place - all.rows;
  const text = (value) => digits(value, rangeOf(panel));
  if (step < 0) return text(panel.history[place]);
  const [widest] = panel.intervals;
  const interval = widest ? ` [${text(widest.low[step])}, ${text(widest.high[step])}]` : "";
  const actual = panel.actual?.[step];
  const known = actual === null || actual === undefined ? "" : `, actual ${text(actual)}`;
  const other = panel.other ? `, ${panel.other.name} ${text(panel.other.forecast[step])}` : "";
  return `forecast ${text(panel.forecast[step])}${interval}${other}${known}`;
}

const whenOf = (all, place) =>
  all.time ? timeWords(all.x[place], all.frequency) : `step ${place - all.rows + 1}`;

function Readout({ all, panel, error }) {
  const place = group.at.value === null ? -1 : all.x.indexOf(group.at.value);
  if (place >= 0) {
    return html`<span class="readout">
      ${whenOf(all, place)}: <strong>${valuesAt(all, panel, place)}</strong>
    </span>`;
  }
  if (!error) return null;
  const [widest] = error.coverage;
  return html`<span class="readout muted">
    <abbr title="mean absolute error">MAE</abbr> ${digits(error.mae)}${widest &&
    ` · ${widest.covered} of ${error.steps} in ${percent(widest.share)}`}
  </span>`;
}

/** The values at the cursor, for screen readers. */
function Announcement({ all, panels }) {
  const place = group.at.value === null ? -1 : all.x.indexOf(group.at.value);
  const text =
    place < 0
      ? ""
      : `${whenOf(all, place)}: ${panels
          .slice(0, 3)
          .map((panel) => `${panel.channel} ${valuesAt(all, panel, place)}`)
          .join("; ")}`;
  return html`<p class="quietly" aria-live="polite">${text}</p>`;
}

/** The numbers of a panel's chart. */
function tableOf(all, { forecast, intervals, other, actual }) {
  const ends = intervals.flatMap(({ share, low, high }) => [
    { label: `${percent(share)} from`, values: low },
    { label: `${percent(share)} to`, values: high },
  ]);
  return {
    first: "time",
    rows: forecast.map((_, step) => whenOf(all, all.rows + step)),
    columns: [
      { label: "forecast", values: forecast },
      ...ends,
      ...(other
        ? [
            { label: other.name, values: other.forecast },
            { label: "difference", values: other.difference },
          ]
        : []),
      ...(actual ? [{ label: "actual", values: actual }] : []),
    ],
  };
}
