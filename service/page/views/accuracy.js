/** The view Did it come true: stored forecasts of a model beside what came true. */

import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { Ahead } from "../ahead.js";
import { get } from "../api.js";
import { ModelChoice } from "../card.js";
import { Outcomes } from "../outcomes.js";
import { Ranking } from "../ranking.js";
import { keyOf, levelIn, pathOf, seriesOf, versionsOf, wordsOf, worstFirst } from "../scores.js";
import { attempt, busy, key, leave, model } from "../store.js";
import { Weekly } from "../weekly.js";

// Most forecasts in the chart, one after the other, and most rows of an answer.
const FORECASTS = 60;
const ROWS = 10_000;

export default function Accuracy() {
  const card = model.value;
  if (!card) return html`<p class="muted">No model is chosen.</p>`;
  if (!card.ledger) {
    return html`<p class="panel">
      This server does not remember its forecasts. Start it with <code>FORETELL_LEDGER</code>, the
      address of a database, such as <code>sqlite:///ledger.db</code>.
    </p>`;
  }
  return html`<${Scored} key=${card.name} card=${card} />`;
}

function Scored({ card }) {
  const filter = useSignal({ chosen: null, channel: card.targets[0], since: "", until: "" });
  const set = (changes) => {
    filter.value = { ...filter.value, ...changes };
  };
  const found = useScores(card.name, filter.value);
  const heading = useRef(null);
  return html`<div class="stack" aria-busy=${busy.value}>
    <${Choices} card=${card} known=${seriesOf(found?.series ?? [])} filter=${filter.value} set=${set} />
    ${!found && busy.value && html`<p class="muted" role="status">Loading …</p>`}
    ${
      found &&
      (found.total.length
        ? html`<${Results}
            ...${{ card, found, heading }}
            choose=${(chosen) => {
              set({ chosen });
              heading.current.focus();
            }}
          />`
        : html`<${Nothing} name=${card.name} filter=${filter.value} />`)
    }
  </div>`;
}

/** Parameters that mean a series, if there is one. */
const meaning = (one) =>
  one ? { series: one.series, namespace: one.namespace, frequency: one.frequency } : {};

/** The answers for a filter; those before while new ones are loading, null before the first. */
function useScores(name, filter) {
  const found = useSignal(null);
  useEffect(() => {
    let current = true;
    const read = async () => {
      const { chosen, ...others } = filter;
      const own = { ...others, ...meaning(chosen) };
      const scores = (by, parameters) =>
        get(pathOf(name, "accuracy", { ...parameters, by, limit: ROWS }));
      const [all, total, step, day] = await Promise.all([
        scores("series", others),
        scores("total", own),
        scores("step", own),
        scores("day", own),
      ]);
      const [worst] = worstFirst(all.rows);
      const shown =
        chosen ?? (worst && seriesOf(all.rows).find(({ key }) => key === keyOf(worst)));
      const parameters = { ...others, ...meaning(shown), overlapping: false, limit: FORECASTS };
      const stored = shown ? await get(pathOf(name, "trajectories", parameters)) : null;
      return {
        filter,
        shown,
        stored,
        channel: others.channel,
        series: all.rows,
        more: all.left_out,
        total: total.rows,
        step: step.rows,
        day: day.rows,
      };
    };
    attempt(read, "accuracy").then((answers) => {
      if (current && answers) found.value = answers;
    });
    return () => {
      current = false;
    };
  }, [name, filter, key.value]);
  useEffect(() => () => leave("accuracy"), []);
  return found.value;
}

function Choices({ card, known, filter, set }) {
  const changed = (field) => (event) => set({ [field]: event.currentTarget.value });
  // A chosen series without values in the range stays in the list.
  const { chosen } = filter;
  const listed = !chosen || known.some(({ key }) => key === chosen.key) ? known : [chosen, ...known];
  const choose = ({ currentTarget }) =>
    set({ chosen: listed.find(({ key }) => key === currentTarget.value) ?? null });
  return html`<div class="panel row selection">
    <${ModelChoice} named />
    <label>
      Series
      <select value=${chosen?.key ?? ""} onChange=${choose}>
        <option value="">All series (${known.length})</option>
        ${listed.map(({ key, title }) => html`<option key=${key} value=${key}>${title}</option>`)}
      </select>
    </label>
    <label>
      Channel
      <select value=${filter.channel} onChange=${changed("channel")}>
        ${card.targets.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    <label>
      First day
      <input type="date" value=${filter.since} onChange=${changed("since")} />
    </label>
    <label>
      Last day
      <input type="date" value=${filter.until} onChange=${changed("until")} />
    </label>
  </div>`;
}

/** What to do while there is nothing to show. */
function Nothing({ name, filter }) {
  if (filter.since || filter.until || filter.chosen) {
    return html`<p class="panel">
      No forecast of ${name} has been compared with actual values here. Choose other days or another
      series.
    </p>`;
  }
  return html`<section class="panel stack" aria-labelledby="nothing-title">
    <h2 id="nothing-title">Nothing to compare yet</h2>
    <p>No forecast of ${name} has been compared with actual values. To change that:</p>
    <ol class="steps">
      <li>
        Request forecasts of series with a <code>name</code> and times by <code>POST /forecast</code>:
        the server stores them.
      </li>
      <li>Send the actual values by <code>POST /actuals</code> once they are known.</li>
    </ol>
    <p><a href="docs">The API reference</a> has both requests.</p>
  </section>`;
}

function Results({ card, found, heading, choose }) {
  const { filter, shown, stored, channel, total, step, day, series, more } = found;
  const versions = versionsOf(total);
  const count = seriesOf(series).length;
  const of = filter.chosen?.title ?? `all series (${count})`;
  return html`
    <section class="panel" aria-labelledby="summary-title">
      <h2 id="summary-title">${channel} of ${of}</h2>
      ${total.map(
        (row) =>
          html`<p class="summary" key=${row.version}>
            ${total.length > 1 && html`<strong>Version ${row.version}: </strong>`}
            ${wordsOf(row, levelIn([row]))}
          </p>`,
      )}
    </section>
    <section class="panel" aria-labelledby="outcomes-title">
      <h2 id="outcomes-title" tabindex="-1" ref=${heading}>
        Forecasts and actual values of ${shown?.title}
      </h2>
      ${
        !filter.chosen &&
        count > 1 &&
        html`<p class="hint">
          Of all series, it is the worst beside repeating the last season. Choose another one above
          or below.
        </p>`
      }
      <${Outcomes} ...${{ found: stored, versions, channel }} frequency=${card.frequency} />
    </section>
    <div class="panels">
      <section class="panel" aria-labelledby="ahead-title">
        <h2 id="ahead-title">Error by step ahead</h2>
        <${Ahead} rows=${step} versions=${versions} channel=${channel} />
      </section>
      <section class="panel" aria-labelledby="weekly-title">
        <h2 id="weekly-title">Do the intervals hold?</h2>
        <${Weekly} rows=${day} versions=${versions} channel=${channel} />
      </section>
    </div>
    <section class="panel" aria-labelledby="ranking-title">
      <h2 id="ranking-title">Series by error, the worst first</h2>
      <${Ranking} rows=${series} more=${more} chosen=${filter.chosen?.key} choose=${choose} />
    </section>
  `;
}
