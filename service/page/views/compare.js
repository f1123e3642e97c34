/** The view Compare: forecasts and backtests of several models on the same history. */

import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { ApiError, get } from "../api.js";
import { commonHorizon, mismatchOf } from "../backtests.js";
import { Backtests } from "../backtesting.js";
import { Overlay, Swatch } from "../overlay.js";
import { model, models, options, source } from "../store.js";

// More lines are hard to tell apart.
const MOST = 5;

export default function Compare() {
  const data = source.value;
  const cards = useCards(models.value);
  // Models whose box the user changed.
  const changed = useSignal(new Set());
  if (!data) {
    return html`<p class="panel">
      There is no data to compare on: <a href="#/forecast">choose data</a>.
    </p>`;
  }
  const entries = cards.map((card) => ({ card, why: mismatchOf(data, card, options.value) }));
  const fit = entries.filter(({ why }) => !why).map(({ card }) => card);
  // The chosen model comes first.
  fit.sort((one, other) => Number(isChosen(other)) - Number(isChosen(one)));
  const chosen = fit
    .filter((card) => isInitial(card) !== changed.value.has(nameOf(card)))
    .slice(0, MOST);
  const horizon = commonHorizon(chosen, options.value.horizon);
  const lines = chosen.map((card, place) => ({ card, name: nameOf(card), place }));
  return html`<div class="stack">
    <section class="panel stack">
      <fieldset class="row">
        <legend class="quietly">Models to compare</legend>
        ${fit.map((card) => {
          const place = chosen.indexOf(card);
          return html`<label class="inline" key=${nameOf(card)}>
            <input
              type="checkbox"
              checked=${place >= 0}
              disabled=${place < 0 && chosen.length === MOST}
              onChange=${() => {
                const next = new Set(changed.value);
                if (!next.delete(nameOf(card))) next.add(nameOf(card));
                changed.value = next;
              }}
            />
            ${place >= 0 && html`<${Swatch} place=${place} />`} ${nameOf(card)}
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

const nameOf = ({ name, version, versions }) => (versions.length > 1 ? `${name}@${version}` : name);

const isChosen = ({ name, version }) =>
  name === model.value?.name && version === model.value?.version;

/** Whether a version is compared at first: the default version, or the chosen one. */
const isInitial = (card) =>
  isChosen(card) ||
  models.value.some(({ name, version }) => name === card.name && version === card.version);

/** The cards of all versions that still exist. */
function useCards(known) {
  const cards = useSignal([]);
  useEffect(() => {
    let current = true;
    const references = known.flatMap(({ name, versions }) =>
      versions.map((one) => `${name}@${one}`),
    );
    const read = (reference) =>
      get(`/models/${encodeURIComponent(reference)}`).catch((error) => {
        if (!(error instanceof ApiError)) throw error;
        return null;
      });
    Promise.all(references.map(read)).then((found) => {
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
      ${entries.map(({ card, why }) => html`<li key=${nameOf(card)}>${nameOf(card)}: ${why}</li>`)}
    </ul>
  </details>`;
}
