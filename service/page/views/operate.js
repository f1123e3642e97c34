import { html } from "htm/preact";

export default function Operate() {
  return html`<p>To come.</p>`;
}
