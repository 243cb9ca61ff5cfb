// Live groups: their list, a sentence about the chosen one, and the actions on its members.

import { h } from "./h.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {{group: string, state: string}} Listed */

/** The buttons' texts, for every action that a server may offer. */
export const ACTS = {
  add: "add a member", drain: "drain it", kill: "kill it", hang: "hang it", restart: "restart it",
};

/** @param {Listed[]} listed @param {(group: string) => void} choose */
export function groupList(listed, choose) {
  return [
    h("h2", {}, `Groups · ${listed.length}`),
    listed.length ? null : h("p", { class: "dim" }, "There is no group yet. It shows here as soon as there is one."),
    h("ul", { class: "grouplist" }, ...listed.map(({ group, state }) =>
      h("li", {}, h("button", { type: "button", "data-group": group, onclick: () => choose(group) },
        h("strong", {}, group), h("span", { class: "dim" }, ` ${state || "state not told"}`))))),
  ].filter((node) => node !== null);
}

/** @param {string} group @param {Story|null} story */
export function told(group, story) {
  if (!group) return "Live groups of this cluster. Choose one.";
  if (!story) return `Group ${group}, live. Waiting for the first look at it.`;
  const { witnesses = [] } = story;
  const from = witnesses.length > 1 ? `${witnesses.slice(0, -1).join(", ")} and ${witnesses[witnesses.length - 1]}` : witnesses[0];
  const coarse = witnesses.length > 1 ? "" : " Looks are half a second apart: what is shorter does not show.";
  return `Group ${group}, live, as ${from} tell it.${coarse}`;
}

/** The member that buttons act on is the one that the list shows: another scene may not have the one before.
 * @param {string[]} names @param {string} target */
export const aimed = (names, target) => (names.length === 0 || names.includes(target) ? target : names[0]);

/** Buttons that really act on members, if the server has started them.
 * @param {string[]} names of actions @param {string[]} members @param {string} target @param {string} said
 * @param {(name: string) => void} act @param {(name: string) => void} choose */
export function buttons(names, members, target, said, act, choose) {
  if (names.length === 0) return [];
  return [
    h("div", { class: "happen" },
      h("label", {}, "Member ", h("select", { id: "target", onchange: (/** @type {Event} */ e) =>
        choose(/** @type {HTMLSelectElement} */ (e.target).value) },
        ...members.map((name) => h("option", { value: name, selected: name === target }, name)))),
      ...names.map((name) => h("button", { type: "button", "data-act": name, onclick: () => act(name) },
        /** @type {Record<string, string>} */ (ACTS)[name] ?? name))),
    h("p", { id: "acted", class: "dim", "aria-live": "polite" }, said || "These act for real: on processes that this demo runs."),
  ];
}

/** @typedef {{readOnly: boolean, plan: string, resize: number}} LiveForm */
/** @typedef {{resize: (members: number) => void, plan: () => void, svg: () => void, png: () => void}} LiveActs */

/** @param {LiveForm} form @param {LiveActs} acts */
export function liveSetup(form, acts) {
  return [
    h("h2", {}, "What if"),
    form.readOnly ? h("p", { class: "dim" }, "Groups of a cluster are only shown. Members that obey buttons: holdfast demo --live.") : null,
    h("div", { class: "row" },
      h("label", {}, "With ", h("input", { id: "resize", type: "number", min: "1", max: "2000", value: String(form.resize),
        onchange: (/** @type {Event} */ e) => acts.resize(Number(/** @type {HTMLInputElement} */ (e.target).value)) }), " members"),
      h("button", { type: "button", id: "plan", onclick: acts.plan }, "what will move?")),
    h("p", { id: "planned", class: "answer", "aria-live": "polite" }, form.plan),
    h("div", { class: "row" },
      h("button", { type: "button", id: "save-svg", onclick: acts.svg }, "Save SVG"),
      h("button", { type: "button", id: "save-png", onclick: acts.png }, "Save PNG")),
  ].filter((node) => node !== null);
}
