// The bar at the bottom: the moment that the page shows.

import { when } from "./moment.js";

/** @typedef {import("./types.js").Story} Story */

/** @param {(id: string) => HTMLElement} part @param {Story} story @param {import("./player.js").Player} player */
export function showMoment(part, story, player) {
  const scrub = /** @type {HTMLInputElement} */ (part("scrub"));
  scrub.min = String(story.begin ?? 0);
  scrub.max = String(player.end);
  scrub.value = String(player.at);
  scrub.setAttribute("aria-valuetext", when(story, player.at));
  part("clock").textContent = when(story, player.at);
}

/** @param {boolean} playing @param {boolean|null} following a live group; null for a scene */
export function playWords(playing, following) {
  if (following !== null) return following ? "❚❚ Pause" : "● To now";
  return playing ? "❚❚ Pause" : "▶ Play";
}
