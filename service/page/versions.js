/** Versions of models, with their loading and unloading. */

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
  "Read only: this server has no admin keys. Set FORETELL_ADMIN_KEYS or " +
  "FORETELL_ADMIN_KEYS_FILE to add some.";
const NO_KEY = "Read only: enter an admin key with the button Key.";

/** All versions in the repository, with buttons to load and unload them. */
export function Versions() {
  const [entries, controllable, failure] = [useSignal([]), useSignal(null), useSignal(null)];
  const [requested, refused, status] = [useSignal(null), useSignal(null), useSignal("")];
  const report = (error) => {
    if (!(error instanceof ApiError)) throw error;
    failure.value = error;
  };
  const refresh = async () => {
    try {
      controllable.value ??= (await get("/v2")).extensions.includes("model_repository");
      entries.value = await post("/v2/repository/index", {});
    } catch (error) {
      report(error);
    }
  };
  usePolling(refresh, SECONDS);

  const change = async ({ name, version, verb }) => {
    failure.value = null;
    const used = key.value;
    status.value = `${verb.doing} ${name} ${version} …`;
    try {
      await post(`/v2/repository/models/${name}/${verb.path}`, { parameters: { version } });
      status.value = `${verb.done} ${name} ${version}.`;
      await readModels();
    } catch (error) {
      status.value = "";
      // Hides the buttons until the key changes.
      if (error.status === 403) refused.value = used;
      report(error);
    }
    await refresh();
  };
  const allowed = Boolean(controllable.value && key.value && key.value !== refused.value);
  return html`<section class="panel stack">
    <div class="row spread">
      <h2>Versions</h2>
      <p class="hint" role="status">${status.value}</p>
    </div>
    ${controllable.value === false && html`<p class="note">${NO_KEYS}</p>`}
    ${controllable.value && !key.value && html`<p class="note">${NO_KEY}</p>`}
    ${failure.value && html`<p class="error" role="alert">${failure.value.message}</p>`}
    <${Table} entries=${entries.value} allowed=${allowed} requested=${requested} />
    <${Confirmation} requested=${requested} act=${change} />
  </section>`;
}

const LOAD = {
  path: "load",
  title: "Load",
  doing: "Loading",
  done: "Loaded",
  warning: "The server first checks and tests its bundle. Until then the current version answers.",
};
const AGAIN = { ...LOAD, title: "Load again", warning: `The server reads its bundle again. ${LOAD.warning}` };
const UNLOAD = {
  path: "unload",
  title: "Unload",
  doing: "Unloading",
  done: "Unloaded",
  warning: "The server then refuses requests for it, and finishes those that it has accepted.",
};

function Table({ entries, allowed, requested }) {
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
                html`<span class="badge" title="The version of requests without a version">default</span>`
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
                        requested.value = { name, version, verb };
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

/** Dialog that confirms a change. */
function Confirmation({ requested, act }) {
  const dialog = useRef(null);
  const wanted = requested.value;
  useEffect(() => {
    if (wanted) dialog.current.showModal();
  }, [wanted]);
  const close = ({ currentTarget: closed }) => {
    requested.value = null;
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
