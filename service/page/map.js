/** A stage's attention map, and the history with marks for the weights of one query. */

import { useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import Chart from "./chart.js";
import { marksOf, matrixOf, received, strongest } from "./evidence.js";
import { Heatmap, Scale } from "./heatmap.js";
import { reader } from "./positions.js";
import { secondsOf } from "./time.js";
import { counted, percent } from "./words.js";

const LISTED = 20;

/**
 * @param {object} props
 * @param {import("./evidence.js").Stage} props.evidence with a map
 * @param {object} props.content the forecast
 * @param {object} props.card
 * @param {import("./store.js").Source} props.data
 * @param {{first: number, rows: number, times: string[], placeOf: ReturnType<import("./evidence.js").placing>}} props.places
 *   of the window that was sent
 */
export function AttentionMap({ evidence, content, card, data, places }) {
  const channel = useSignal(0);
  const channels = evidence.channels ?? card.channels;
  const matrix = useMemo(
    () => matrixOf(evidence, { channel: channel.value }),
    [evidence, channel.value],
  );
  const about = { ...places, channels: card.channels, frequency: card.frequency };
  const [query, key] = useMemo(
    () => [matrix.rows, matrix.columns].map((labels) => reader(labels, about)),
    [matrix],
  );
  const summary = useMemo(() => summaryOf(matrix, query, key), [matrix]);
  const ahead = useMemo(
    () => matrix.rows.findIndex((label) => (query.place(label)?.[1] ?? -1) >= places.rows),
    [matrix],
  );
  // At first the largest weight of the forecast's rows; a circulant map's rows are alike: the last.
  const from = evidence.form === "circulant" ? matrix.rows.length - 1 : ahead;
  const at = useSignal(strongest(matrix, 1, from)[0] ?? null);
  const names = namesOf(matrix, query, key, at.value) ?? [channels[channel.value]];
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Attention of each ${query.kind}</h2>
      ${
        query.kind !== "channel" &&
        html`<${Channel} of=${channels} shown=${channel} />`
      }
    </div>
    <p class="summary">${summary}</p>
    <${Heatmap}
      matrix=${matrix}
      titles=${[`query ${query.kind}`, `key ${key.kind}`]}
      rowText=${(row) => query.short(matrix.rows[row])}
      columnText=${(column) => key.short(matrix.columns[column])}
      summary=${summary}
      ahead=${ahead > 0 ? ahead : null}
      at=${at.value}
      onMove=${(place) => {
        at.value = place;
      }}
    />
    <div class="row spread">
      <output class="pointed">${readout(matrix, query, key, at.value)}</output>
      <${Scale} largest=${percent(matrix.largest)} />
    </div>
    ${names.map(
      (name) =>
        html`<${History}
          key=${name}
          ...${{ content, card, data, places, name, matrix, query, columns: key }}
          row=${at.value?.row ?? null}
        />`,
    )}
    <${Table} matrix=${matrix} query=${query} reading=${key} />
  </section>`;
}

function Channel({ of, shown }) {
  if (of.length < 2) return null;
  return html`<label class="inline">
    Channel
    <select
      value=${shown.value}
      onChange=${(event) => {
        shown.value = Number(event.currentTarget.value);
      }}
    >
      ${of.map((name, place) => html`<option key=${name} value=${place}>${name}</option>`)}
    </select>
  </label>`;
}

/** A summary of the whole map. */
function summaryOf(matrix, query, key) {
  const [top] = strongest(matrix, 1);
  if (!top) return "All weights are zero.";
  const means = received(matrix);
  const most = means.indexOf(Math.max(...means));
  const sentences = [
    `${counted(matrix.rows.length, `query ${query.kind}`)}, ${counted(matrix.columns.length, `key ${key.kind}`)}.`,
    `The largest weight is ${percent(top.weight)}: ${query.long(matrix.rows[top.row])} attends to ${key.long(matrix.columns[top.column])}.`,
  ];
  // The largest mean says nothing if all means are about equal.
  if (means[most] * matrix.columns.length > 1.5) {
    sentences.push(
      `The largest mean weight is ${percent(means[most])}: ${key.long(matrix.columns[most])}.`,
    );
  }
  if (matrix.elsewhere > 0.005) {
    sentences.push(`${percent(matrix.elsewhere)} of the weight is on padding.`);
  }
  return sentences.join(" ");
}

function readout(matrix, query, key, at) {
  if (!at) return `Point at the map, or move through it with the arrow keys.`;
  const weight = matrix.values[at.row * matrix.columns.length + at.column];
  return `${query.long(matrix.rows[at.row])} → ${key.long(matrix.columns[at.column])}: ${percent(weight)}`;
}

/** Channels at the cursor of a map of channels; null for other maps. */
function namesOf(matrix, query, key, at) {
  if (query.kind !== "channel" || key.kind !== "channel") return null;
  return at ? [...new Set([matrix.rows[at.row], matrix.columns[at.column]])] : [];
}

/** A channel's history and forecast, with marks for the weights of the query at the cursor. */
function History({ content, card, data, places, name, matrix, query, columns, row }) {
  const drawn = useMemo(() => linesOf(content, card, data, places, name), [content, name]);
  const { x } = drawn;
  const marks = useMemo(() => {
    const found = row === null ? [] : marksOf(matrix, row, columns.place);
    // A mark is as wide as its steps.
    const half = (x[1] - x[0]) / 2;
    return found.map(([from, to, weight]) => [x[from] - half, x[to] + half, weight]);
  }, [matrix, row, x]);
  const lines = useMemo(() => {
    const place = row === null ? null : query.place(matrix.rows[row]);
    return place ? [{ x: x[place[0]], label: "query" }] : [];
  }, [matrix, row, x]);
  return html`<${Chart}
    ...${drawn}
    lines=${lines}
    marks=${marks}
    height=${160}
    label=${`${name}, history and forecast`}
    summary=${
      marks.length
        ? "Keys are marked; darker means a larger weight."
        : "Nothing is marked."
    }
  />`;
}

function linesOf(content, card, data, { first, rows, times }, name) {
  const column = data.channels.indexOf(name);
  const target = card.targets.indexOf(name);
  const past = data.values.slice(first, first + rows).map((row) => row[column] ?? null);
  const ahead = content.mean_forecast.map((row) =>
    target < 0 ? null : Array.isArray(row) ? row[target] : row,
  );
  const time = times.length === rows + ahead.length;
  const nothing = (values) => values.map(() => null);
  return {
    x: time ? secondsOf(times) : [...past, ...ahead].map((_, step) => step - rows),
    time,
    series: [
      { label: name, values: [...past, ...nothing(ahead)], kind: "history" },
      // From the last known row on, so that the line does not break.
      {
        label: "forecast",
        values: [...nothing(past.slice(1)), past.at(-1), ...ahead],
        kind: "forecast",
      },
    ],
  };
}

function Table({ matrix, query, reading: key }) {
  const entries = useMemo(() => strongest(matrix, LISTED), [matrix]);
  return html`<details>
    <summary>The largest weights as a table</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="The largest weights">
      <table>
        <caption>
          The ${entries.length} largest weights
        </caption>
        <thead>
          <tr>
            <th scope="col">Query ${query.kind}</th>
            <th scope="col">Key</th>
            <th scope="col">Weight</th>
          </tr>
        </thead>
        <tbody>
          ${entries.map(
            ({ row, column, weight }) =>
              html`<tr key=${`${row} ${column}`}>
                <th scope="row">${query.long(matrix.rows[row])}</th>
                <td>${key.long(matrix.columns[column])}</td>
                <td>${percent(weight)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}
