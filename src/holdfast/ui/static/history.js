// All rebalances with cause and culprit; a click goes to that moment.

import { h } from "./h.js";
import { when } from "./moment.js";
import { some, time } from "./words.js";

/** @typedef {import("./types.js").Story} Story */

/** @param {Story} story @param {number} at @param {(at: number) => void} go */
export function history(story, at, go) {
  const rows = story.rebalances.map((each, index) => {
    const now = each.from <= at && (story.rebalances[index + 1]?.from ?? Infinity) > at;
    const moved = each.moved.length ? `moved ${some(each.moved, 4)}` : "nothing moved";
    return h("li", {},
      h("button", { type: "button", class: now ? "now" : "", "aria-current": now ? "true" : null, "data-rebalance": index,
        onclick: () => go(each.from) },
        h("strong", {}, when(story, each.from)), ` ${each.culprit ? `by ${each.culprit}: ` : ""}${each.cause}`,
        h("span", { class: "dim" },
          ` · ${each.rounds} ${each.rounds === 1 ? "round" : "rounds"}, ${time(each.to - each.from)}; ${moved}; `
          + `${each.paused} paused, longest ${time(each.longest)}`)));
  });
  return [h("h2", {}, `Rebalances · ${story.rebalances.length}`), h("ol", { class: "history" }, ...rows)];
}
