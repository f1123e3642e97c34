/** Fields of the static covariates: one value for the series. */

import { html } from "htm/preact";
import { Categories } from "./cells.js";
import { staticText, valueOf } from "./covariates.js";
import { setStatic, span } from "./data.js";
import { placeOf } from "./request.js";
import { model, problem, source } from "./store.js";

/** A field for each static covariate of the model. */
export function Statics() {
  const known = model.value.covariates.static;
  if (!known.length) return null;
  const error = problem.value;
  const place = error && placeOf(error.param, source.value, model.value, span.value);
  return html`<fieldset class="statics">
    <legend class="hint">The whole series</legend>
    ${known.map((covariate, i) => {
      const { name } = covariate;
      const message = place?.field === "static" && place.name === name ? error.message : null;
      return html`<div key=${name} class="row match">
        <label for=${`static-${i}`}>${name}</label>
        <${Value} ...${{ covariate, message }} id=${`static-${i}`} />
        ${message && html`<p class="bad" role="alert" id=${`static-${i}-error`}>${message}</p>`}
      </div>`;
    })}
  </fieldset>`;
}

function Value({ covariate, message, id }) {
  const { name, type } = covariate;
  const text = staticText(source.value, covariate);
  const props = {
    id,
    "aria-invalid": message ? "true" : undefined,
    "aria-describedby": message ? `${id}-error` : undefined,
  };
  if (type === "boolean") {
    return html`<input
      ...${props}
      type="checkbox"
      checked=${valueOf(covariate, text) === true}
      onChange=${(event) => setStatic(name, String(event.currentTarget.checked))}
    />`;
  }
  const change = (event) => setStatic(name, event.currentTarget.value.trim());
  if (type === "number") return html`<input ...${props} inputmode="decimal" value=${text} onChange=${change} />`;
  return html`<select ...${props} value=${text} onChange=${change}>
    <${Categories} covariate=${covariate} text=${text} />
  </select>`;
}
