// The producer, the coordinator, and whether the group can process now.

import { h } from "./h.js";
import { count } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./view.js").View} View */

/** @param {Story} story @param {View} view */
export function machines(story, view) {
  const calm = view.state === "Stable";
  const can = view.lit === view.of ? "yes, everything" : view.lit === 0 ? "no, nothing" : "in part";
  return [
    h("div", { class: "machines" },
      box("Producer", produces(story), "", `${count(view.lag)} records wait`),
      h("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      box("Group coordinator", h("span", {}, calm ? "" : "⟳ ", h("strong", { "data-state": view.state }, view.state)),
        calm ? "" : "busy", `${story.protocol || "assignor not told"} · ${generation(story, view)}`),
      h("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      box("Can the group process now?", h("strong", { "data-lit": view.lit }, `${can}: ${count(view.lit)} of ${count(view.of)}`),
        view.lit === view.of ? "" : view.lit === 0 ? "stop" : "busy", story.legend.states[view.state] ?? ""),
    ),
  ];
}

/** @param {Story} story */
function produces(story) {
  if (story.produces === null) return "how much is not known yet";
  return `${story.wall === undefined ? "steady: " : ""}${count(story.produces)} records/s`;
}

/** @param {Story} story @param {View} view */
function generation(story, view) {
  if (view.generation < 0) return "generation not known";
  return `generation ${story.atLeast ? "≥ " : ""}${view.generation}`;
}

/** @param {string} title @param {import("./types.js").Node_} first @param {string} mood @param {string} second */
function box(title, first, mood, second) {
  return h("div", { class: `box ${mood}` }, h("h3", {}, title), h("p", {}, first), h("p", { class: "dim" }, second));
}
