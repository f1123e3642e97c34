/** Counts of a server, from its metrics or its models' statistics, and their changes. */

import { difference, histogram, parseMetrics, quantile, total } from "./metrics.js";

/** @typedef {{buckets: import('./metrics.js').Buckets, sum: number, count: number}} Histogram */
/**
 * @typedef {object} Reading Counts since the server started.
 * @property {number} at Time in seconds.
 * @property {number} requests Requests for models.
 * @property {number} errors Requests that were refused or failed.
 * @property {Histogram} latency Seconds of requests for forecasts.
 * @property {Record<string, Histogram>} stages Seconds by stage.
 * @property {Histogram} fill Shares of the largest batch; in statistics, windows per batch.
 * @property {Record<string, number>} loads Loads by outcome.
 * @property {number|null} queued Windows in queues; null if unknown.
 * @property {number|null} inFlight Requests in flight; null if unknown.
 * @property {number|null} memory Bytes of all processes.
 * @property {boolean} detailed Whether there are histograms.
 */

/** Stages in the order of a request. */
export const STAGES = ["decode", "queue", "assemble", "run", "encode"];
const FORECASTS = /\/forecast$|\/backtest$|\/infer$/;
const failed = ({ status }) => Number(status) >= 400;

/**
 * Reads `GET /metrics`.
 * @param {string} text
 * @param {number} at Seconds of any clock.
 * @returns {Reading}
 */
export function ofMetrics(text, at) {
  const metrics = parseMetrics(text);
  const all = "foretell_requests_total";
  const outcomes = (metrics.get("foretell_model_loads_total") ?? []).map((s) => s.labels.outcome);
  return {
    at,
    // The page itself polls other routes; only requests for models count.
    requests: total(
      metrics,
      all,
      ({ route, status }) => FORECASTS.test(route) || failed({ status }),
    ),
    errors: total(metrics, all, failed),
    latency: histogram(metrics, "foretell_request_seconds", ({ route }) => FORECASTS.test(route)),
    stages: Object.fromEntries(
      STAGES.map((name) => [
        name,
        histogram(metrics, "foretell_stage_seconds", ({ stage }) => stage === name),
      ]),
    ),
    fill: histogram(metrics, "foretell_batch_fill"),
    loads: Object.fromEntries(
      outcomes.map((name) => [
        name,
        total(metrics, "foretell_model_loads_total", ({ outcome }) => outcome === name),
      ]),
    ),
    queued: total(metrics, "foretell_queue_depth"),
    // Without the request for the metrics.
    inFlight: Math.max(0, total(metrics, "foretell_requests_in_flight") - 1),
    memory: total(metrics, "process_resident_memory_bytes"),
    detailed: true,
  };
}

/**
 * Reads `GET /v2/models/stats`, which has means and no histograms.
 * @param {{model_stats: object[]}} report
 * @param {number} at Seconds of any clock.
 * @returns {Reading}
 */
export function ofStatistics(report, at) {
  const models = report.model_stats;
  const sum = (pick) => models.reduce((found, model) => found + pick(model), 0);
  const times = (pick) => ({
    buckets: [],
    sum: sum((model) => pick(model).ns) / 1e9,
    count: sum((model) => pick(model).count),
  });
  const of = (name) => times((model) => model.inference_stats[name]);
  const errors = sum((model) => model.inference_stats.fail.count);
  return {
    at,
    requests: of("success").count + errors,
    errors,
    latency: of("success"),
    stages: {
      decode: of("compute_input"),
      queue: of("queue"),
      run: of("compute_infer"),
      encode: of("compute_output"),
    },
    fill: {
      buckets: [],
      sum: sum((model) => model.inference_count),
      count: sum((model) => model.execution_count),
    },
    loads: {},
    queued: null,
    inFlight: null,
    memory: null,
    detailed: false,
  };
}

/**
 * Rates per second and latency in milliseconds between two readings.
 * @param {Reading} before
 * @param {Reading} after
 */
export function between(before, after) {
  const seconds = Math.max(after.at - before.at, 1e-9);
  // A new engine resets the counters.
  const rate = (name) => Math.max(0, after[name] - before[name]) / seconds;
  const latency = difference(before.latency, after.latency);
  const fill = difference(before.fill, after.fill);
  return {
    at: after.at,
    requests: rate("requests"),
    errors: rate("errors"),
    latency: times(latency),
    stages: Object.fromEntries(
      Object.entries(after.stages).map(([name, found]) => [
        name,
        times(difference(before.stages[name], found)),
      ]),
    ),
    fill: fill.count ? fill.sum / fill.count : null,
    queued: after.queued,
    inFlight: after.inFlight,
  };
}

/**
 * A histogram of seconds in milliseconds.
 * @param {Histogram} found
 * @returns {{count: number, mean: number|null, p50: number|null, p99: number|null}}
 */
export function times({ buckets, sum, count }) {
  const scaled = (value) => (value === null ? null : value * 1000);
  return {
    count,
    mean: count ? (sum / count) * 1000 : null,
    p50: scaled(quantile(buckets, 0.5)),
    p99: scaled(quantile(buckets, 0.99)),
  };
}
