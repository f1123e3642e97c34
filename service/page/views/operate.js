/** The view Operate: load of the server, and versions of models. */

import { html } from "htm/preact";
import { Live } from "../live.js";
import { Versions } from "../versions.js";

export default function Operate() {
  return html`<div class="stack">
    <${Live} />
    <${Versions} />
  </div>`;
}
