/** The dialog for the API key. */

import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { setKeyPrompt } from "./api.js";
import { key, readModels } from "./store.js";

/**
 * @param {{open: import("@preact/signals").Signal<boolean>}} props `open` shows the dialog
 */
export function KeyDialog({ open }) {
  const dialog = useRef(null);
  const typed = useRef(null);
  const settle = useRef(null);
  const refused = useSignal(null);

  useEffect(() => {
    setKeyPrompt((used) => {
      refused.value = used ? "The server refused this key." : "This server requires an API key.";
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
    // The field must not keep a key that was removed.
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
      <p class="hint">This tab keeps the key until you close the tab.</p>
      <div class="row">
        <button type="submit">Use key</button>
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
          Forget key
        </button>`}
      </div>
    </form>
  </dialog>`;
}
