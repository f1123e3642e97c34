/** Problems of the rows, and their repairs. */

import { html } from "htm/preact";
import { problems, repair, setDateOrder, span } from "./data.js";
import { placeOf } from "./request.js";
import { reveal } from "./rows.js";
import { model, options, problem, set, source } from "./store.js";

const LISTED = 5;
/** Singular, plural, and the label of the repair. */
const KINDS = {
  order: ["row out of order", "rows out of order", "Sort by time"],
  duplicate: ["duplicate time", "duplicate times", "Keep the last row of each"],
  gap: ["gap", "gaps", "Insert the missing rows without values"],
  number: ["cell that is not a number", "cells that are not numbers", "Treat as missing"],
  missing: ["missing value", "missing values", null],
  value: ["wrong value of a covariate", "wrong values of covariates", null],
  time: ["time that cannot be read", "times that cannot be read", null],
  between: ["time between two steps", "times between two steps", null],
};
/** Problems of all rows at once. */
const WHOLE = { frequency: "Wrong frequency", "order of days": "Day or month first?" };

/** The problems by kind; empty without problems. */
export function Problems() {
  const found = problems.value;
  const error = problem.value;
  const { first } = span.value;
  const place = error && placeOf(error.param, source.value, model.value, span.value);
  const refused = place?.field === "cell";
  const kinds = Object.keys({ ...WHOLE, ...KINDS }).filter((kind) => found.some((one) => one.kind === kind));
  const elsewhere = error?.param && !place;
  if (!kinds.length && !refused && !elsewhere) return null;
  return html`<section class="panel problems" aria-labelledby="problems-title">
    <h2 id="problems-title">Problems</h2>
    ${(refused || elsewhere) &&
    html`<p class="error" role="alert">
      ${error.message}${" "}
      ${refused
        ? html`<button onClick=${() => reveal(place)}>Row ${place.row + 1}</button>`
        : html`<code>${error.param}</code>`}
    </p>`}
    <ul>
      ${kinds.map((kind) => html`<${Kind} key=${kind} kind=${kind} first=${first} />`)}
    </ul>
  </section>`;
}

function Kind({ kind, first }) {
  const found = problems.value.filter((one) => one.kind === kind);
  const [one, several, remedy] = KINDS[kind] ?? [];
  const read = found.filter(({ row }) => row === undefined || row >= first).length;
  // The latest: only rows that the model reads matter.
  const listed = found.slice(-LISTED);
  return html`<li>
    <div class="row spread">
      <strong>${WHOLE[kind] ?? `${found.length.toLocaleString("en")} ${found.length === 1 ? one : several}`}</strong>
      ${kind === "order of days" &&
      html`<div class="row">
        <button onClick=${() => setDateOrder("dmy")}>Day first</button>
        <button onClick=${() => setDateOrder("mdy")}>Month first</button>
      </div>`}
      ${remedy && html`<button onClick=${() => repair(kind)}>${remedy}</button>`}
      ${kind === "missing" && html`<${Missing} />`}
    </div>
    <p class="hint">
      ${listed.map((one, i) => [
        i > 0 && ", ",
        one.row === undefined
          ? one.message
          : html`<button class="link" onClick=${() => reveal(one)}>${one.message}</button>`,
      ])}
      ${found.length > LISTED && ` and ${(found.length - LISTED).toLocaleString("en")} earlier`}
      ${read < found.length && `; the model reads ${read.toLocaleString("en")} of them`}
    </p>
  </li>`;
}

/** Choice of how missing values are filled. */
function Missing() {
  return html`<label class="inline">
    Fill with
    <select
      value=${options.value.missing}
      onChange=${(event) => set({ missing: event.target.value })}
    >
      <option value="error">– choose –</option>
      <option value="interpolate">interpolation between the nearest values</option>
      <option value="ffill">the previous value</option>
    </select>
  </label>`;
}
