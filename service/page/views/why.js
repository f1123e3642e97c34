import { html } from "htm/preact";

export default function Why() {
  return html`<p>To come.</p>`;
}
