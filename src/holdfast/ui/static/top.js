// The top of the page: the shown scene or live group, its protocol, and what it is about.

import { told } from "./groups.js";
import { h } from "./h.js";

/** @typedef {import("./types.js").Catalogue} Catalogue */
/** @typedef {import("./types.js").Address} Address */
/** @typedef {import("./following.js").Live} Live */

/** Prefix of a live group's name among the names of scenes. */
export const LIVE = "live:";

/** @param {Catalogue} catalogue @param {Address} address @param {Live|null} live */
export function choices(catalogue, address, live) {
  const chosen = live ? LIVE + live.group : address.scene;
  const option = (/** @type {string} */ name, /** @type {string} */ title) => h("option", { value: name, selected: name === chosen }, title);
  const names = new Set(live?.listed.map((each) => each.group) ?? []);
  if (live?.group) names.add(live.group);
  const groups = h("optgroup", { label: "Live" }, option(LIVE, "All live groups"), ...[...names].map((name) => option(LIVE + name, name)));
  return [...(catalogue.live ? [groups] : []), ...catalogue.scenes.map(({ name, title }) => option(name, title)), option("", "Your own scene")];
}

/** The protocols to choose from; none for a live group. @param {Catalogue} catalogue @param {string} shown
 * @param {Live|null} live @param {(kind: string) => void} choose */
export function kinds(catalogue, shown, live, choose) {
  return live ? [] : Object.entries(catalogue.kinds).map(([kind, words]) =>
    h("button", { type: "button", title: words, "data-kind": kind, "aria-pressed": kind === shown ? "true" : "false",
      onclick: () => choose(kind) }, kind));
}

/** @param {Catalogue} catalogue @param {Address} address @param {Live|null} live */
export function about(catalogue, address, live) {
  if (live) return told(live.group, live.story);
  const scene = catalogue.scenes.find((each) => each.name === address.scene);
  return `${scene ? scene.story : "Your own scene."} In ${address.kind}: ${catalogue.kinds[address.kind] ?? ""}.`;
}
