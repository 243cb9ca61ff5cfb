// The times under the strips, and marks where the scene's events happened. Pure.

import { h } from "./h.js";
import { stripWindow, when } from "./moment.js";

/** @typedef {import("./types.js").Story} Story */

const STEPS_MS = [100, 200, 500, 1000, 2000, 5000, 10000, 20000, 60000, 120000, 300000, 600000, 1800000, 3600000];
const WIDE = 1000;

/** The pieces between two ticks: how wide in percent, and the text at their beginning.
 * @param {Story} story @param {number} at @returns {{wide: number, text: string}[]} */
export function pieces(story, at) {
  const [first, last] = stripWindow(story, at);
  const most = story.wall === undefined ? 6 : 4; // times of day are longer
  const step = STEPS_MS.find((each) => (last - first) / each <= most) ?? STEPS_MS[STEPS_MS.length - 1];
  const share = (/** @type {number} */ ms) => (ms / (last - first)) * 100;
  const tick = Math.ceil(first / step) * step;
  const found = tick > first ? [{ wide: share(Math.min(tick, last) - first), text: "" }] : [];
  for (let from = tick; from < last; from += step) {
    const long = Math.min(step, last - from);
    found.push({ wide: share(long), text: long < step * 0.7 ? "" : words(story, from, step) });
  }
  return found;
}

/** @param {Story} story @param {number} at @param {number} step */
function words(story, at, step) {
  if (story.wall !== undefined) return when(story, at).split(".")[0];
  return step >= 60000 ? `${at / 60000} min` : `${at / 1000} s`;
}

/** @param {Story} story @param {number} at */
export function axis(story, at) {
  const [first, last] = stripWindow(story, at);
  const marks = story.steps.filter(([moment, kind]) => kind === "happened" && moment >= first && moment <= last)
    .map(([moment]) => ((moment - first) / (last - first)) * WIDE);
  return h("div", { class: "axis", "aria-hidden": "true" },
    h("svg", { class: "events", viewBox: `0 0 ${WIDE} 8`, preserveAspectRatio: "none" },
      ...marks.map((x) => h("path", { class: "event", d: `M${(x - 9).toFixed(1)} 0h18l-9 8z` }))),
    h("div", { class: "ticks" }, ...pieces(story, at).map(({ wide, text }) => h("span", { "width%": wide.toFixed(2) }, text))),
  );
}
