/** A chart of series over time, by uPlot; charts of a group share cursor and zoom. */

import uPlot from "uplot";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { colour, dark } from "./theme.js";

const DAY = 86_400;
const FONT = "11px system-ui, sans-serif";
const STYLES = {
  history: { stroke: "--ink", width: 1.25 },
  forecast: { stroke: "--accent", width: 2 },
  actual: { stroke: "--ink", width: 1, dash: [2, 3], points: { show: true, size: 4 } },
  bound: { stroke: "transparent", width: 0 },
};

/**
 * Cursor and zoom that charts share.
 * @typedef {object} Group
 * @property {Set<uPlot>} charts
 * @property {import("@preact/signals").Signal<number | null>} at x under the cursor
 * @property {import("@preact/signals").Signal<[number, number] | null>} zoom null means `home`
 * @property {[number, number] | null} home range at first; null is everything
 * @returns {Group}
 */
export const linked = () => ({ charts: new Set(), at: signal(null), zoom: signal(null), home: null });

/**
 * Zooms all charts of a group, or moves their range.
 * @param {Group} group
 * @param {number} factor of the width: below 1 zooms in
 * @param {number} [shift] of the width, to the right
 */
export function zoomBy(group, factor, shift = 0) {
  const [chart] = group.charts;
  if (!chart) return;
  const [data] = chart.data;
  const { min, max } = chart.scales.x;
  const width = (max - min) * factor;
  const middle = (min + max) / 2 + shift * (max - min);
  const first = Math.max(data[0], Math.min(middle - width / 2, data.at(-1) - width));
  group.zoom.value = [first, Math.min(first + width, data.at(-1))];
}

/**
 * Moves the cursor of all charts of a group by steps.
 * @param {Group} group
 * @param {number} steps
 */
export function stepBy(group, steps) {
  const [chart] = group.charts;
  if (!chart) return;
  const [data] = chart.data;
  const [first, last] = chart.series[0].idxs;
  const here = group.at.value === null ? last - steps : data.indexOf(group.at.value);
  group.at.value = data[Math.max(first, Math.min(last, here + steps))];
}

/**
 * @param {object} props memoised by the caller: a change makes a new chart
 * @param {number[]} props.x seconds since 1970 in local time, or numbers of steps; ascending
 * @param {boolean} props.time whether x are seconds
 * @param {{label: string, values: (number | null)[], kind?: string, colour?: string,
 *   dash?: number[], width?: number, points?: boolean}[]} props.series kind: history, forecast,
 *   actual or bound, or a colour (also a custom property's name)
 * @param {[number, number, number][]} [props.bands] index of the upper and lower series, opacity
 * @param {{x: number, label: string}[]} [props.lines] vertical, dashed
 * @param {[number, number, number][]} [props.marks] from x, to x, weight from 0 to 1
 * @param {[number, number]} [props.range] of the values; as the values need it if absent
 * @param {number} [props.height]
 * @param {string} props.label title for screen readers
 * @param {string} props.summary description for screen readers
 * @param {Group} [props.group]
 */
export default function Chart(props) {
  const { x, time, series, bands, lines, marks, height = 200, label, summary, group } = props;
  const box = useRef(null);
  const chart = useRef(null);

  useLayoutEffect(() => {
    const made = new uPlot(optionsOf(props, box.current.clientWidth), dataOf(props), box.current);
    chart.current = made;
    group?.charts.add(made);
    zoomTo(made, group);
    const resized = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width && width !== made.width) made.setSize({ width, height });
    });
    resized.observe(box.current);
    return () => {
      resized.disconnect();
      group?.charts.delete(made);
      made.destroy();
    };
  }, [x, time, series, bands, lines, marks, height, group, dark.value]);

  useEffect(() => group?.at.subscribe((at) => moveCursor(chart.current, at)), [group]);
  useEffect(() => group?.zoom.subscribe(() => zoomTo(chart.current, group)), [group]);

  return html`<div class="chart" role="img" aria-label=${`${label}: ${summary}`} ref=${box}></div>`;
}

const dataOf = ({ x, series }) => [x, ...series.map(({ values }) => values)];

function zoomTo(chart, group) {
  if (!group) return;
  const [data] = chart.data;
  const [min, max] = group.zoom.value ?? group.home ?? [data[0], data.at(-1)];
  if (chart.scales.x.min !== min || chart.scales.x.max !== max) chart.setScale("x", { min, max });
}

function moveCursor(chart, at) {
  const left = at === null ? -10 : chart.valToPos(at, "x");
  if (Math.round(chart.cursor.left) !== Math.round(left)) {
    chart.setCursor({ left, top: at === null ? -10 : 1 }, false);
  }
}

function optionsOf(props, width) {
  const { time, series, bands = [], lines = [], marks = [], range, height = 200, group } = props;
  const axis = {
    stroke: colour("--muted"),
    font: FONT,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height,
    padding: [8, 14, 0, 0],
    legend: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: { x: { time }, ...(range && { y: { range } }) },
    axes: [
      { ...axis, size: time ? 38 : 22, gap: 6, space: 64, ...(time && { values: timesAt }) },
      { ...axis, size: 52, gap: 4 },
    ],
    series: [{}, ...series.map(styleOf)],
    bands: bands.map(([high, low, alpha]) => ({
      series: [high + 1, low + 1],
      fill: colour("--accent", alpha),
    })),
    cursor: {
      y: false,
      drag: { x: Boolean(group), y: false, setScale: true },
      points: { size: 5 },
    },
    hooks: {
      drawAxes: [(chart) => shade(chart, marks), (chart) => rule(chart, lines)],
      setCursor: [
        (chart) => {
          // The other charts follow the pointer, not each other.
          if (group && chart.cursor.event) group.at.value = chart.data[0][chart.cursor.idx] ?? null;
        },
      ],
      setSelect: [
        (chart) => {
          if (group && chart.select.width > 2) {
            const ends = [chart.select.left, chart.select.left + chart.select.width];
            group.zoom.value = ends.map((place) => chart.posToVal(place, "x"));
          }
        },
      ],
      ready: [(chart) => listen(chart, group)],
    },
  };
}

/** Labels of times. The first label, and each with a new year or day, has it in a second line. */
function timesAt(_chart, places, _axis, _space, apart) {
  let before = "";
  return places.map((place) => {
    const text = new Date(place * 1000).toISOString();
    if (apart >= 28 * DAY) return text.slice(0, apart >= 365 * DAY ? 4 : 7);
    const [label, rest] =
      apart >= DAY
        ? [text.slice(5, 10), text.slice(0, 4)]
        : [text.slice(11, apart < 60 ? 19 : 16), text.slice(0, 10)];
    const changed = rest !== before;
    before = rest;
    return changed ? `${label}\n${rest}` : label;
  });
}

function styleOf({ label, kind, colour: given, dash, width, points }) {
  const style = STYLES[kind] ?? STYLES.history;
  const stroke = given ?? style.stroke;
  return {
    ...style,
    label,
    width: width ?? style.width,
    dash: dash ?? style.dash,
    stroke: colour(stroke),
    points: points === undefined ? (style.points ?? { show: false }) : { show: points, size: 4 },
  };
}

/** Touch moves the cursor, and a double click resets the zoom. */
function listen(chart, group) {
  if (!group) return;
  const touched = (event) => {
    const left = event.touches[0].clientX - chart.over.getBoundingClientRect().left;
    group.at.value = chart.data[0][chart.posToIdx(left)];
  };
  chart.over.addEventListener("touchstart", touched, { passive: true });
  chart.over.addEventListener("touchmove", touched, { passive: true });
  chart.over.addEventListener("dblclick", () => {
    group.zoom.value = null;
    zoomTo(chart, group);
  });
}

function shade(chart, marks) {
  const { left, top, width, height } = chart.bbox;
  for (const [from, to, weight] of marks) {
    const first = Math.max(left, chart.valToPos(from, "x", true));
    const last = Math.min(left + width, chart.valToPos(to, "x", true));
    if (last < left || first > left + width) continue;
    chart.ctx.fillStyle = colour("--accent", 0.08 + 0.42 * weight);
    chart.ctx.fillRect(first, top, Math.max(1, last - first), height);
  }
}

function rule(chart, lines) {
  const { left, top, width, height } = chart.bbox;
  const { ctx } = chart;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("--muted");
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const { x, label } of lines) {
    const place = Math.round(chart.valToPos(x, "x", true)) + 0.5;
    if (place < left || place > left + width) continue;
    ctx.beginPath();
    ctx.moveTo(place, top);
    ctx.lineTo(place, top + height);
    ctx.stroke();
    const beside = place > left + 0.75 * width ? -1 : 1;
    ctx.textAlign = beside < 0 ? "right" : "left";
    ctx.fillText(label, place + beside * 4 * devicePixelRatio, top + 10 * devicePixelRatio);
  }
  ctx.restore();
}
