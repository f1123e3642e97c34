/** Calls of the server's API, with the key where it wants one. */

import { effect, signal } from "@preact/signals";

export { requestOf } from "./request.js";

/** The key of the API; it stays in this tab. */
export const key = signal(sessionStorage.getItem("foretell.key") ?? "");
effect(() => sessionStorage.setItem("foretell.key", key.value));

/** What the API refused, in its own words. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status; 0 where the server was not reached
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
 * The address of a path of the API, also behind a prefix.
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
 * @param {string} [mark] a performance mark, set when the answer has been read
 * @returns {Promise<any>}
 * @throws {ApiError}
 */
export const post = (path, body, mark) =>
  call(path, { method: "POST", body: JSON.stringify(body) }, mark);

/** How the person is asked for a key: set by the shell, resolves to whether there is a new one. */
let ask = async () => false;
/** @param {(refused: string) => Promise<boolean>} asking */
export const askBy = (asking) => {
  ask = asking;
};
let asking = null;

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
  // Requests that are refused at the same time ask once.
  if (key.value === used) asking ??= ask(used).finally(() => (asking = null));
  if (key.value === used && !(await asking)) throw error;
  return call(path, init, mark);
}

function errorOf(body, response) {
  if (body?.error?.message) return body.error;
  const message = typeof body?.error === "string" ? body.error : response.statusText;
  return { message: message || `The server answered ${response.status}.` };
}
