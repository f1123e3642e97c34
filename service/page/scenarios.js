/** Scenarios: the choice of the future that the table of rows shows. */

import { html } from "htm/preact";
import { duplicate, removeScenario, scenario } from "./data.js";
import { model, source } from "./store.js";

/** Buttons of the scenarios, for a model that reads future covariates. */
export function Scenarios() {
  if (!model.value.covariates.future.length) return null;
  const { futures } = source.value;
  return html`<div class="row scenarios" role="group" aria-label="Scenarios">
    ${futures.length > 1 &&
    futures.map(
      ({ name }, i) =>
        html`<button
          key=${name}
          class="quiet"
          aria-pressed=${scenario.value === i}
          onClick=${() => (scenario.value = i)}
        >
          ${name[0].toUpperCase()}${name.slice(1)}
        </button>`,
    )}
    ${futures.length > 1
      ? html`<button onClick=${removeScenario}>Remove scenario 2</button>`
      : html`<button onClick=${duplicate}>Duplicate the future</button>`}
    <span class="hint">
      ${futures.length > 1
        ? scenario.value
          ? "Its rows have the values of scenario 1 until you change them; changes are underlined."
          : "Both are forecast; changes here count for both, except where scenario 2 differs."
        : "A second scenario is forecast beside the first."}
    </span>
  </div>`;
}
