/** The page's frame: navigation, key, theme, and the view that the URL names. */

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { KeyDialog } from "./key.js";
import { key, models, problem, readModels, source } from "./store.js";
import { dark, theme } from "./theme.js";
import Accuracy from "./views/accuracy.js";
import Compare from "./views/compare.js";
import Forecast from "./views/forecast.js";
import Operate from "./views/operate.js";
import Use from "./views/use.js";
import Why from "./views/why.js";

const VIEWS = {
  forecast: ["Forecast", Forecast],
  why: ["Why", Why],
  compare: ["Compare", Compare],
  accuracy: ["Did it come true", Accuracy],
  use: ["Use it", Use],
  operate: ["Operate", Operate],
};

const viewOfUrl = () => (location.hash.slice(2) in VIEWS ? location.hash.slice(2) : "forecast");
const route = signal(viewOfUrl());
const keyOpen = signal(false);
addEventListener("hashchange", () => {
  // The skip link changes the hash too.
  if (location.hash.startsWith("#/")) route.value = viewOfUrl();
});

function Header() {
  return html`
    <a class="brand" href="#/forecast"><span class="mark" aria-hidden="true"></span>foretell</a>
    <nav aria-label="Views">
      ${Object.entries(VIEWS)
        .filter(([name]) => name !== "accuracy" || models.value.some(({ ledger }) => ledger))
        .map(
          ([name, [title]]) =>
            html`<a href=${`#/${name}`} aria-current=${name === route.value ? "page" : undefined}
              >${title}</a
            >`,
        )}
    </nav>
    <div class="tools">
      <a href="docs">API</a>
      <button class="quiet" onClick=${() => (keyOpen.value = true)}>
        ${key.value ? "Key is set" : "Key"}
      </button>
      <button
        class="quiet"
        aria-pressed=${dark.value}
        onClick=${() => (theme.value = dark.value ? "light" : "dark")}
      >
        Dark
      </button>
    </div>
  `;
}

/** An error that no field shows. */
function ErrorMessage() {
  const error = problem.value;
  // The view Forecast shows an error with a place at that place.
  if (!error || (error.param && route.value === "forecast" && source.value)) return null;
  return html`<p class="error" role="alert">
    ${error.status === 401 ? "This server requires an API key. " : ""}${error.message}
    ${error.param ? html` <code>${error.param}</code>` : ""}
    <button class="quiet" onClick=${() => (problem.value = null)}>Dismiss</button>
  </p>`;
}

function Main() {
  const heading = useRef(null);
  const first = useRef(true);
  const [title, View] = VIEWS[route.value];
  useEffect(() => {
    document.title = `${title} – foretell`;
    if (!first.current) heading.current.focus();
    first.current = false;
  }, [title]);
  return html`
    <h1 class="view" tabindex="-1" ref=${heading}>${title}</h1>
    <${ErrorMessage} />
    <${View} key=${route.value} />
  `;
}

render(html`<${Header} />`, document.querySelector("header"));
render(html`<${Main} />`, document.querySelector("main"));
render(html`<${KeyDialog} open=${keyOpen} />`, document.querySelector("#dialogs"));
readModels();
