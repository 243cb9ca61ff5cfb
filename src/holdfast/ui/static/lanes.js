// The lanes of up to 40 partitions: label, sign, owner, lag, and a strip of the past up to the moment.

import { axis } from "./axis.js";
import { h } from "./h.js";
import { stripWindow } from "./moment.js";
import { count } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./types.js").Lane} Lane */
/** @typedef {import("./view.js").View} View */

export const MOST_ROWS = 40;
const WIDE = 1000;
const HIGH = 20;

/** @param {Story} story @param {View} view @param {number} at */
export function lanes(story, view, at) {
  return [
    h("h2", {}, `Partitions · ${view.of}`),
    h("ul", { class: "lanes" }, ...story.partitions.map((lane, number) => row(story, lane, view.lanes[number], at))),
    h("div", { class: "lane times" }, axis(story, at)),
  ];
}

/** @param {Story} story @param {Lane} lane @param {View["lanes"][number]} now @param {number} at */
function row(story, lane, now, at) {
  const { sign, text } = story.legend.lanes[now.state];
  const owner = now.state === "dark" || now.owner < 0 ? "nobody" : story.members[now.owner].name;
  const why = now.why && now.state !== "working" ? ` (${now.why})` : "";
  return h("li", { class: `lane ${now.state}`, "data-lane": lane.label, "data-state": now.state },
    h("span", { class: "sign", "aria-hidden": "true" }, sign),
    h("span", { class: "label" }, lane.label),
    h("span", { class: `owner o${now.owner % 8}`, title: owner }, `→ ${owner}`),
    h("span", { class: "state", title: `${text}${why}` }, `${text}${why}`),
    h("span", { class: "lag" }, Number.isNaN(now.lag) ? "lag ?" : now.lag >= 1 ? `lag ${count(now.lag)}` : ""),
    strip(story, lane, at),
  );
}

/** @param {Story} story @param {Lane} lane @param {number} at */
export function strip(story, lane, at) {
  const [first, last] = stripWindow(story, at);
  const x = (/** @type {number} */ ms) => (((ms - first) / (last - first)) * WIDE).toFixed(1);
  const end = Math.max(story.end, at); // a live lane continues until the next message
  /** @type {import("./types.js").Element_[]} */
  const segments = [];
  /** @type {import("./types.js").Element_[]} */
  const cuts = [];
  let worker = -1;
  lane.spans.forEach(([begin, state, owner], index) => {
    const from = Math.max(first, begin);
    const to = Math.min(last, lane.spans[index + 1]?.[0] ?? end);
    const handed = state === "working" && worker >= 0 && worker !== owner;
    if (state === "working") worker = owner;
    if (to < first || from > last) return;
    if (handed && begin >= first) cuts.push(h("rect", { class: "cut", x: (Number(x(begin)) - 3).toFixed(1), y: 0, width: 6, height: HIGH }));
    const high = Math.max(state === "waiting" ? 0 : 1.5, HIGH * (story.legend.lanes[state].height ?? 0));
    segments.push(h("rect", {
      class: `seg ${state} o${owner % 8}`, x: x(from), y: HIGH - high,
      width: Math.max(1.5, ((to - from) / (last - first)) * WIDE).toFixed(1), height: high,
    }));
  });
  return h("svg", { class: "strip", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...segments,
    ...cuts,
    h("rect", { class: "future", x: x(at), y: 0, width: Math.max(0, ((last - at) / (last - first)) * WIDE).toFixed(1), height: HIGH }),
    h("rect", { class: "head", x: x(at), y: 0, width: 2, height: HIGH }),
  );
}
