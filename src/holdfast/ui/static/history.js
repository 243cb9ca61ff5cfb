// All rebalances with cause and culprit; a click goes to that moment.

import { h } from "./h.js";
import { when } from "./moment.js";
import { count, some, time } from "./words.js";

/** @typedef {import("./types.js").Story} Story */

/** @param {Story} story @param {number} at @param {(at: number) => void} go */
export function history(story, at, go) {
  const rows = story.rebalances.map((each, index) => {
    const now = each.from <= at && (story.rebalances[index + 1]?.from ?? Infinity) > at;
    const moved = each.moved.length ? `moved ${some(each.moved, 4)}` : "nothing moved";
    const took = each.to > each.from ? time(each.to - each.from) : "between two looks";
    const coarse = story.witnesses?.length === 1 && each.paused === 0;
    const paused = coarse ? "no pause was seen" : each.paused === 0 ? "nothing paused" : `${count(each.paused)} paused, longest ${time(each.longest)}`;
    return h("li", {},
      h("button", { type: "button", class: now ? "now" : "", "aria-current": now ? "true" : null, "data-rebalance": index,
        onclick: () => go(each.from) },
        h("strong", {}, when(story, each.from)), ` ${each.culprit ? `by ${each.culprit}: ` : ""}${each.cause}`,
        h("span", { class: "dim" },
          ` · ${each.rounds} ${each.rounds === 1 ? "round" : "rounds"}, ${took}; ${moved}; ${paused}`)));
  });
  if (story.wall !== undefined) rows.reverse(); // for a live group the newest comes first
  return [h("h2", {}, `Rebalances · ${story.rebalances.length}`), h("ol", { class: "history" }, ...rows)];
}
