/** An answer as files: CSV, JSON and a picture of the charts. */

import { colour } from "./theme.js";
import { isoOf } from "./time.js";

/**
 * The forecast as a CSV: one row for each step; quantiles are columns `<channel>_q<level>`, the second
 * scenario `<channel>_<its name>`.
 * @param {object} answer of `POST /forecast`
 * @param {string[]} targets
 * @param {import("./panels.js").Panels} panels
 * @returns {string}
 */
export function csvOf(answer, targets, panels) {
  const [forecast] = answer.outputs[0].content;
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const value = (rows, step, target) => (Array.isArray(rows[step]) ? rows[step][target] : rows[step]);
  const [, ...others] = forecast.scenarios ?? [];
  const further = [
    ...Object.entries(forecast.quantiles ?? {}).map(([level, values]) => [`q${level}`, values]),
    ...others.map((scenario) => [scenario.name, scenario.mean_forecast]),
  ];
  const header = ["time", ...targets.flatMap((name) => [name, ...further.map(([end]) => `${name}_${end}`)])];
  const rows = forecast.mean_forecast.map((_, step) => [
    forecast.timestamps?.[step] ?? (panels.time ? isoOf(panels.x[panels.rows + step]) : String(step + 1)),
    ...targets.flatMap((_name, target) => [
      value(forecast.mean_forecast, step, target),
      ...further.map(([, values]) => value(values, step, target)),
    ]),
  ]);
  return [header, ...rows].map((cells) => `${cells.map((one) => cell(String(one))).join(",")}\n`).join("");
}

/**
 * Saves a file.
 * @param {string} name
 * @param {Blob} blob
 */
export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * A picture of charts, one below the other, with a title and a legend.
 * @param {string} title
 * @param {{name: string, canvas: HTMLCanvasElement}[]} charts
 * @param {string} legend
 * @returns {Promise<Blob>} PNG
 */
export function pictureOf(title, charts, legend) {
  const scale = devicePixelRatio;
  const [pad, head, label] = [16 * scale, 64 * scale, 24 * scale];
  const picture = document.createElement("canvas");
  picture.width = Math.max(...charts.map(({ canvas }) => canvas.width)) + 2 * pad;
  picture.height = head + pad + charts.reduce((sum, { canvas }) => sum + canvas.height + label, 0);
  const brush = picture.getContext("2d");
  brush.fillStyle = colour("--panel");
  brush.fillRect(0, 0, picture.width, picture.height);
  const write = (text, size, weight, tone, y) => {
    brush.font = `${weight} ${size * scale}px system-ui, sans-serif`;
    brush.fillStyle = colour(tone);
    brush.fillText(text, pad, y);
  };
  write(title, 16, 600, "--ink", 28 * scale);
  write(legend, 12, 400, "--muted", 50 * scale);
  let top = head;
  for (const { name, canvas } of charts) {
    write(name, 13, 600, "--ink", top + 14 * scale);
    brush.drawImage(canvas, pad, top + label);
    top += canvas.height + label;
  }
  return new Promise((resolve) => picture.toBlob(resolve, "image/png"));
}
