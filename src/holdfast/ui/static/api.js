// Requests to the server. Those that take work are POSTs with the token.

const KEY = "holdfast-token";

/** The server's error: a code, what happened, what to do. */
export class Refused extends Error {
  /** @param {string} code @param {string} what @param {string} todo */
  constructor(code, what, todo) {
    super(`${code}: ${what} ${todo}`);
    this.code = code;
  }
}

/** Keep the link's token for this browser; without one, the kept token stays. @param {string} token */
export function remember(token) {
  if (token) localStorage.setItem(KEY, token);
}

/** @param {string} path @returns {Promise<any>} */
export async function get(path) {
  return answered(await reached(fetch(path)));
}

/** @param {string} path @param {object} body @param {AbortSignal} [signal] @returns {Promise<Response>} */
export async function post(path, body, signal) {
  const headers = { "content-type": "application/json", "x-holdfast-token": localStorage.getItem(KEY) ?? "" };
  return reached(fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: signal ?? null }));
}

/** @param {string} path @param {object} body @returns {Promise<any>} */
export async function ask(path, body) {
  return answered(await post(path, body));
}

/** @param {Promise<Response>} asked @returns {Promise<Response>} */
async function reached(asked) {
  try {
    return await asked;
  } catch {
    throw new Refused("NOT_REACHED", "the page's server does not answer.", "Start it again: holdfast ui.");
  }
}

/** The answer's JSON, or its error. @param {Response} response @returns {Promise<any>} */
async function answered(response) {
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** The error in an answer; if it is not one of ours, an error with the status. @param {Response} response @returns {Promise<Refused>} */
export async function refusal(response) {
  const text = await response.text();
  try {
    const { code, what, do: todo } = JSON.parse(text).error;
    return new Refused(code, what, todo);
  } catch {
    return new Refused(`HTTP_${response.status}`, "the page's server gave no reason.", "See what `holdfast ui` printed.");
  }
}
