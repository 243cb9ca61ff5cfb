// Moments of a story: their text, and the part of the past that the strips show. Pure.

import { clock } from "./words.js";

/** @typedef {import("./types.js").Story} Story */

/** Seconds since the start, or for a live group the time of day. @param {Story} story @param {number} at */
export function when(story, at) {
  if (story.wall === undefined) return clock(at);
  const day = new Date(story.wall + at);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${two(day.getHours())}:${two(day.getMinutes())}:${two(day.getSeconds())}.${Math.floor(day.getMilliseconds() / 100)}`;
}

/** The window that the strips show: a whole scene, or for a live group the part around the moment.
 * @param {Story} story @param {number} at @returns {[number, number]} */
export function stripWindow(story, at) {
  if (story.strip === undefined) return [0, story.end];
  const to = Math.max((story.begin ?? 0) + story.strip, Math.min(Math.max(story.end, at), at + story.strip / 4));
  return [to - story.strip, to];
}
