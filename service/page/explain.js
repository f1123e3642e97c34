/** Requests of a model's attention. */

import { ApiError, get, post } from "./api.js";
import { requestOf } from "./request.js";

/**
 * @typedef {object} Explained
 * @property {object} content the forecast, with `attention`
 * @property {number | null} head the head of the answer; null is the mean of all
 * @property {"" | "stages" | "heads"} omitted other stages, or other heads too, if they are too large
 */

/**
 * Requests the attention of a source's forecast: of all stages or, if that is over the server's
 * limit, of one stage, or of one head of it.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {object} options as in the store
 * @param {{stage: string | null, head: number | null}} choice a stage, and a head or their mean
 * @returns {Promise<Explained>}
 * @throws {ApiError}
 */
export async function explain(source, card, options, { stage, head }) {
  // Only the first pass has attention.
  const plain = { ...options, level: null, importance: false, horizon: card.horizon };
  const request = requestOf(source, card, plain);
  const one = { stages: [stage ?? card.attention[0]] };
  const tries = [{ ...(stage ? one : {}), head, omitted: "" }];
  if (!stage) tries.push({ ...one, head, omitted: "stages" });
  if (head === null) tries.push({ ...one, head: 0, omitted: "heads" });
  for (;;) {
    const { head: requested, omitted, ...stages } = tries.shift();
    const attention = { heads: requested === null ? "mean" : [requested], ...stages };
    const sent = { ...request.options, attention };
    try {
      const body = await post("/forecast", { ...request, options: sent });
      return { content: body.outputs[0].content[0], head: requested, omitted };
    } catch (error) {
      // Over the limit, or a stage without a map.
      const isRefused = error instanceof ApiError && error.param?.startsWith("options.attention");
      if (!isRefused || !tries.length) throw error;
    }
  }
}

/**
 * Number of heads of each stage whose map has heads.
 * @param {object} card
 * @returns {Promise<Record<string, number>>} by the stage's name
 */
export async function headsOf(card) {
  const { outputs } = await get(`/v2/models/${card.name}/versions/${card.version}`);
  const counts = {};
  for (const { name, shape } of outputs) {
    if (name.endsWith(".weights")) counts[name.slice(0, -".weights".length)] = shape.at(-3);
  }
  return counts;
}

/**
 * The stage to show first: one whose forecast steps attend to history, each with its own weights.
 * @param {import("./evidence.js").Stage[]} stages
 * @param {ReturnType<import("./evidence.js").placing>} placeOf
 * @param {number} rows of the history
 * @returns {import("./evidence.js").Stage | undefined}
 */
export function mainStage(stages, placeOf, rows) {
  const maps = stages.filter(({ form }) => form !== "none");
  const ahead = (label) => (placeOf(label)?.[0] ?? -1) >= rows;
  const behind = (label) => (placeOf(label)?.[0] ?? rows) < rows;
  const across = ({ form, query, key }) =>
    form !== "circulant" && query.some(ahead) && key.every(behind);
  return maps.find(across) ?? maps[0] ?? stages[0];
}
