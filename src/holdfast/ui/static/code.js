// The running code, shortened to a few lines, with the current line lit.

import { h } from "./h.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./types.js").Listing} Listing */
/** @typedef {import("./view.js").View} View */

/** @param {Story} story @param {View} view */
export function code(story, view) {
  const who = view.speaker >= 0 ? story.members[view.speaker].name : "";
  return [
    h("h2", {}, "The code that runs"),
    h("div", { class: "listings" },
      listing(story.code.coordinator, view.coordinatorLine, ""),
      listing(story.code.consumer, view.consumerLine, who)),
  ];
}

/** @param {Listing} listing @param {number} lit @param {string} who */
function listing({ title, lines }, lit, who) {
  return h("figure", { class: "code" },
    h("figcaption", {}, who ? `${title}: ${who}` : title),
    h("ol", {}, ...lines.map((line, number) =>
      h("li", { class: number === lit ? "lit" : "", "aria-current": number === lit ? "step" : null }, h("code", {}, line)))));
}
