// The claims about a ready scene beside what was played, and why they differ if they do.

import { h } from "./h.js";

/** @typedef {import("./types.js").Told} Told */

/** @param {Told[]} told */
export function told(told) {
  if (told.length === 0) return [];
  return [
    h("h2", {}, "Told, and played"),
    h("ul", { class: "told" }, ...told.map((row) =>
      h("li", { class: row.holds ? "holds" : "differs" },
        h("p", {}, h("strong", {}, row.holds ? "✓ " : "≠ "), `“${row.told}” `, h("span", { class: "dim" }, `(${row.about})`)),
        h("p", {}, `${row.what}: `, ...Object.entries(row.played).flatMap(([kind, text], index) => [
          index ? " · " : "", kind === row.about ? h("strong", {}, `${kind} ${text}`) : `${kind} ${text}`])),
        row.holds ? null : h("p", { class: "dim" }, row.why),
      ))),
  ];
}
