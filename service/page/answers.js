/** Answers for several models that are asked one after the other, each only once. */

import { useEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { ApiError, post } from "./api.js";

/**
 * @param {string} path
 * @param {{name: string, card: object}[]} lines the models
 * @param {((card: object) => object) | null} bodyOf what each is asked; null asks nothing
 * @param {unknown[]} about what answers depend on, besides the model
 * @returns {Record<string, {content?: object, error?: ApiError}>} by the line's name
 */
export function useAnswers(path, lines, bodyOf, about) {
  const found = useSignal({});
  // Those about something else are not shown, not even until there are new ones.
  const subject = useMemo(() => ({}), about);
  const known = found.value.subject === subject ? found.value.answers : {};
  useEffect(() => {
    let current = true;
    const ask = async () => {
      const answers = { ...known };
      for (const { name, card } of bodyOf ? lines : []) {
        if (answers[name]) continue;
        answers[name] = await answered(path, bodyOf(card));
        if (!current) return;
        found.value = { subject, answers: { ...answers } };
      }
    };
    ask();
    return () => {
      current = false;
    };
  }, [subject, lines.map(({ name }) => name).join()]);
  return known;
}

async function answered(path, body) {
  try {
    const { outputs } = await post(path, body);
    return { content: outputs[0].content[0] };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { error };
  }
}
