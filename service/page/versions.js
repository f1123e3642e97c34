/** Which versions of models there are, and loading and unloading them. */

import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { ApiError, get, post } from "./api.js";
import { usePolling } from "./polling.js";
import { key, models, readModels } from "./store.js";

const SECONDS = 2;
const STATES = {
  READY: ["serving", "good"],
  LOADING: ["loading", ""],
  UNLOADING: ["unloading", ""],
  UNAVAILABLE: ["not serving", "bad"],
};
const NO_KEYS =
  "Read only: this server has no admin keys. FORETELL_ADMIN_KEYS, or a file that " +
  "FORETELL_ADMIN_KEYS_FILE names, gives it some.";
const NO_KEY = "Read only without an admin key: give yours with the button Key.";

/** All versions in the repository, with what can be done about them. */
export function Versions() {
  const [entries, controllable, trouble] = [useSignal([]), useSignal(null), useSignal(null)];
  const [asked, refused, said] = [useSignal(null), useSignal(null), useSignal("")];
  const tell = (error) => {
    if (!(error instanceof ApiError)) throw error;
    trouble.value = error;
  };
  const look = async () => {
    try {
      controllable.value ??= (await get("/v2")).extensions.includes("model_repository");
      entries.value = await post("/v2/repository/index", {});
    } catch (error) {
      tell(error);
    }
  };
  usePolling(look, SECONDS);

  const change = async ({ name, version, verb }) => {
    trouble.value = null;
    const used = key.value;
    said.value = `${verb.doing} ${name} ${version} …`;
    try {
      await post(`/v2/repository/models/${name}/${verb.path}`, { parameters: { version } });
      said.value = `${verb.done} ${name} ${version}.`;
      await readModels();
    } catch (error) {
      said.value = "";
      // This key, but perhaps not the next one.
      if (error.status === 403) refused.value = used;
      tell(error);
    }
    await look();
  };
  const allowed = Boolean(controllable.value && key.value && key.value !== refused.value);
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Versions</h2>
      <p class="hint" role="status">${said.value}</p>
    </div>
    ${controllable.value === false && html`<p class="note">${NO_KEYS}</p>`}
    ${controllable.value && !key.value && html`<p class="note">${NO_KEY}</p>`}
    ${trouble.value && html`<p class="trouble" role="alert">${trouble.value.message}</p>`}
    <${Table} entries=${entries.value} allowed=${allowed} asked=${asked} />
    <${Confirmation} asked=${asked} act=${change} />
  </section>`;
}

const LOAD = {
  path: "load",
  title: "Load",
  doing: "Loading",
  done: "Loaded",
  warning: "Its bundle is checked and tested first; what answers now goes on until then.",
};
const AGAIN = { ...LOAD, title: "Load again", warning: `Its bundle is read anew. ${LOAD.warning}` };
const UNLOAD = {
  path: "unload",
  title: "Unload",
  doing: "Unloading",
  done: "Unloaded",
  warning: "Requests for it are refused from then on; those that it has accepted are finished.",
};

function Table({ entries, allowed, asked }) {
  const defaults = new Set(models.value.map(({ name, version }) => `${name}@${version}`));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Versions">
    <table class="words">
      <caption class="quietly">
        Versions in the repository
      </caption>
      <thead>
        <tr>
          <th scope="col">Model</th>
          <th scope="col">Version</th>
          <th scope="col">State</th>
          ${allowed && html`<th scope="col">Change</th>`}
          <th scope="col">Reason</th>
        </tr>
      </thead>
      <tbody>
        ${entries.map(({ name, version, state, reason }) => {
          const [text, kind] = STATES[state] ?? [state, ""];
          const out = ["UNAVAILABLE", "UNLOADING"].includes(state);
          const verbs = state === "READY" ? [AGAIN, UNLOAD] : out ? [LOAD] : [];
          return html`<tr key=${`${name}@${version}`}>
            <th scope="row">${name}</th>
            <td>
              ${version}
              ${
                defaults.has(`${name}@${version}`) &&
                html`<span class="badge" title="What the name alone means">default</span>`
              }
            </td>
            <td class=${kind}>${text}</td>
            ${
              allowed &&
              html`<td>
                ${verbs.map(
                  (verb) =>
                    html`<button
                      aria-label=${`${verb.title} ${name} ${version}`}
                      onClick=${() => {
                        asked.value = { name, version, verb };
                      }}
                    >
                      ${verb.title}
                    </button>`,
                )}
              </td>`
            }
            <td class="reason">${reason}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

/** Nothing is changed by a single click. */
function Confirmation({ asked, act }) {
  const dialog = useRef(null);
  const wanted = asked.value;
  useEffect(() => {
    if (wanted) dialog.current.showModal();
  }, [wanted]);
  const close = ({ currentTarget: closed }) => {
    asked.value = null;
    if (closed.returnValue === "yes") act(wanted);
    closed.returnValue = "";
  };
  return html`<dialog ref=${dialog} aria-labelledby="change-title" onClose=${close}>
    ${
      wanted &&
      html`<form method="dialog">
        <h2 id="change-title">${wanted.verb.title} ${wanted.name} ${wanted.version}?</h2>
        <p>${wanted.verb.warning}</p>
        <div class="row">
          <button type="submit" value="yes">${wanted.verb.title}</button>
          <button class="quiet" value="">Cancel</button>
        </div>
      </form>`
    }
  </dialog>`;
}
