/** Several models on the same history: forecasts over each other, and how well they would have done. */

import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { ApiError, get } from "../api.js";
import { commonHorizon, unfit } from "../backtests.js";
import { Backtests } from "../backtesting.js";
import { Overlay, Swatch } from "../overlay.js";
import { model, models, options, source } from "../store.js";

// More lines than that are not told apart.
const MOST = 5;

export default function Compare() {
  const data = source.value;
  const cards = useCards(models.value);
  // Those whose box is not as at first.
  const changed = useSignal(new Set());
  if (!data) {
    return html`<p class="panel">
      There is nothing to compare on yet: <a href="#/forecast">choose data to forecast</a>.
    </p>`;
  }
  const entries = cards.map((card) => ({ card, why: unfit(data, card, options.value) }));
  const fit = entries.filter(({ why }) => !why).map(({ card }) => card);
  // The one that is looked at elsewhere comes first.
  fit.sort((one, other) => Number(isChosen(other)) - Number(isChosen(one)));
  const chosen = fit
    .filter((card) => isFirst(card) !== changed.value.has(named(card)))
    .slice(0, MOST);
  const horizon = commonHorizon(chosen, options.value.horizon);
  const lines = chosen.map((card, place) => ({ card, name: named(card), place }));
  return html`<div class="stack">
    <section class="panel stack">
      <fieldset class="row">
        <legend class="quietly">Models to compare</legend>
        ${fit.map((card) => {
          const place = chosen.indexOf(card);
          return html`<label class="inline" key=${named(card)}>
            <input
              type="checkbox"
              checked=${place >= 0}
              disabled=${place < 0 && chosen.length === MOST}
              onChange=${() => {
                const next = new Set(changed.value);
                if (!next.delete(named(card))) next.add(named(card));
                changed.value = next;
              }}
            />
            ${place >= 0 && html`<${Swatch} place=${place} />`} ${named(card)}
          </label>`;
        })}
      </fieldset>
      <${Others} entries=${entries.filter(({ why }) => why)} />
    </section>
    ${
      chosen.length > 0 &&
      html`
        <${Overlay} lines=${lines} data=${data} horizon=${horizon} />
        <${Backtests} lines=${lines} data=${data} horizon=${horizon} />
      `
    }
  </div>`;
}

const named = ({ name, version, versions }) => (versions.length > 1 ? `${name}@${version}` : name);

const isChosen = ({ name, version }) =>
  name === model.value?.name && version === model.value?.version;

/** Whether a version is compared at first: that which its model's name means, or the chosen one. */
const isFirst = (card) =>
  isChosen(card) ||
  models.value.some(({ name, version }) => name === card.name && version === card.version);

/** The cards of all versions; those that are gone meanwhile are left out. */
function useCards(known) {
  const cards = useSignal([]);
  useEffect(() => {
    let current = true;
    const references = known.flatMap(({ name, versions }) =>
      versions.map((one) => `${name}@${one}`),
    );
    const ask = (reference) =>
      get(`/models/${encodeURIComponent(reference)}`).catch((error) => {
        if (!(error instanceof ApiError)) throw error;
        return null;
      });
    Promise.all(references.map(ask)).then((found) => {
      if (current) cards.value = found.filter(Boolean);
    });
    return () => {
      current = false;
    };
  }, [known]);
  return cards.value;
}

function Others({ entries }) {
  if (!entries.length) return null;
  return html`<details>
    <summary>Models that cannot forecast these rows: ${entries.length}</summary>
    <ul>
      ${entries.map(({ card, why }) => html`<li key=${named(card)}>${named(card)}: ${why}</li>`)}
    </ul>
  </details>`;
}
