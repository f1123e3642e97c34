/** The share of actual values inside the intervals, by week. */

import { useMemo } from "preact/hooks";
import { html } from "htm/preact";
import Chart from "./chart.js";
import { Numbers } from "./numbers.js";
import { Swatch, lineOf } from "./overlay.js";
import { levelIn, weeksOf } from "./scores.js";
import { counted, percent } from "./words.js";

const RANGE = [0, 100];
const DASH = [1, 8];
// Fewer weeks are no line.
const FEWEST = 2;

/**
 * @param {object} props
 * @param {import("./scores.js").Row[]} props.rows by day
 * @param {{name: string, place: number}[]} props.versions
 * @param {string} props.channel
 */
export function Weekly({ rows, versions, channel }) {
  const level = levelIn(rows);
  const chart = useMemo(() => (level ? drawn(rows, versions, level) : null), [rows, level]);
  if (!chart) {
    return html`<p class="muted">
      These forecasts have no intervals. Request <code>"quantiles": [0.1, 0.9]</code> with
      forecasts to see how often their intervals hold.
    </p>`;
  }
  const share = percent(Number(level));
  const of = `Share of the actual values of ${channel} inside the ${share} intervals by week`;
  return html`
    <ul class="legend" aria-label="Legend">
      ${chart.series.map(
        ({ label, place, dash }) =>
          html`<li key=${label}><${Swatch} place=${place} dash=${dash} /> ${label}</li>`,
      )}
    </ul>
    ${
      chart.x.length < FEWEST
        ? html`<p>${chart.summary}</p>`
        : html`<${Chart} ...${chart} label=${of} />`
    }
    <${Numbers}
      of=${of}
      range=${100}
      made=${() => ({ first: "Week from", rows: chart.weeks, columns: chart.columns })}
    />
  `;
}

function drawn(rows, versions, level) {
  const found = versions.map(({ name, place }) => ({
    label: `version ${name}`,
    place,
    weeks: new Map(
      weeksOf(
        rows.filter(({ version }) => version === name),
        level,
      ).map((week) => [week.monday, week]),
    ),
  }));
  const x = [...new Set(found.flatMap(({ weeks }) => [...weeks.keys()]))].sort((a, b) => a - b);
  const share = 100 * level;
  const lines = found.map(({ label, place, weeks }) => ({
    label,
    place,
    values: x.map((monday) => (weeks.has(monday) ? 100 * weeks.get(monday).share : null)),
    points: true,
    ...lineOf(place),
  }));
  const columns = found.flatMap(({ label, weeks }, at) => [
    { label: `${label}, %`, values: lines[at].values },
    { label: `${label}, values`, values: x.map((monday) => weeks.get(monday)?.count ?? null) },
  ]);
  const last = lines.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    return `${label} ${percent(known.at(-1) / 100)} in its last week`;
  });
  const wanted = { label: `wanted: ${percent(Number(level))}`, dash: DASH, colour: "--muted", width: 2 };
  return {
    x,
    time: true,
    range: RANGE,
    weeks: x.map((monday) => new Date(monday * 1000).toISOString().slice(0, 10)),
    columns,
    series: [...lines, { ...wanted, values: x.map(() => share) }],
    summary: `${counted(x.length, "week")}: ${last.join("; ")}.`,
  };
}
