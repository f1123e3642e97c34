/** The view Use it: the last request as programs, its answer as files. */

import { useMemo, useState } from "preact/hooks";
import { html } from "htm/preact";
import { address, key } from "../api.js";
import { csvOf, pictureOf, save } from "../downloads.js";
import { panelsOf } from "../panels.js";
import { Plots, pictures } from "../plots.js";
import { samples } from "../samples.js";
import { answer, requested } from "../store.js";

export default function Use() {
  if (!answer.value || !requested.value) {
    return html`<p>There is no forecast yet. <a href="#/forecast">Make a forecast</a> first.</p>`;
  }
  return html`<div class="stack">
    <${Request} />
    <${Files} />
    <${Plots} />
  </div>`;
}

/** The last request as programs. */
function Request() {
  const { request, card } = requested.value;
  const [chosen, choose] = useState(0);
  const [copied, setCopied] = useState("");
  const made = useMemo(
    () => samples(request, address("/").href.replace(/\/$/, ""), key.value !== "", card),
    [request, key.value],
  );
  const { name, install, note, code } = made[chosen];
  const copy = async (text) => {
    setCopied("");
    setCopied((await copyText(text)) ? "Copied." : "Cannot copy: select the text instead.");
  };
  return html`<section class="panel" aria-labelledby="request-title">
    <h2 id="request-title">Request</h2>
    <div class="row spread">
      <div class="row" role="group" aria-label="Program">
        ${made.map(
          (one, i) =>
            html`<button
              key=${one.name}
              class="quiet"
              aria-pressed=${i === chosen}
              onClick=${() => {
                choose(i);
                setCopied("");
              }}
            >
              ${one.name}
            </button>`,
        )}
      </div>
      <div class="row">
        <span role="status">${copied}</span>
        ${code && html`<button class="primary" onClick=${() => copy(code)}>Copy</button>`}
      </div>
    </div>
    ${key.value && html`<p class="hint">The program reads your key from the variable <code>FORETELL_KEY</code>.</p>`}
    ${install &&
    html`<p class="hint row"><code>${install}</code><button class="link" onClick=${() => copy(install)}>copy</button></p>`}
    ${note && html`<p class="note">${note}</p>`}
    ${code && html`<pre class="code" tabindex="0" role="region" aria-label=${name}>${code}</pre>`}
  </section>`;
}

/** Copies a text; without a clipboard, as on pages without TLS, through a selection. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function Files() {
  const { card, source } = requested.value;
  const name = `${card.name}-${source.name}`.replace(/[^\p{L}\p{N}.-]+/gu, "-");
  const text = (content, type) => new Blob([content], { type });
  const csv = () =>
    csvOf(answer.value, card.targets, panelsOf(answer.value, requested.value));
  return html`<section class="panel" aria-labelledby="files-title">
    <h2 id="files-title">Answer</h2>
    <div class="row">
      <button onClick=${() => save(`${name}.csv`, text(csv(), "text/csv"))}>CSV</button>
      <button
        onClick=${() => save(`${name}.json`, text(JSON.stringify(answer.value, null, 2), "application/json"))}
      >
        JSON
      </button>
      <button
        onClick=${async () => {
          const { charts, legend } = pictures();
          save(`${name}.png`, await pictureOf(`${source.name}, by ${card.name}@${card.version}`, charts, legend));
        }}
      >
        PNG
      </button>
      <span class="hint">The picture shows the charts below.</span>
    </div>
  </section>`;
}
