/** Asking a model what it looked at. */

import { ApiError, get, post } from "./api.js";
import { requestOf } from "./request.js";

/**
 * @typedef {object} Explained
 * @property {object} content the forecast, with `attention`
 * @property {number | null} head that was answered; null is the mean of all
 * @property {"" | "stages" | "heads"} left what had to be left out: other stages, or other heads too
 */

/**
 * Asks for the attention of a source's forecast: of all stages, or, where the server would not
 * answer so much, of one, or of one head of it.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {object} options as in the store
 * @param {{stage: string | null, head: number | null}} choice a stage, and a head or their mean
 * @returns {Promise<Explained>}
 * @throws {ApiError}
 */
export async function explain(source, card, options, { stage, head }) {
  const request = requestOf(source, card, { ...options, level: null });
  const one = { stages: [stage ?? card.attention[0]] };
  const tries = [{ ...(stage ? one : {}), head, left: "" }];
  if (!stage) tries.push({ ...one, head, left: "stages" });
  if (head === null) tries.push({ ...one, head: 0, left: "heads" });
  for (;;) {
    const { head: asked, left, ...stages } = tries.shift();
    const attention = { heads: asked === null ? "mean" : [asked], ...stages };
    // Attention is that of the first pass.
    const sent = { ...request.options, horizon: card.horizon, attention };
    try {
      const body = await post("/forecast", { ...request, options: sent });
      return { content: body.outputs[0].content[0], head: asked, left };
    } catch (error) {
      // Too much, or no stage has a map.
      const less = error instanceof ApiError && error.param?.startsWith("options.attention");
      if (!less || !tries.length) throw error;
    }
  }
}

/**
 * How many heads each stage has whose map is one of heads.
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
 * The stage that says most of a forecast: one whose forecast steps look at history, each at steps
 * of its own.
 * @param {import("./evidence.js").Stage[]} stages
 * @param {ReturnType<import("./evidence.js").placing>} placeOf
 * @param {number} rows of the history
 * @returns {import("./evidence.js").Stage | undefined}
 */
export function telling(stages, placeOf, rows) {
  const maps = stages.filter(({ form }) => form !== "none");
  const ahead = (label) => (placeOf(label)?.[0] ?? -1) >= rows;
  const behind = (label) => (placeOf(label)?.[0] ?? rows) < rows;
  const across = ({ form, query, key }) =>
    form !== "circulant" && query.some(ahead) && key.every(behind);
  return maps.find(across) ?? maps[0] ?? stages[0];
}
