/** Errors by step of the horizon, beside those of repeating the last season. */

import { useMemo } from "preact/hooks";
import { html } from "htm/preact";
import Chart from "./chart.js";
import { Numbers } from "./numbers.js";
import { Swatch, lineOf } from "./overlay.js";
import { digits } from "./words.js";

const NAIVE = { label: "last season", dash: [1, 8] };

/**
 * @param {object} props
 * @param {import("./scores.js").Row[]} props.rows by step
 * @param {{name: string, place: number}[]} props.versions
 * @param {string} props.channel
 */
export function Ahead({ rows, versions, channel }) {
  const chart = useMemo(() => drawn(rows, versions), [rows]);
  const of = `Mean absolute error of ${channel} by step ahead`;
  return html`
    <ul class="legend" aria-label="Legend">
      ${chart.series.map(
        ({ label, place, dash }) =>
          html`<li key=${label}><${Swatch} place=${place} dash=${dash} /> ${label}</li>`,
      )}
    </ul>
    <${Chart} ...${chart} label=${of} />
    <${Numbers}
      of=${of}
      made=${() => ({ first: "Step", rows: chart.x.map(String), columns: chart.series })}
    />
  `;
}

/** The errors of each version, and the naive ones of the version with the most values. */
function drawn(rows, versions) {
  const x = [...new Set(rows.map(({ step }) => step))].sort((one, other) => one - other);
  const of = (version) => new Map(rows.filter((row) => row.version === version).map((row) => [row.step, row]));
  const found = versions.map(({ name, place }) => ({ name, place, steps: of(name) }));
  const sizeOf = ({ steps }) => [...steps.values()].reduce((sum, { count }) => sum + count, 0);
  const largest = found.reduce((best, one) => (sizeOf(one) > sizeOf(best) ? one : best));
  const errors = found.map(({ name, place, steps }) => ({
    label: `version ${name}`,
    values: x.map((step) => steps.get(step)?.mae ?? null),
    place,
    ...lineOf(place),
  }));
  const naive = x.map((step) => largest.steps.get(step)?.naive_mae ?? null);
  const texts = errors.map(
    ({ label, values }) =>
      `${label} ${digits(values[0])} at step 1, ${digits(values.at(-1))} at the last`,
  );
  return {
    x,
    time: false,
    series: [
      ...errors,
      { ...NAIVE, values: naive, colour: "--muted", width: 2 },
    ],
    summary: `${texts.join("; ")}; last season ${digits(naive[0])} and ${digits(naive.at(-1))}.`,
  };
}
