/** The page's entry: what is under `#app`. */
import { html, render } from 'htm/preact';

render(html`<main><h1>foretell</h1></main>`, document.getElementById('app'));
