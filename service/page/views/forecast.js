/** The view Forecast: model, data, forecast and rows. */

import { html } from "htm/preact";
import { Card } from "../card.js";
import { Controls } from "../controls.js";
import { openFile, table } from "../data.js";
import { Importance } from "../importance.js";
import { Picker } from "../picker.js";
import { Plots } from "../plots.js";
import { Problems } from "../problems.js";
import { Rows } from "../rows.js";
import { answer, model, requested, source } from "../store.js";

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
      ${answer.value && requested.value && html`<${Plots} /><${Importance} />`}
      ${table.value && source.value && html`<${Rows} />`}
    </div>
  </div>`;
}
