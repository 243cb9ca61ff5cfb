// What the signs mean, so that the page can be read without colours.

import { h } from "./h.js";

/** @param {import("./types.js").Story} story */
export function legend(story) {
  return [
    h("details", { class: "legend" }, h("summary", {}, "What the signs mean"),
      h("ul", {}, ...Object.entries(story.legend.lanes).map(([state, { sign, text }]) =>
        h("li", {}, h("span", { class: `sign ${state}` }, sign), ` ${text}`)),
        h("li", {}, h("span", { class: "sign" }, "¦"), " a cut in a lane's bar: another member has taken over"),
        h("li", {}, h("span", { class: "sign" }, "▾"), " above the times: an event of the scene")),
      h("ul", {}, ...Object.values(story.legend.members).filter(({ sign }) => sign.trim()).map(({ sign, text }) =>
        h("li", {}, h("span", { class: "sign" }, sign), ` ${text}`)))),
  ];
}
