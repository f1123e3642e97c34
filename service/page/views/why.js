/** The view Why: attention of a forecast, by stage and head. */

import { useEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { ApiError } from "../api.js";
import { lagsOf, placing } from "../evidence.js";
import { ModelChoice } from "../card.js";
import { explain, headsOf, mainStage } from "../explain.js";
import { Lags } from "../lags.js";
import { AttentionMap } from "../map.js";
import { refusalOf, windowOf } from "../request.js";
import { model, models, options, source } from "../store.js";
import { readTime } from "../time.js";

const FORMS = {
  dense: "every weight of the map",
  circulant: "lags, the same for every step",
  sparse: "weights of the selected keys",
};
const OMITTED = {
  stages:
    "All stages together exceed this server's limit of weights: the page loads one stage at a time.",
  heads:
    "The mean of all heads exceeds this server's limit of weights: the page loads one head at a time.",
};
const ILL_CONDITIONED =
  "Rounding may decide what the model chooses for this history, such as the lags that count. " +
  "Another machine may return another forecast, so read these weights with care.";

export default function Why() {
  const [card, data] = [model.value, source.value];
  if (!card) return html`<p class="muted">No model is chosen.</p>`;
  const refusal = data && refusalOf(data, card, options.value);
  const ready = card.attention.length && data && !refusal;
  return html`<div class="stack">
    ${
      ready
        ? html`<${Explanation} key=${`${card.name}@${card.version}`} card=${card} data=${data} />`
        : html`<section class="panel stack">
            <${ModelChoice} />
            <${Unready} ...${{ card, data, refusal }} />
          </section>`
    }
  </div>`;
}

function Unready({ card, data, refusal }) {
  if (!card.attention.length) return html`<${Without} card=${card} />`;
  if (!data) {
    return html`<p>
      There is no data to explain: <a href="#/forecast">choose data</a>.
    </p>`;
  }
  return html`<p>Cannot forecast: ${refusal}. <a href="#/forecast">Fix the data</a>.</p>`;
}

function Without({ card }) {
  const others = models.value.filter(({ attention }) => attention.length).map(({ name }) => name);
  return html`<p>
    ${card.name} has no attention to show.
    ${others.length > 0 && ` Models with attention: ${others.join(", ")}.`}
  </p>`;
}

/** Choice of stage and head, and their attention. */
function Explanation({ card, data }) {
  const [stage, head] = [useSignal(null), useSignal(null)];
  const heads = useSignal({});
  const { known, error } = useEvidence(card, data, stage, head);
  useEffect(() => {
    headsOf(card).then((counts) => {
      heads.value = counts;
    }, refused);
  }, [card]);

  const places = known.content && placesOf(known.content, data, card);
  const means = [...known.stages.values()].filter((one) => one.head === null);
  const shown =
    stage.value ??
    (places &&
      mainStage(
        means.map((one) => one.evidence),
        places.placeOf,
        places.rows,
      )?.name);
  const { evidence } = known.stages.get(keyOf(shown, head.value)) ?? {};
  const count = heads.value[shown] ?? 1;
  return html`
    <div class="panel row selection">
      <${ModelChoice} />
      <${Choice}
        label="Stage"
        value=${shown}
        set=${(name) => {
          stage.value = name;
          head.value = null;
        }}
        entries=${card.attention.map((name) => [name, name])}
      />
      ${
        count > 1 &&
        html`<${Choice}
          label="Head"
          value=${head.value ?? "mean"}
          set=${(text) => {
            stage.value = shown;
            head.value = text === "mean" ? null : Number(text);
          }}
          entries=${[["mean", "Mean of all"], ...Array.from({ length: count }, (_, at) => [at, at + 1])]}
        />`
      }
      <p class="muted">
        ${[`${card.name} ${card.version}`, evidence?.kind, FORMS[evidence?.form]].filter(Boolean).join(", ")}
      </p>
    </div>
    ${error && html`<p class="error" role="alert">${error.message}</p>`}
    ${!error && !evidence && html`<p class="muted" role="status">Loading the attention of ${card.name} …</p>`}
    ${known.omitted && html`<p class="note">${OMITTED[known.omitted]}</p>`}
    ${known.content?.ill_conditioned && html`<p class="note">${ILL_CONDITIONED}</p>`}
    ${
      evidence &&
      html`<${Evidence}
        key=${keyOf(shown, head.value)}
        ...${{ evidence, card, data, places }}
        content=${known.content}
      />`
    }
  `;
}

const keyOf = (stage, head) => `${stage} ${head ?? "mean"}`;

function refused(error) {
  if (!(error instanceof ApiError)) throw error;
}

const NOTHING = { stages: new Map(), content: null, omitted: "" };

/** The loaded stages of a forecast; requests the chosen one if it is missing. */
function useEvidence(card, data, stage, head) {
  const { missing, holdBack } = options.value;
  const found = useSignal(NOTHING);
  const error = useSignal(null);
  const subject = useMemo(() => {
    found.value = NOTHING;
    return {};
  }, [card, data, missing, holdBack]);
  useEffect(() => {
    let current = true;
    const { stages, omitted } = found.value;
    if (stages.has(keyOf(stage.value, head.value))) return undefined;
    error.value = null;
    explain(data, card, options.value, { stage: stage.value, head: head.value }).then(
      (answer) => {
        if (!current) return;
        const next = new Map(stages);
        for (const evidence of answer.content.attention) {
          next.set(keyOf(evidence.name, answer.head), { evidence, head: answer.head });
        }
        found.value = { stages: next, content: answer.content, omitted: answer.omitted || omitted };
        if (answer.head !== head.value) {
          stage.value = answer.content.attention[0].name;
          head.value = answer.head;
        }
      },
      (caught) => {
        refused(caught);
        if (current) error.value = caught;
      },
    );
    return () => {
      current = false;
    };
  }, [subject, stage.value, head.value]);
  return { known: found.value, error: error.value };
}

/** Rows and times of the window that was sent, for positions of axes. */
function placesOf(content, data, card) {
  const { first, end } = windowOf(data, card, options.value);
  const rows = end - first;
  const times = data.timestamps
    ? [...data.timestamps.slice(first, end), ...(content.timestamps ?? [])]
    : [];
  // Local time is enough: answers repeat the offsets of requests.
  const placeOf = placing(rows, times, (time) => readTime(time)?.wall);
  return { first, rows, times, placeOf };
}

function Evidence({ evidence, content, card, data, places }) {
  if (evidence.form === "none") {
    return html`<p class="panel">
      ${evidence.name} (${evidence.kind}) has no map: its mechanism has no attention weights.
    </p>`;
  }
  return html`
    ${
      evidence.form === "circulant" &&
      html`<section class="panel">
        <h2>Lags</h2>
        <${Lags}
          found=${lagsOf(evidence, places.placeOf)}
          correlation=${evidence.correlation}
          frequency=${card.frequency}
        />
      </section>`
    }
    <${AttentionMap} ...${{ evidence, content, card, data, places }} />
  `;
}

function Choice({ label, value, entries, set }) {
  return html`<label>
    ${label}
    <select value=${value} onChange=${(event) => set(event.currentTarget.value)}>
      ${entries.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select>
  </label>`;
}
