/** Calls of the server's API, with a key if the server requires one. */

import { effect, signal } from "@preact/signals";

export { requestOf } from "./request.js";

/** The key of the API; it stays in this tab. */
export const key = signal(sessionStorage.getItem("foretell.key") ?? "");
effect(() => sessionStorage.setItem("foretell.key", key.value));

/** An error of the API, with the API's message. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status; 0 if the server cannot be reached
   * @param {{message: string, param?: string | null, type?: string}} error
   */
  constructor(status, { message, param = null, type = "" }) {
    super(message);
    this.status = status;
    this.param = param;
    this.type = type;
  }
}

/**
 * URL of a path of the API, with the prefix of a proxy.
 * @param {string} path such as /models
 * @returns {URL}
 */
export const address = (path) => new URL(path.replace(/^\//, ""), document.baseURI.split("#")[0]);

/**
 * @param {string} path
 * @returns {Promise<any>} the body, parsed if it is JSON
 * @throws {ApiError}
 */
export const get = (path) => call(path, {});

/**
 * @param {string} path
 * @param {unknown} body
 * @param {string} [mark] a performance mark, set once the answer has arrived
 * @returns {Promise<any>}
 * @throws {ApiError}
 */
export const post = (path, body, mark) =>
  call(path, { method: "POST", body: JSON.stringify(body) }, mark);

/** Prompts for a key; resolves to whether the key has changed. The key dialog sets it. */
let promptForKey = async () => false;
/** @param {(refused: string) => Promise<boolean>} prompt */
export const setKeyPrompt = (prompt) => {
  promptForKey = prompt;
};
let openPrompt = null;

async function call(path, init, mark) {
  const used = key.value;
  const headers = init.body ? { "Content-Type": "application/json" } : {};
  if (used) headers.Authorization = `Bearer ${used}`;
  let response, text;
  try {
    response = await fetch(address(path), { ...init, headers });
    text = await response.text();
  } catch {
    throw new ApiError(0, { message: "The server cannot be reached. Is it still running?" });
  }
  if (mark) performance.mark(mark);
  const json = response.headers.get("Content-Type")?.startsWith("application/json");
  const body = json && text ? JSON.parse(text) : text;
  if (response.ok) return body;
  const error = new ApiError(response.status, errorOf(body, response));
  if (error.status !== 401) throw error;
  // Requests that fail at the same time share one prompt.
  if (key.value === used) openPrompt ??= promptForKey(used).finally(() => (openPrompt = null));
  if (key.value === used && !(await openPrompt)) throw error;
  return call(path, init, mark);
}

function errorOf(body, response) {
  if (body?.error?.message) return body.error;
  const message = typeof body?.error === "string" ? body.error : response.statusText;
  return { message: message || `The server answered ${response.status}.` };
}
