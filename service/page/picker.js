/** Choice of the data: the example, or a CSV that the user drops, opens or pastes. */

import { html } from "htm/preact";
import { chosen, openExample, openFile, openSeries, openText, readError, setTimeZone, table } from "./data.js";
import { channelsOf, namesOf } from "./covariates.js";
import { columnsByName } from "./csv.js";
import { Statics } from "./statics.js";
import { model, source } from "./store.js";
import { readTime, timeWords } from "./time.js";
import { counted, frequencyWords, listed } from "./words.js";

/** The panel of the data. */
export function Picker() {
  const pick = (event) => {
    const [file] = event.target.files;
    if (file) openFile(file);
    event.target.value = "";
  };
  const paste = (event) => {
    event.preventDefault();
    openText(new FormData(event.target).get("text"), "pasted");
  };
  return html`<section class="panel" aria-labelledby="data-title">
    <h2 id="data-title">Data</h2>
    ${readError.value && html`<p class="error" role="alert">${readError.value}</p>`}
    ${table.value && source.value && html`<${Summary} />`}
    <div class="row">
      <button onClick=${openExample} disabled=${!model.value}>Example</button>
      <label class="button file">
        Open a CSV
        <input type="file" accept=".csv,.tsv,.txt,text/csv" class="quietly" onChange=${pick} />
      </label>
    </div>
    <p class="hint drop">Or drop a file anywhere on this view.</p>
    <details>
      <summary>Paste rows</summary>
      <form onSubmit=${paste} class="stack">
        <label>
          Rows below a line of column names
          <textarea name="text" class="code" rows="6" required spellcheck="false"></textarea>
        </label>
        <div><button type="submit">Read rows</button></div>
      </form>
    </details>
  </section>`;
}

/** A summary of the table: rows, times, frequency, and the column of each channel. */
function Summary() {
  const { name, example, long, comma } = table.value;
  const { timestamps, frequency, values } = source.value;
  return html`
    <p><strong>${name}</strong>${example && html`<span class="muted"> – the model’s example</span>`}</p>
    <p class="muted">
      ${counted(values.length, "row")}${frequency && `, ${frequencyWords(frequency)}`}${comma && ", decimal commas"}${timestamps
        ? html`<br />${clock(timestamps[0], frequency)} to ${clock(timestamps.at(-1), frequency)}`
        : ", without times"}
    </p>
    ${long &&
    html`<div class="row match">
      <label for="series">Series (${long.names.length})</label>
      <select id="series" value=${long.name} onChange=${(event) => openSeries(event.target.value)}>
        ${long.names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </div>`}
    ${!example && html`<${Columns} />`}
    <${Statics} />
    ${!example && /(s|min|h)$/.test(frequency ?? "") && readTime(timestamps[0])?.offset === null && html`<${Zone} />`}
  `;
}

function clock(text, frequency) {
  const time = readTime(text);
  return time ? timeWords(time.wall, frequency) : text;
}

/** The time zone of the times, for data across daylight saving changes. */
function Zone() {
  return html`<details open=${table.value.timeZone !== ""}>
    <summary>Time zone</summary>
    <div class="row match">
      <label for="zone">Name, such as Europe/Berlin</label>
      <input
        id="zone"
        list="zones"
        placeholder="none"
        value=${table.value.timeZone}
        onChange=${(event) => setTimeZone(event.target.value.trim())}
      />
    </div>
    <datalist id="zones">
      ${Intl.supportedValuesOf("timeZone").map((name) => html`<option value=${name}></option>`)}
    </datalist>
  </details>`;
}

function Columns() {
  const { header, timeColumn } = table.value;
  const names = namesOf(model.value);
  const byName = columnsByName(header, names);
  const place = (channel) => chosen.value[channel] ?? byName[channel];
  const choose = (channel, column) => (chosen.value = { ...chosen.value, [channel]: Number(column) });
  const noun = names.length > channelsOf(model.value).length ? "column" : "channel";
  const odd = names.filter((channel) => header[byName[channel]] !== channel);
  const absent = odd.filter((channel) => place(channel) < 0);
  if (!odd.length) return html`<p class="good">All ${counted(names.length, noun)} found by name.</p>`;
  return html`
    ${absent.length > 0 &&
    html`<p class="bad">No column is named ${listed(absent)}: choose one.</p>`}
    ${odd.map(
      (channel, i) =>
        html`<div key=${channel} class="row match">
          <label for=${`column-${i}`}>${channel}</label>
          <select
            id=${`column-${i}`}
            value=${place(channel)}
            aria-invalid=${place(channel) < 0}
            onChange=${(event) => choose(channel, event.target.value)}
          >
            <option value="-1">– none –</option>
            ${header.map(
              (title, column) =>
                column !== timeColumn && html`<option key=${column} value=${column}>${title}</option>`,
            )}
          </select>
        </div>`,
    )}
  `;
}
