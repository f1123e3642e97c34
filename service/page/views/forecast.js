/** The view that forecasts: a model, its data, and what is to come. */

import { html } from "htm/preact";
import { Card } from "../card.js";
import { Controls } from "../controls.js";
import { openFile, table } from "../data.js";
import { Picker } from "../picker.js";
import { Plots } from "../plots.js";
import { Problems } from "../problems.js";
import { Rows } from "../rows.js";
import { answer, asked, model, source } from "../store.js";

export default function Forecast() {
  const drop = (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) openFile(file);
  };
  return html`<div class="sides" onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
    <div class="stack">
      <${Card} />
      <${Picker} />
    </div>
    <div class="stack wide">
      ${table.value && source.value && model.value && html`<${Controls} /><${Problems} />`}
      ${answer.value && asked.value && html`<${Plots} />`}
      ${table.value && source.value && html`<${Rows} />`}
    </div>
  </div>`;
}
