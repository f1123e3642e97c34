/** A chart with its values at the cursor and its numbers; charts in one frame share keys. */

import { html } from "htm/preact";
import Chart, { stepBy, zoomBy } from "./chart.js";
import { Numbers } from "./numbers.js";
import { timeWords } from "./time.js";
import { digits } from "./words.js";

/**
 * A frame of pictures that can be reached and moved by keys.
 * @param {{group: import("./chart.js").Group, one?: boolean, children: unknown}} props `one` is
 *   set for a single picture, which gets the whole width
 */
export function Pictures({ group, one = false, children }) {
  return html`<div
    class=${one ? "plots one" : "panels"}
    role="group"
    tabindex="0"
    aria-label="Charts: left and right move the cursor, plus and minus zoom, 0 resets"
    onKeyDown=${(event) => press(event, group)}
    onMouseLeave=${() => {
      group.at.value = null;
    }}
  >
    ${children}
  </div>`;
}

function press(event, group) {
  const action = {
    ArrowLeft: () => stepBy(group, -1),
    ArrowRight: () => stepBy(group, 1),
    "+": () => zoomBy(group, 0.6),
    "=": () => zoomBy(group, 0.6),
    "-": () => zoomBy(group, 1 / 0.6),
    0: () => {
      group.zoom.value = null;
    },
  }[event.key];
  if (!action || event.target.closest("summary, table")) return;
  action();
  event.preventDefault();
}

/**
 * Buttons that zoom and move the charts of a group.
 * @param {{group: import("./chart.js").Group}} props
 */
export function Tools({ group }) {
  const buttons = [
    ["Earlier", "‹", () => zoomBy(group, 1, -0.5)],
    ["Later", "›", () => zoomBy(group, 1, 0.5)],
    ["Zoom in", "+", () => zoomBy(group, 0.6)],
    ["Zoom out", "−", () => zoomBy(group, 1 / 0.6)],
  ];
  const reset = () => {
    group.zoom.value = null;
  };
  return html`<div class="row toolbar" role="group" aria-label="Range of the charts">
    ${buttons.map(
      ([name, sign, act]) =>
        html`<button class="quiet" aria-label=${name} title=${name} onClick=${act}>${sign}</button>`,
    )}
    <button class="quiet" onClick=${reset}>Reset</button>
  </div>`;
}

/**
 * @param {object} props
 * @param {object} props.picture props of `Chart`, with `from`, the place of the first value in the
 *   table, and the `frequency` of its times
 * @param {import("./chart.js").Group} props.group
 * @param {number} [props.height]
 */
export function Picture({ picture, group, height = 180 }) {
  const { label, x, time, series, from, frequency } = picture;
  const when = (place) => (time ? timeWords(x[place], frequency) : `step ${place - from + 1}`);
  const place = group.at.value === null ? -1 : x.indexOf(group.at.value);
  const known = series.filter(({ values }) => (values[place] ?? null) !== null);
  const texts = known.map(({ label: name, values }) => `${name} ${digits(values[place])}`);
  const ahead = x.slice(from).map((_, step) => from + step);
  const columns = series.filter(({ label: name }) => name !== "history");
  return html`<figure>
    <figcaption>
      <h3>${label}</h3>
      <span class="hint">${place >= 0 && `${when(place)}: ${texts.join(", ")}`}</span>
    </figcaption>
    <${Chart} ...${picture} group=${group} height=${height} />
    <${Numbers}
      of=${label}
      made=${() => ({
        first: "Time",
        rows: ahead.map(when),
        columns: columns.map(({ label: name, values }) => ({
          label: name,
          values: values.slice(from),
        })),
      })}
    />
  </figure>`;
}
