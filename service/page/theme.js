/** Light or dark theme, and colours for canvases, which cannot use custom properties. */

import { computed, effect, signal } from "@preact/signals";

/** "light", "dark", or "" for the system's theme. */
export const theme = signal(localStorage.getItem("foretell.theme") ?? "");

const query = matchMedia("(prefers-color-scheme: dark)");
const system = signal(query.matches);
query.addEventListener("change", () => (system.value = query.matches));

/** Whether the theme is dark now. */
export const dark = computed(() => (theme.value ? theme.value === "dark" : system.value));

effect(() => {
  localStorage.setItem("foretell.theme", theme.value);
  document.documentElement.dataset.theme = theme.value;
});

const probe = document.createElement("span");
probe.hidden = true;

/**
 * A colour of the current theme.
 * @param {string} name of a custom property such as --accent, or any other colour
 * @param {number} [alpha]
 * @returns {string} rgb(…) or rgba(…)
 */
export function colour(name, alpha = 1) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = name.startsWith("--") ? `var(${name})` : name;
  const resolved = getComputedStyle(probe).color;
  return alpha === 1 ? resolved : resolved.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);
}
