/** The colours of weights: one hue, with steps of lightness that look alike. */

const STEPS = 256;
const HUE = 255;
// Lightness and chroma of nothing, and of the most: from the ground of the theme away from it.
const LIGHT = [
  [0.975, 0.008],
  [0.32, 0.15],
];
const DARK = [
  [0.24, 0.015],
  [0.95, 0.06],
];

/**
 * @param {number} share between 0 and 1
 * @param {boolean} dark whether the ground is
 * @returns {string} a CSS colour; lightness is linear in the share
 */
export function shade(share, dark) {
  const [[fromL, fromC], [toL, toC]] = dark ? DARK : LIGHT;
  // Most colour in the middle, where there is room for it.
  const chroma = fromC + (toC - fromC) * share + 0.1 * share * (1 - share);
  return `oklch(${fromL + (toL - fromL) * share} ${chroma} ${HUE})`;
}

/**
 * All shades, as bytes.
 * @param {boolean} dark
 * @returns {Uint8ClampedArray} red, green, blue and opacity of each
 */
export function ramp(dark) {
  const canvas = new OffscreenCanvas(STEPS, 1);
  const context = canvas.getContext("2d");
  for (let step = 0; step < STEPS; step += 1) {
    context.fillStyle = shade(step / (STEPS - 1), dark);
    context.fillRect(step, 0, 1, 1);
  }
  return context.getImageData(0, 0, STEPS, 1).data;
}
