/** Stored forecasts of a series, laid over the actual values. */

import { useMemo, useState } from "preact/hooks";
import { html } from "htm/preact";
import { linked } from "./chart.js";
import { Swatch, lineOf } from "./overlay.js";
import { Picture, Pictures, Tools } from "./picture.js";
import { levelOf } from "./scores.js";
import { secondsOf } from "./time.js";
import { counted, digits, percent } from "./words.js";

/** Steps that are shown at first. */
const SHOWN = matchMedia("(min-width: 700px)").matches ? 240 : 96;

/**
 * @param {object} props
 * @param {object} props.found answer of `GET /models/{model}/trajectories`
 * @param {{name: string, place: number}[]} props.versions
 * @param {string} props.channel
 * @param {string} props.frequency
 */
export function Outcomes({ found, versions, channel, frequency }) {
  const [group] = useState(linked);
  const picture = useMemo(
    () => pictureOf(found, versions, channel, frequency),
    [found, channel, frequency],
  );
  if (!picture) {
    return html`<p class="muted">No forecast of ${channel} is stored for this series and these days.</p>`;
  }
  const { x } = picture;
  group.home = [x[Math.max(0, x.length - SHOWN)], x.at(-1)];
  return html`
    <div class="row spread">
      <${Tools} group=${group} />
    </div>
    <ul class="legend" aria-label="Legend">
      <li><span class="key line"></span>actual</li>
      ${picture.versions.map(
        ({ name, place }) =>
          html`<li key=${name}><${Swatch} place=${place} /> forecast, version ${name}</li>`,
      )}
      ${
        picture.level &&
        html`<li>
          <span class="key band"></span>${percent(Number(picture.level))} interval, version${" "}
          ${picture.versions.at(-1).name}
        </li>`
      }
    </ul>
    <${Pictures} group=${group} one>
      <${Picture} picture=${picture} group=${group} height=${280} />
    <//>
    <p class="hint">
      Each dashed line is the time of a forecast; the values up to the next line are its steps.
    </p>
  `;
}

/**
 * The props of the chart, with the versions that it shows and the level of its interval.
 * @param {object} found answer of `GET /models/{model}/trajectories`
 * @param {{name: string, place: number}[]} known versions
 * @param {string} channel
 * @param {string} frequency
 * @returns {object | null} null without forecasts of the channel
 */
export function pictureOf({ forecasts, actuals }, known, channel, frequency) {
  const own = forecasts.filter(({ channels }) => channels.includes(channel));
  if (!own.length) return null;
  const times = new Set([...actuals.timestamps, ...own.flatMap(({ timestamps }) => timestamps)]);
  const axis = new Map([...times].sort().map((time, place) => [time, place]));
  const empty = () => Array(axis.size).fill(null);
  const put = (values, timestamps, valueOf) =>
    timestamps.forEach((time, at) => {
      values[axis.get(time)] = valueOf(at);
    });
  /** The values of a version's forecasts, one after the other. */
  const joined = (version, stepsOf) => {
    const values = empty();
    for (const one of own) {
      const steps = one.version === version && stepsOf(one);
      const column = one.channels.indexOf(channel);
      if (steps) put(values, one.timestamps, (at) => steps[at][column]);
    }
    return values;
  };
  const actual = empty();
  put(actual, actuals.timestamps, (at) => actuals.values[channel]?.[at] ?? null);
  const versions = known.filter(({ name }) => own.some(({ version }) => version === name));
  const latest = versions.at(-1)?.name;
  const level = levelOf(levelsOf(own.filter(({ version }) => version === latest)));
  const series = level === null ? [] : boundsOf(level, (stepsOf) => joined(latest, stepsOf));
  series.push({ label: "actual", values: actual, kind: "history" });
  const lines = versions.map(({ name, place }) => ({
    label: `version ${name}`,
    values: joined(name, ({ mean }) => mean),
    ...lineOf(place),
  }));
  const origins = [...new Set(own.map(({ origin }) => origin))];
  return {
    x: secondsOf([...axis.keys()]),
    time: true,
    from: 0,
    frequency,
    level,
    versions,
    series: [...series, ...lines],
    bands: level === null ? [] : [[0, 1, 0.16]],
    lines: secondsOf(origins).map((x) => ({ x, label: "" })),
    label: channel,
    summary: summaryOf(own.length, actual, lines),
  };
}

const same = (one, other) => Math.abs(one - other) < 1e-9;

/** The levels of the intervals that all forecasts have. */
function levelsOf(forecasts) {
  const levels = forecasts.map(({ quantiles }) => Object.keys(quantiles).map(Number));
  const shared = (levels[0] ?? []).filter((one) => levels.every((each) => each.includes(one)));
  return shared
    .filter((one) => one < 0.5 && shared.some((other) => same(one + other, 1)))
    .map((one) => String(Number((1 - 2 * one).toFixed(9))));
}

function boundsOf(level, joined) {
  const end = (wanted) => ({ quantiles }) =>
    quantiles[Object.keys(quantiles).find((name) => same(name, wanted))];
  const share = percent(Number(level));
  return [
    { label: `upper end of ${share}`, values: joined(end((1 + Number(level)) / 2)), kind: "bound" },
    { label: `lower end of ${share}`, values: joined(end((1 - Number(level)) / 2)), kind: "bound" },
  ];
}

function summaryOf(count, actual, lines) {
  const range = (values) => {
    const given = values.filter((value) => value !== null);
    if (!given.length) return "unknown";
    const ends = [Math.min(...given), Math.max(...given)];
    return ends.map((value) => digits(value, ends[1] - ends[0])).join(" to ");
  };
  const texts = lines.map(({ label, values }) => `${label} ${range(values)}`);
  return `${counted(count, "forecast")}: actual ${range(actual)}; ${texts.join("; ")}.`;
}
