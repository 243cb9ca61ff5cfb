// Questions to tap. Answers come from the trace at this moment; a what-if is simulated first.

import { h } from "./h.js";

/** @typedef {import("./types.js").Question} Question */
/** @typedef {{text: string, answer: string, open: (() => void)|null}} Said */

/** @param {Question[]} questions @param {Said|null} said @param {(question: Question) => void} tap */
export function ask(questions, said, tap) {
  return [
    h("h2", {}, "Tap a question"),
    h("ul", { class: "questions" }, ...questions.map((question) =>
      h("li", {}, h("button", { type: "button", "data-question": question.id, onclick: () => tap(question) }, question.text)))),
    h("div", { class: "answer", "aria-live": "polite" },
      said ? h("p", {}, h("strong", {}, said.text), " ", said.answer) : h("p", { class: "dim" }, "Answers are about the moment that you see."),
      said?.open ? h("button", { type: "button", onclick: said.open }, "Watch it") : null),
  ];
}
