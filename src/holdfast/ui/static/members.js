// The members: in the group or not, static or dynamic, and what each owns.

import { h } from "./h.js";
import { some } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./view.js").View} View */

const SMALL_FROM = 24;

/** @param {Story} story @param {View} view @param {number} chosen @param {(number: number) => void} choose */
export function members(story, view, chosen, choose) {
  const small = view.members.length > SMALL_FROM;
  return [
    h("h2", {}, `Consumer group · ${view.members.length} ${view.members.length === 1 ? "consumer" : "consumers"}`),
    h("p", { class: "dim" }, membership(view)),
    h("ul", { class: small ? "members small" : "members" }, ...view.members.map((member) => {
      const { sign, text } = story.legend.members[member.state];
      const owns = small ? `owns ${member.owns.length}` : member.owns.length === 0 ? "owns nothing" : `owns ${some(member.owns, 4)}`;
      return h("li", {},
        h("button", {
          type: "button", class: `member o${member.number % 8} ${member.state}`, "data-member": member.name,
          "data-state": member.state, "aria-pressed": member.number === chosen ? "true" : "false", title: text,
          onclick: () => choose(member.number === chosen ? -1 : member.number),
        },
          h("strong", {}, h("span", { "aria-hidden": "true" }, `${sign} `), member.name),
          small ? null : h("span", { class: "kind" }, member.isStatic ? "static" : "dynamic"),
          h("span", { class: "owns" }, owns),
          small ? null : h("span", { class: "doing" }, text),
        ));
    })),
  ];
}

/** @param {View} view */
function membership(view) {
  const fixed = view.members.filter((member) => member.isStatic).length;
  if (fixed === 0) return "dynamic membership: a restart triggers a rebalance";
  if (fixed === view.members.length) return "static membership: a restart within the session triggers none";
  return `${fixed} of ${view.members.length} static: their restart within the session triggers no rebalance`;
}
