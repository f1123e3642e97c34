/** Errors of models and baselines by step ahead. */

import { useMemo } from "preact/hooks";
import { html } from "htm/preact";
import Chart from "./chart.js";
import { Numbers } from "./numbers.js";
import { Swatch, lineOf } from "./overlay.js";
import { digits } from "./words.js";

const BASELINES = [
  { name: "last value", key: "last_value", dash: [1, 4] },
  { name: "last season", key: "seasonal_naive", dash: [1, 8] },
];

/**
 * @param {object} props
 * @param {{name: string, place: number}[]} props.lines the models
 * @param {object[]} props.results contents of answers of `POST /backtest`, one for each model
 * @param {string} props.channel
 */
export function Steps({ lines, results, channel }) {
  const { series, shown, ...chart } = useMemo(
    () => drawn(lines, results, channel),
    [channel, ...results],
  );
  const of = `MAE of ${channel} by step ahead`;
  return html`
    <ul class="legend" aria-label="Legend">
      ${shown.map(
        ({ name, place, dash }) =>
          html`<li key=${name}>
            <${Swatch} place=${place} dash=${dash} /> ${name}${dash && ", all steps"}
          </li>`,
      )}
    </ul>
    <${Chart} ...${chart} series=${series} height=${200} label=${of} />
    <${Numbers}
      of=${of}
      made=${() => ({ first: "Step", rows: chart.x.map(String), columns: series })}
    />
  `;
}

function drawn(lines, results, channel) {
  const found = results.map((one) => one.channels.find(({ name }) => name === channel));
  const first = found.find(Boolean);
  const models = lines.filter((_, at) => found[at]);
  const baselines = BASELINES.filter(({ key }) => first[key]);
  const x = first.steps.mae.map((_, step) => step + 1);
  const errors = models.map(({ name, place }) => ({
    label: name,
    values: found[lines.findIndex((line) => line.name === name)].steps.mae,
    ...lineOf(place),
  }));
  const texts = errors.map(
    ({ label, values }) =>
      `${label} ${digits(values[0])} at step 1, ${digits(values.at(-1))} at the last`,
  );
  const flat = baselines.map(({ name, key, dash }) => ({
    label: name,
    values: x.map(() => first[key].mae),
    colour: "--muted",
    dash,
    width: 1.5,
  }));
  return {
    x,
    time: false,
    series: [...errors, ...flat],
    shown: [...models, ...baselines],
    summary: `${texts.join("; ")}.`,
  };
}
