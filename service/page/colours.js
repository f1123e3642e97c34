/** Colours of weights: one hue, perceptually uniform in lightness. */

const STEPS = 256;
const HUE = 255;
// Lightness and chroma of the smallest and the largest weight; the smallest is near the background.
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
 * @param {boolean} dark whether the background is dark
 * @returns {string} a CSS colour; lightness is linear in the share
 */
export function shade(share, dark) {
  const [[fromL, fromC], [toL, toC]] = dark ? DARK : LIGHT;
  // sRGB has the most chroma at middle lightness.
  const chroma = fromC + (toC - fromC) * share + 0.1 * share * (1 - share);
  return `oklch(${fromL + (toL - fromL) * share} ${chroma} ${HUE})`;
}

/**
 * All shades as bytes.
 * @param {boolean} dark
 * @returns {Uint8ClampedArray} red, green, blue and opacity of each shade
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
