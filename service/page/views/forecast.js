import { html } from "htm/preact";

export default function Forecast() {
  return html`<p>To come.</p>`;
}
