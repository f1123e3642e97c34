/** How the server does, and which models it serves. */

import { html } from "htm/preact";
import { Live } from "../live.js";
import { Versions } from "../versions.js";

export default function Operate() {
  return html`<div class="stack">
    <${Live} />
    <${Versions} />
  </div>`;
}
