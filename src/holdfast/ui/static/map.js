// Many partitions: one thin row each on a canvas, and a line in words for every member. Painted once, then only moved.

import { h } from "./h.js";
import { count, some } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./view.js").View} View */

/** @param {Story} story @param {View} view */
export function mapFrame(story, view) {
  /** @type {Record<string, string[]>} */
  const by = {};
  for (const lane of view.lanes) (by[lane.state] ??= []).push(lane.label);
  const lines = Object.entries(story.legend.lanes)
    .filter(([state]) => by[state])
    .map(([state, { sign, text }]) =>
      h("li", { "data-count": state },
        h("strong", {}, `${sign} ${count(by[state].length)} `), text, state === "working" ? "" : `: ${some(by[state], 8)}`));
  return [
    h("h2", {}, `Partitions · ${view.of}`),
    h("canvas", { id: "map", class: "map", role: "img", "aria-label": `${view.lit} of ${view.of} partitions process` }),
    h("ul", { class: "groups" }, ...lines),
  ];
}

/** The rectangles of a story: pure, so that it can be tested without a canvas.
 * @param {Story} story @param {number} wide @param {number} high
 * @returns {{x: number, y: number, w: number, h: number, state: string, owner: number}[]} */
export function rectangles(story, wide, high) {
  const row = high / Math.max(1, story.partitions.length);
  const found = [];
  for (const [number, lane] of story.partitions.entries()) {
    for (const [index, [from, state, owner]] of lane.spans.entries()) {
      if (state === "waiting") continue;
      const to = lane.spans[index + 1]?.[0] ?? story.end;
      found.push({ x: (from / story.end) * wide, y: number * row, w: Math.max(0.8, ((to - from) / story.end) * wide),
        h: row * (row > 3 ? 0.85 : 1), state, owner });
    }
  }
  return found;
}

/** @type {{story: Story|null, wide: number, dark: boolean, picture: HTMLCanvasElement|null}} */
const painted = { story: null, wide: 0, dark: false, picture: null };

/** @param {HTMLCanvasElement} canvas @param {Story} story @param {number} at */
export function paintMap(canvas, story, at) {
  const wide = canvas.clientWidth || 600;
  const high = canvas.clientHeight || 420;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (painted.story !== story || painted.wide !== wide || painted.dark !== dark) {
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [wide, high];
    const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
    const style = getComputedStyle(canvas);
    for (const each of rectangles(story, wide, high)) {
      context.fillStyle = style.getPropertyValue(each.state === "working" ? `--o${each.owner % 8}` : `--${each.state}`);
      context.fillRect(each.x, each.y, each.w, each.h);
    }
    Object.assign(painted, { story, wide, dark, picture });
  }
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  if (!context || !painted.picture) return;
  context.clearRect(0, 0, wide, high);
  context.drawImage(painted.picture, 0, 0);
  const style = getComputedStyle(canvas);
  const x = (at / story.end) * wide;
  context.fillStyle = style.getPropertyValue("--veil");
  context.fillRect(x, 0, wide - x, high);
  context.fillStyle = style.getPropertyValue("--ink");
  context.fillRect(x, 0, 2, high);
}
