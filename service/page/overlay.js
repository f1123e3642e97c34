/** Forecasts of several models in the same charts. */

import { useMemo, useState } from "preact/hooks";
import { html } from "htm/preact";
import { useAnswers } from "./answers.js";
import { inPlace } from "./backtests.js";
import { linked } from "./chart.js";
import { Picture, Pictures } from "./picture.js";
import { actualOf, requestOf, windowOf } from "./request.js";
import { options } from "./store.js";
import { readTime, secondsOf } from "./time.js";
import { counted, digits } from "./words.js";

// Lines differ without colours, too.
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [14, 4]];

/**
 * The line style of a model.
 * @param {number} place among the models
 */
export const lineOf = (place) => ({ colour: `--model-${place}`, dash: DASHES[place], width: 1.75 });

/**
 * A sample of a model's line, for legends.
 * @param {{place?: number, dash?: number[]}} props place among the models, or a baseline's dashes
 */
export function Swatch({ place, dash = DASHES[place] }) {
  return html`<svg
    class=${`swatch ${place === undefined ? "baseline" : `model-${place}`}`}
    width="30"
    height="8"
    aria-hidden="true"
  >
    <line x2="30" y1="4" y2="4" stroke-dasharray=${dash.join(" ")} />
  </svg>`;
}

/**
 * @param {object} props
 * @param {{name: string, place: number, card: object}[]} props.lines the models
 * @param {import("./store.js").Source} props.data
 * @param {number} props.horizon that all models can forecast
 */
export function Overlay({ lines, data, horizon }) {
  const { missing, holdBack } = options.value;
  const how = { horizon, level: null, missing, holdBack };
  const answers = useAnswers("/forecast", lines, (card) => requestOf(data, card, how), [
    data,
    horizon,
    missing,
    holdBack,
  ]);
  const [group] = useState(linked);
  const shown = lines.filter(({ name }) => answers[name]?.content);
  const channels = [...new Set(lines.flatMap(({ card }) => card.targets))];
  const count = shown.length;
  const pictures = useMemo(
    () => (count ? channels.map((channel) => pictureOf(channel, shown, answers, data, how)) : []),
    [answers, lines.map(({ name }) => name).join()],
  );
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Forecasts of ${counted(horizon, "step")}</h2>
      <p class="hint">${count < lines.length ? "Loading …" : ""}</p>
    </div>
    ${lines.map(
      ({ name, card }) =>
        answers[name]?.error &&
        html`<${ModelError}
          name=${name}
          message=${inPlace(answers[name].error, data, card, windowOf(data, card, how))}
        />`,
    )}
    <${Pictures} group=${group}>
      ${pictures.map(
        (picture) => html`<${Picture} key=${picture.label} picture=${picture} group=${group} />`,
      )}
    <//>
  </section>`;
}

/**
 * A model's error.
 * @param {{name: string, message: string}} props
 */
export const ModelError = ({ name, message }) =>
  html`<p class="error" role="alert">
    ${name}: ${message}. <a href="#/forecast">Fix the data</a>
  </p>`;

/** The props of a channel's chart. */
function pictureOf(channel, lines, answers, data, { horizon, holdBack }) {
  const end = data.values.length - holdBack;
  const longest = Math.max(...lines.map(({ card }) => card.context));
  const first = Math.max(0, end - Math.min(longest, Math.max(4 * horizon, 48)));
  const column = data.channels.indexOf(channel);
  const past = data.values.slice(first, end).map((row) => row[column]);
  const [{ name, card }] = lines;
  const future = answers[name].content.timestamps;
  const times = data.timestamps && future && [...data.timestamps.slice(first, end), ...future];
  const time = Boolean(times?.every((text) => readTime(text)));
  const before = past.slice(1).map(() => null);
  const known = actualOf(data, card, { holdBack });
  const target = card.targets.indexOf(channel);
  const series = [
    { label: "history", values: [...past, ...Array(horizon).fill(null)], kind: "history" },
  ];
  if (known && target >= 0) {
    const values = Array.from({ length: horizon }, (_, step) => known[step]?.[target] ?? null);
    series.push({ label: "actual", values: [null, ...before, ...values], kind: "actual" });
  }
  const ranges = [];
  for (const line of lines) {
    const at = line.card.targets.indexOf(channel);
    if (at < 0) continue;
    const steps = answers[line.name].content.mean_forecast;
    const values = steps.map((row) => (Array.isArray(row) ? row[at] : row));
    series.push({
      label: line.name,
      values: [...before, past.at(-1), ...values],
      ...lineOf(line.place),
    });
    const range = Math.max(...values) - Math.min(...values);
    const ends = [Math.min(...values), Math.max(...values)].map((value) => digits(value, range));
    ranges.push(`${line.name} ${ends.join(" to ")}`);
  }
  return {
    x: time ? secondsOf(times) : [...past, ...Array(horizon)].map((_, step) => step - past.length),
    time,
    series,
    from: past.length,
    frequency: card.frequency,
    label: channel,
    summary: `forecasts of ${counted(horizon, "step")}: ${ranges.join("; ")}.`,
  };
}
