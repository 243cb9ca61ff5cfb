// Many partitions: one thin row each on a canvas, and a line of text for every state. Painted once, then only moved.

import { axis } from "./axis.js";
import { h } from "./h.js";
import { stripWindow } from "./moment.js";
import { count, some } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./view.js").View} View */

/** @param {Story} story @param {View} view @param {number} at */
export function mapFrame(story, view, at) {
  /** @type {Record<string, string[]>} */
  const by = {};
  for (const lane of view.lanes) (by[lane.state] ??= []).push(lane.label);
  const lines = Object.entries(story.legend.lanes)
    .filter(([state]) => by[state])
    .map(([state, { sign, text }]) =>
      h("li", { "data-count": state },
        h("strong", {}, `${sign} ${count(by[state].length)} `), text, state === "working" ? "" : `: ${some(by[state], 8)}`));
  return [
    h("h2", {}, `Partitions · ${count(view.of)}`),
    h("canvas", { id: "map", class: "map", role: "img", "aria-label": `${view.lit} of ${view.of} partitions process` }),
    axis(story, at),
    h("ul", { class: "groups" }, ...lines),
  ];
}

/** The lanes by their first owner, so that a member's are one block: strewn, a thousand of them blend into grey.
 * @param {Story} story @returns {import("./types.js").Lane[]} */
export function rows(story) {
  const first = (/** @type {import("./types.js").Lane} */ lane) => lane.spans.find(([, state]) => state === "working")?.[2] ?? Infinity;
  return story.partitions.map((lane) => ({ lane, by: first(lane) })).sort((one, other) => (one.by < other.by ? -1 : one.by > other.by ? 1 : 0))
    .map(({ lane }) => lane);
}

/** The rectangles of a story. Pure, so that it can be tested without a canvas.
 * @param {Story} story @param {number} wide @param {number} high @param {[number, number]} window what part of the past
 * @returns {{x: number, y: number, w: number, h: number, state: string, owner: number}[]} */
export function rectangles(story, wide, high, [first, last]) {
  const row = high / Math.max(1, story.partitions.length);
  const found = [];
  for (const [number, lane] of rows(story).entries()) {
    for (const [index, [begin, state, owner]] of lane.spans.entries()) {
      const from = Math.max(first, begin);
      const to = Math.min(last, lane.spans[index + 1]?.[0] ?? story.end);
      if (state === "waiting" || to < first || from > last) continue;
      const scale = wide / (last - first);
      found.push({ x: (from - first) * scale, y: number * row, w: Math.max(0.8, (to - from) * scale),
        h: row * (row > 3 ? 0.85 : 1), state, owner });
    }
  }
  return found;
}

/** @type {{story: Story|null, wide: number, dark: boolean, from: number, picture: HTMLCanvasElement|null}} */
const painted = { story: null, wide: 0, dark: false, from: 0, picture: null };

/** @param {HTMLCanvasElement} canvas @param {Story} story @param {number} at */
export function paintMap(canvas, story, at) {
  const sharp = window.devicePixelRatio || 1; // else it is blurred on phones
  const wide = Math.round((canvas.clientWidth || 600) * sharp);
  const high = Math.round((canvas.clientHeight || 420) * sharp);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = stripWindow(story, at);
  const [from, to] = shown;
  if (painted.story !== story || painted.wide !== wide || painted.dark !== dark || painted.from !== from) {
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [wide, high];
    const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
    const style = getComputedStyle(canvas);
    for (const each of rectangles(story, wide, high, shown)) {
      context.fillStyle = style.getPropertyValue(each.state === "working" ? `--o${each.owner % 8}` : `--${each.state}`);
      context.fillRect(each.x, each.y, each.w, each.h);
    }
    Object.assign(painted, { story, wide, dark, from, picture });
  }
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  if (!context || !painted.picture) return;
  context.clearRect(0, 0, wide, high);
  context.drawImage(painted.picture, 0, 0);
  const style = getComputedStyle(canvas);
  const x = ((at - from) / (to - from)) * wide;
  context.fillStyle = style.getPropertyValue("--veil");
  context.fillRect(x, 0, wide - x, high);
  context.fillStyle = style.getPropertyValue("--ink");
  context.fillRect(x, 0, 2 * sharp, high);
}
