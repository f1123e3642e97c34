/** A map of weights on a canvas, with a cursor for mouse, finger and keys. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { html } from "htm/preact";
import { ramp } from "./colours.js";
import { pooled } from "./evidence.js";
import { colour, dark } from "./theme.js";
import { useWidth } from "./width.js";

const MARGIN = { left: 104, bottom: 40, top: 8, right: 12 };
const TALLEST = 440;
const MOST_CELLS = 1200;

/**
 * @param {object} props
 * @param {import("./evidence.js").Matrix} props.matrix
 * @param {[string, string]} props.titles of rows and columns
 * @param {(row: number) => string} props.rowText short, for the axis
 * @param {(column: number) => string} props.columnText
 * @param {number | null} props.ahead the first row of the forecast, if there are rows before it
 * @param {string} props.summary description for screen readers
 * @param {{row: number, column: number} | null} props.at cell of the cursor
 * @param {(at: {row: number, column: number} | null) => void} props.onMove
 */
export function Heatmap({ matrix, titles, rowText, columnText, ahead, summary, at, onMove }) {
  const canvas = useRef(null);
  const [element, width] = useWidth();
  const height = heightOf(matrix, width);
  const picture = useMemo(() => paint(matrix, dark.value), [matrix, dark.value]);

  useEffect(() => {
    if (width)
      draw(canvas.current, {
        width,
        height,
        picture,
        matrix,
        titles,
        rowText,
        columnText,
        ahead,
        at,
      });
  }, [width, height, picture, at, titles, rowText, columnText]);

  const point = (event) => {
    const cell = cellAt(event, canvas.current, matrix, width, height);
    if (cell) onMove(cell);
  };
  const press = (event) => {
    const next = moved(event.key, at, matrix);
    if (next === undefined) return;
    event.preventDefault();
    onMove(next);
  };
  return html`<div ref=${element} class="heatmap">
    <canvas
      ref=${canvas}
      role="img"
      tabindex="0"
      aria-label=${`${summary} Arrow keys move a cursor.`}
      onPointerMove=${point}
      onPointerDown=${point}
      onKeyDown=${press}
    ></canvas>
  </div>`;
}

function heightOf({ rows, columns }, width) {
  const cell = Math.max(1, (width - MARGIN.left - MARGIN.right) / columns.length);
  const body = Math.min(TALLEST, Math.max(cell, 3) * rows.length, 34 * rows.length);
  return Math.round(Math.max(body, 60)) + MARGIN.top + MARGIN.bottom;
}

const frame = (width, height) => ({
  x: MARGIN.left,
  y: MARGIN.top,
  width: width - MARGIN.left - MARGIN.right,
  height: height - MARGIN.top - MARGIN.bottom,
});

/** The cells as an image of one pixel each. */
function paint(matrix, dark) {
  const { values, rows, columns } = pooled(matrix, MOST_CELLS);
  const shades = ramp(dark);
  const image = new ImageData(columns, rows);
  values.forEach((weight, cell) => {
    const shade = Math.round((255 * weight) / (matrix.largest || 1));
    image.data.set(shades.subarray(4 * shade, 4 * shade + 4), 4 * cell);
  });
  const canvas = new OffscreenCanvas(columns, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function draw(canvas, { width, height, picture, matrix, titles, rowText, columnText, ahead, at }) {
  const scale = window.devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const area = frame(width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, area.x, area.y, area.width, area.height);
  context.strokeStyle = colour("--line");
  context.strokeRect(area.x - 0.5, area.y - 0.5, area.width + 1, area.height + 1);
  label(context, area, matrix, titles, rowText, columnText);
  if (ahead !== null) divide(context, area, matrix, ahead);
  if (at) cross(context, area, matrix, at);
}

function label(context, area, { rows, columns }, titles, rowText, columnText) {
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = colour("--muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const row of ticks(rows.length, area.height / 22)) {
    const y = area.y + ((row + 0.5) * area.height) / rows.length;
    context.fillText(clipped(context, rowText(row), MARGIN.left - 10), area.x - 6, y);
  }
  context.textAlign = "center";
  const room = columns.length > 1 ? 104 : area.width;
  for (const column of ticks(columns.length, area.width / room)) {
    const x = area.x + ((column + 0.5) * area.width) / columns.length;
    context.fillText(clipped(context, columnText(column), room - 6), x, area.y + area.height + 12);
  }
  context.fillStyle = colour("--ink");
  context.fillText(`${titles[1]} →`, area.x + area.width / 2, area.y + area.height + 31);
  context.textAlign = "left";
  context.fillText(`${titles[0]} ↓`, 2, area.y + area.height + 31);
}

/** Evenly spaced indices, as many as there is room for. */
function ticks(length, room) {
  const step = Math.ceil(length / Math.max(1, Math.floor(room)));
  return Array.from({ length: Math.ceil(length / step) }, (_, index) => index * step);
}

function clipped(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/** A line between queries of the history and of the forecast. */
function divide(context, area, { rows }, ahead) {
  const y = Math.round(area.y + (ahead / rows.length) * area.height) + 0.5;
  context.strokeStyle = context.fillStyle = colour("--ink");
  context.setLineDash([4, 4]);
  context.beginPath();
  context.moveTo(area.x, y);
  context.lineTo(area.x + area.width, y);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "left";
  context.fillText("forecast ↓", area.x + 6, y + 10);
}

function cross(context, area, { rows, columns }, { row, column }) {
  const [w, h] = [area.width / columns.length, area.height / rows.length];
  const [x, y] = [area.x + column * w, area.y + row * h];
  context.strokeStyle = colour("--accent");
  context.lineWidth = 1;
  context.strokeRect(area.x, y - 0.5, area.width, h + 1);
  context.strokeRect(x - 0.5, area.y, w + 1, area.height);
  context.strokeStyle = colour("--ink");
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, w + 2, h + 2);
}

/** The cell under the pointer; null outside the map. */
function cellAt(event, canvas, { rows, columns }, width, height) {
  const box = canvas.getBoundingClientRect();
  const area = frame(width, height);
  const column = Math.floor(((event.clientX - box.left - area.x) / area.width) * columns.length);
  const row = Math.floor(((event.clientY - box.top - area.y) / area.height) * rows.length);
  const inside = row >= 0 && column >= 0 && row < rows.length && column < columns.length;
  return inside ? { row, column } : null;
}

const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

/** The cursor after a key: null hides it; undefined if the key has no meaning here. */
function moved(key, at, { rows, columns }) {
  if (key === "Escape") return at ? null : undefined;
  const step = STEPS[key];
  if (!step) return undefined;
  if (!at) return { row: 0, column: 0 };
  const within = (place, length) => Math.min(Math.max(place, 0), length - 1);
  return {
    row: within(at.row + step[0], rows.length),
    column: within(at.column + step[1], columns.length),
  };
}

/**
 * Legend of a map's colours.
 * @param {{largest: string}} props the largest weight, in words
 */
export function Scale({ largest }) {
  const canvas = useRef(null);
  useEffect(() => {
    const shades = new ImageData(ramp(dark.value), 256, 1);
    canvas.current.getContext("2d").putImageData(shades, 0, 0);
  }, [dark.value]);
  return html`<p class="scale">
    0 <canvas ref=${canvas} width="256" height="1" aria-hidden="true"></canvas> ${largest}
  </p>`;
}
