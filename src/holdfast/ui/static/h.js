// Drawings are values, returned by pure functions; only `dom.js` touches the document.

/** @typedef {import("./types.js").Node_} Node_ */
/** @typedef {import("./types.js").Element_} Element_ */

/**
 * @param {string} tag
 * @param {Record<string, any>} [attrs] attributes; a function under a name such as `onclick` is a listener
 * @param {...(Node_|number|null|false|undefined|(Node_|null|false)[])} children
 * @returns {Element_}
 */
export function h(tag, attrs = {}, ...children) {
  /** @type {Record<string, any>} */
  const plain = {};
  /** @type {Record<string, (event: Event) => void>} */
  const on = {};
  for (const [name, value] of Object.entries(attrs)) {
    if (name.startsWith("on") && typeof value === "function") on[name.slice(2)] = value;
    else plain[name] = value;
  }
  /** @type {Node_[]} */
  const nodes = [];
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    nodes.push(typeof child === "number" ? String(child) : child);
  }
  return { tag, attrs: plain, on, children: nodes };
}

/** All text of a drawing, as a screen reader reads it. @param {Node_} node @returns {string} */
export function textOf(node) {
  return typeof node === "string" ? node : node.children.map(textOf).join(" ");
}
