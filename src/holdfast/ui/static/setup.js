// Your own scene: sizes, timeouts and events; what would move at another size; saving and sharing.

import { h } from "./h.js";

/** @typedef {{words: Record<string, string>, usual: Record<string, any>, members: string[], target: string, at: number,
 *   plan: string, resize: number, command: string}} Form */
/** @typedef {{change: (name: string, value: string) => void, happen: (kind: string, lasts: string) => void,
 *   choose: (name: string) => void, play: () => void, resize: (members: number) => void, plan: () => void,
 *   svg: () => void, png: () => void, link: () => void}} Acts */

const FIELDS = [
  ["members", "Members"], ["partitions", "Partitions"], ["seed", "Seed"], ["duration", "Duration"],
  ["max_poll", "max.poll.interval.ms"], ["session", "session.timeout.ms"], ["heartbeat", "heartbeat.interval.ms"],
  ["batch", "A batch takes"], ["spread", "± share"], ["listener", "The listener takes"], ["restore", "State of a partition"],
  ["without", "holdfast without"],
];

/** Events that a button adds at the shown moment: kind, the button's text, duration. */
export const HAPPENINGS = [
  ["join", "one joins", ""], ["leave", "leaves", ""], ["drain", "drains", ""], ["crash", "crashes", ""],
  ["hang", "hangs", ""], ["batch", "gets slow batches", "6m"], ["restart", "restarts quickly", "2s"],
  ["restart", "restarts too late", "90s"],
];

/** An event in the simulator's syntax. @param {string} kind @param {string} target @param {number} at @param {string} lasts */
export function eventWord(kind, target, at, lasts) {
  return `${kind}${kind === "join" ? "" : `:${target}`}@${(at / 1000).toFixed(1)}s${lasts ? `+${lasts}` : ""}`;
}

/** Restarts of all members, one after the other. @param {string[]} members @param {number} at */
export function deployWords(members, at) {
  return members.map((name, number) => eventWord("restart", name, at + number * 5000, "3s")).join(",");
}

/** The events with one more. @param {string} events @param {string} kind @param {string[]} members @param {number} at @param {string} lasts */
export function eventsWith(events, kind, members, at, lasts) {
  const word = kind === "deploy" ? deployWords(members, at) : eventWord(kind, members[0], at, lasts);
  return events ? `${events},${word}` : word;
}

/** @param {Form} form @param {Acts} acts */
export function setup(form, acts) {
  const value = (/** @type {string} */ name) => form.words[name] ?? String(form.usual[name] ?? "");
  const typed = (/** @type {string} */ name) => (/** @type {Event} */ event) =>
    acts.change(name, /** @type {HTMLInputElement} */ (event.target).value);
  return [
    h("h2", {}, "Your own scene"),
    h("div", { class: "happen" },
      h("label", {}, "At this moment ", h("select", { id: "target", onchange: (/** @type {Event} */ e) =>
        acts.choose(/** @type {HTMLSelectElement} */ (e.target).value) },
        ...form.members.map((name) => h("option", { value: name, selected: name === form.target }, name)))),
      ...HAPPENINGS.map(([kind, words, lasts]) =>
        h("button", { type: "button", "data-happen": lasts ? `${kind}-${lasts}` : kind, onclick: () => acts.happen(kind, lasts) }, words)),
      h("button", { type: "button", "data-happen": "deploy", onclick: () => acts.happen("deploy", "") }, "all restart: a deploy")),
    h("label", { class: "wide" }, "Events", h("input", { id: "events", value: value("events"), spellcheck: "false", onchange: typed("events") })),
    h("details", {}, h("summary", {}, "Sizes and timeouts"),
      h("div", { class: "fields" },
        ...FIELDS.map(([name, words]) => h("label", {}, words, h("input", { id: `set-${name}`, value: value(name),
          placeholder: "default", onchange: typed(name) }))),
        h("label", { class: "check" }, h("input", { id: "set-static", type: "checkbox", checked: value("static") === "yes",
          onchange: (/** @type {Event} */ e) => acts.change("static", /** @type {HTMLInputElement} */ (e.target).checked ? "yes" : "no") }), " static members"))),
    h("div", { class: "row" },
      h("button", { type: "button", id: "replay", class: "strong", onclick: acts.play }, "Play this"),
      h("button", { type: "button", onclick: acts.link }, "Copy link"),
      h("button", { type: "button", id: "save-svg", onclick: acts.svg }, "Save SVG"),
      h("button", { type: "button", id: "save-png", onclick: acts.png }, "Save PNG")),
    h("div", { class: "row" },
      h("label", {}, "With ", h("input", { id: "resize", type: "number", min: "1", max: "2000", value: String(form.resize),
        onchange: (/** @type {Event} */ e) => acts.resize(Number(/** @type {HTMLInputElement} */ (e.target).value)) }), " members"),
      h("button", { type: "button", id: "plan", onclick: acts.plan }, "what will move?")),
    h("p", { id: "planned", class: "answer", "aria-live": "polite" }, form.plan),
    h("p", { class: "dim" }, "On the command line: ", h("code", {}, form.command)),
  ];
}
