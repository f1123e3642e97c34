import { html } from "htm/preact";

export default function Compare() {
  return html`<p>To come.</p>`;
}
