/** Answers for several models: one request for each, one after the other. */

import { useEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { ApiError, post } from "./api.js";

/**
 * @param {string} path
 * @param {{name: string, card: object}[]} lines the models
 * @param {((card: object) => object) | null} bodyOf body of a model's request; null sends nothing
 * @param {unknown[]} inputs values that answers depend on, besides the model
 * @returns {Record<string, {content?: object, error?: ApiError}>} by the line's name
 */
export function useAnswers(path, lines, bodyOf, inputs) {
  const found = useSignal({});
  // Answers for other inputs are never shown, not even while new ones are loading.
  const current = useMemo(() => ({}), inputs);
  const known = found.value.inputs === current ? found.value.answers : {};
  useEffect(() => {
    let mounted = true;
    const load = async () => {
      const answers = { ...known };
      for (const { name, card } of bodyOf ? lines : []) {
        if (answers[name]) continue;
        answers[name] = await answerOf(path, bodyOf(card));
        if (!mounted) return;
        found.value = { inputs: current, answers: { ...answers } };
      }
    };
    load();
    return () => {
      mounted = false;
    };
  }, [current, lines.map(({ name }) => name).join()]);
  return known;
}

async function answerOf(path, body) {
  try {
    const { outputs } = await post(path, body);
    return { content: outputs[0].content[0] };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { error };
  }
}
