/** Asking a model what it looked at. */

import { ApiError, get, post } from "./api.js";
import { requestOf } from "./request.js";

/**
 * @typedef {object} Explained
 * @property {object} content the forecast, with `attention`
 * @property {boolean} single whether stages have to be asked for one by one
 */

/**
 * Asks for the attention of a source's forecast: of all stages, or, where the server would not
 * answer that, of one.
 * @param {import("./store.js").Source} source
 * @param {object} card
 * @param {object} options as in the store
 * @param {{stage: string | null, head: number | null}} choice a stage, and a head or their mean
 * @returns {Promise<Explained>}
 * @throws {ApiError}
 */
export async function explain(source, card, options, { stage, head }) {
  const request = requestOf(source, card, { ...options, level: null });
  const ask = async (stages) => {
    const attention = { heads: head === null ? "mean" : [head], ...stages };
    // Attention is that of the first pass.
    const sent = { ...request.options, horizon: card.horizon, attention };
    const body = await post("/forecast", { ...request, options: sent });
    return body.outputs[0].content[0];
  };
  if (stage) return { content: await ask({ stages: [stage] }), single: true };
  try {
    return { content: await ask({}), single: false };
  } catch (error) {
    // Too much, or no stage has a map.
    const asked = error instanceof ApiError && error.param?.startsWith("options.attention");
    if (!asked || !card.attention.length) throw error;
    return { content: await ask({ stages: [card.attention[0]] }), single: true };
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
