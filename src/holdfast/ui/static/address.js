// The address holds the scene, so that a link shows the same to everybody. The token is in the fragment and is not shared.

/** @typedef {import("./types.js").Address} Address */

const OWN = new Set(["scene", "kind", "at", "live"]);

/** @param {string} search @returns {Address} */
export function read(search) {
  const words = new URLSearchParams(search);
  /** @type {Record<string, string>} */
  const setup = {};
  for (const [name, value] of words) if (!OWN.has(name)) setup[name] = value;
  const at = Number(words.get("at") ?? NaN);
  return { scene: words.get("scene") ?? "", kind: words.get("kind") ?? "", at: at >= 0 ? at : -1, setup, live: words.get("live") };
}

/** @param {Address} address */
export function write({ scene, kind, at, setup, live }) {
  const words = new URLSearchParams();
  if (live !== null) {
    words.set("live", live);
    return `?${words}`;
  }
  if (scene) words.set("scene", scene);
  if (kind) words.set("kind", kind);
  for (const name of Object.keys(setup).sort()) words.set(name, setup[name]);
  if (at >= 0) words.set("at", String(Math.round(at)));
  return `?${words}`;
}

/** @param {string} fragment */
export function tokenIn(fragment) {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("token") ?? "";
}
