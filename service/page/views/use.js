import { html } from "htm/preact";

export default function Use() {
  return html`<p>To come.</p>`;
}
