/** Colours of the style sheet, for canvases, which know no custom properties. */

const probe = document.createElement("span");
probe.hidden = true;

/**
 * A custom property's colour as the theme has it now.
 * @param {string} name such as --accent
 * @param {number} [alpha]
 * @returns {string} rgb(…) or rgba(…)
 */
export function colour(name, alpha = 1) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  const resolved = getComputedStyle(probe).color;
  return alpha === 1 ? resolved : resolved.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);
}
