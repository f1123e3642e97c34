/** The dialog that asks for an API key. */

import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { askBy } from "./api.js";
import { key, readModels } from "./store.js";

/**
 * @param {{open: import("@preact/signals").Signal<boolean>}} props `open` shows it
 */
export function KeyDialog({ open }) {
  const dialog = useRef(null);
  const typed = useRef(null);
  const settle = useRef(null);
  const refused = useSignal(null);

  useEffect(() => {
    askBy((used) => {
      refused.value = used ? "The server refused this key." : "This server wants an API key.";
      open.value = true;
      return new Promise((resolve) => (settle.current = resolve));
    });
  }, []);
  useEffect(() => {
    if (open.value) dialog.current.showModal();
  }, [open.value]);

  const done = (changed) => {
    open.value = false;
    refused.value = null;
    // A key that is forgotten is not left in the field.
    typed.current.value = key.value;
    const waiting = settle.current;
    settle.current = null;
    if (waiting) waiting(changed);
    else if (changed) readModels();
  };
  const save = (event) => {
    event.preventDefault();
    key.value = typed.current.value.trim();
    dialog.current.close("saved");
  };
  return html`<dialog
    ref=${dialog}
    aria-labelledby="key-title"
    onClose=${() => done(dialog.current.returnValue === "saved")}
    onCancel=${() => (dialog.current.returnValue = "")}
  >
    <form method="dialog" onSubmit=${save}>
      <h2 id="key-title">API key</h2>
      ${refused.value && html`<p class="bad" role="alert">${refused.value}</p>`}
      <label>
        Key
        <input ref=${typed} type="password" autocomplete="off" required defaultValue=${key.value} />
      </label>
      <p class="hint">It is kept in this tab alone, and forgotten when the tab is closed.</p>
      <div class="row">
        <button type="submit">Use it</button>
        <button type="button" class="quiet" onClick=${() => dialog.current.close("")}>Cancel</button>
        ${key.value &&
        html`<button
          type="button"
          class="quiet"
          onClick=${() => {
            key.value = "";
            dialog.current.close("");
          }}
        >
          Forget it
        </button>`}
      </div>
    </form>
  </dialog>`;
}
