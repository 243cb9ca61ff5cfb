// The wait-time bar, measured: the same events and seed played as three kinds of group.

import { h } from "./h.js";
import { count, time, timesLess } from "./words.js";

/** @typedef {import("./types.js").Wait} Wait */

/** A live group has only one bar, and nothing to choose.
 * @param {Record<string, Wait>} waits @param {string} shown @param {((kind: string) => void)|null} choose
 * @param {boolean} [coarse] whether the group was only seen from outside */
export function waits(waits, shown, choose, coarse = false) {
  const most = Math.max(1, ...Object.values(waits).map((wait) => wait.paused));
  const first = waits.eager;
  return [
    h("h2", {}, "Wait time"),
    h("p", { class: "dim" }, choose ? "Paused by rebalances, all partitions together; same events, same seed."
      : `Paused by rebalances, all partitions together, in the last ${time(Object.values(waits)[0].during)}${coarse ? ", as far as looks half a second apart show" : ""}.`),
    h("ul", { class: "waits" }, ...Object.entries(waits).map(([kind, wait]) =>
      h("li", { "data-wait": kind },
        choose ? h("button", { type: "button", class: "plain", "aria-pressed": kind === shown ? "true" : "false", onclick: () => choose(kind) }, kind)
          : h("span", {}, kind),
        h("span", { class: "track" }, h("span", { class: `fill ${kind}`, "width%": Math.max(0.5, (wait.paused / most) * 100).toFixed(2) })),
        h("strong", {}, time(wait.paused)),
        h("span", { class: "dim ratio" }, kind === "eager" || !first ? "" : less(first, wait)),
        h("span", { class: "dim more" }, `longest ${time(wait.longest)}, ${count(wait.partitions)} of ${count(wait.of)} paused, ${count(wait.needless)} given back`),
        h("span", { class: "dim more" }, `for any reason: ${time(wait.dark)} without processing, longest ${time(wait.darkLongest)}`),
      ))),
  ];
}

/** No pause by a rebalance can still be a standstill: the owner has left, and the next one restores its state.
 * @param {Wait} first @param {Wait} wait */
function less(first, wait) {
  const words = timesLess(first.paused, wait.paused);
  return words && wait.paused <= 0 && wait.dark > 0 ? "none by rebalances" : words;
}
