// The members: in the group or not, static or dynamic, and what each owns.

import { h } from "./h.js";
import { count } from "./words.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {import("./view.js").View} View */

const SMALL_FROM = 24;

/** @param {Story} story @param {View} view @param {number} chosen @param {(number: number) => void} choose */
export function members(story, view, chosen, choose) {
  const small = view.members.length > SMALL_FROM;
  return [
    h("h2", {}, heading(view)),
    h("p", { class: "dim" }, membership(view)),
    h("ul", { class: small ? "members small" : "members" }, ...view.members.map((member) => {
      const { sign, text } = story.legend.members[member.state];
      const owns = small ? `owns ${member.owns.length}` : ownsWords(member.owns);
      return h("li", {},
        h("button", {
          type: "button", class: `member o${member.number % 8} ${member.state}`, "data-member": member.name,
          "data-state": member.state, "aria-pressed": member.number === chosen ? "true" : "false", title: text,
          onclick: () => choose(member.number === chosen ? -1 : member.number),
        },
          h("strong", {}, h("span", { "aria-hidden": "true" }, `${sign} `), h("bdi", {}, member.name)),
          small ? null : h("span", { class: "kind" }, member.isStatic ? "static" : "dynamic"),
          h("span", { class: "owns", title: member.owns.join(", ") }, owns),
          small ? null : h("span", { class: "doing" }, text),
        ));
    }), ...unborn(story, view)),
  ];
}

/** Places of those who will join later in a scene: what is below stays where it is. @param {Story} story @param {View} view */
function unborn(story, view) {
  const later = story.wall === undefined ? story.members.length - view.members.length : 0;
  return Array.from({ length: later }, () => h("li", { class: "unborn", "aria-hidden": "true" }));
}

/** One that is out, or whose process has ended, is no member; a static one is until its session is over, and keeps what
 * it owns. @param {View} view */
function heading({ members }) {
  const within = members.filter(({ state, owns }) => owns.length > 0 || (state !== "gone" && state !== "out")).length;
  if (within < members.length) return `Consumer group · ${count(within)} of ${count(members.length)} in it`;
  return `Consumer group · ${count(within)} ${within === 1 ? "consumer" : "consumers"}`;
}

/** One line, however many there are. @param {string[]} labels */
function ownsWords(labels) {
  if (labels.length === 0) return "owns nothing";
  return labels.length <= 4 ? `owns ${labels.join(", ")}` : `owns ${labels.length}: ${labels.slice(0, 2).join(", ")}, …`;
}

/** @param {View} view */
function membership(view) {
  const fixed = view.members.filter((member) => member.isStatic).length;
  if (fixed === 0) return "dynamic membership: a restart triggers a rebalance";
  if (fixed === view.members.length) return "static membership: a restart within the session triggers none";
  return `${fixed} of ${view.members.length} static: their restart within the session triggers no rebalance`;
}
