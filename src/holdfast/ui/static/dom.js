// Puts a drawing into the document, and changes only what differs. Names are text, never markup.

import { straight } from "./words.js";

/** @typedef {import("./types.js").Node_} Node_ */
/** @typedef {import("./types.js").Element_} Element_ */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "line", "path", "g", "title"]);

/** @type {WeakMap<Element, Record<string, (event: Event) => void>>} */
const listeners = new WeakMap();

/** Fields with typed text that is not applied yet. Drawing must not overwrite it.
 * @type {WeakSet<EventTarget>} */
const typedInto = new WeakSet();
addEventListener("input", ({ target }) => { if (target) typedInto.add(target); }, true);
addEventListener("change", ({ target }) => { if (target) typedInto.delete(target); }, true);

/** Attributes that a drawing does not name, and that stay: whether somebody has opened a list, and a width. */
const KEPT = new Set(["open", "style"]);

/** @param {Element} root @param {Node_[]} nodes */
export function show(root, nodes) {
  nodes.forEach((node, index) => {
    const there = root.childNodes[index];
    const made = patched(there, node);
    if (there === undefined) root.appendChild(made);
    else if (made !== there) root.replaceChild(made, there);
  });
  while (root.childNodes.length > nodes.length) root.lastChild?.remove();
}

/** @param {ChildNode|undefined} there @param {Node_} node @returns {ChildNode} */
function patched(there, node) {
  if (typeof node === "string") {
    const text = straight(node);
    if (there instanceof Text) {
      if (there.data !== text) there.data = text;
      return there;
    }
    return document.createTextNode(text);
  }
  const same = there instanceof Element && there.tagName.toLowerCase() === node.tag;
  const element = same ? /** @type {Element} */ (there) : created(node.tag);
  setAttributes(element, node.attrs);
  listen(element, node.on);
  show(element, node.children);
  return element;
}

/** @param {string} tag @returns {Element} */
function created(tag) {
  return SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
}

/** @param {Element} element @param {Element_["attrs"]} attrs */
function setAttributes(element, attrs) {
  for (const [name, value] of Object.entries(attrs)) {
    if (name === "value" || name === "checked" || name === "selected") {
      if (name === "value" && element === document.activeElement && typedInto.has(element)) continue;
      if (/** @type {any} */ (element)[name] !== value) /** @type {any} */ (element)[name] = value;
      continue;
    }
    if (name === "width%") {
      // A style attribute is refused by the content security policy; the style itself is not.
      /** @type {HTMLElement} */ (element).style.width = `${value}%`;
      continue;
    }
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const { name } of [...element.attributes]) {
    if (!(name in attrs) && !KEPT.has(name)) element.removeAttribute(name);
  }
}

/** @param {Element} element @param {Record<string, (event: Event) => void>} wanted */
function listen(element, wanted) {
  const had = listeners.get(element) ?? {};
  for (const name of Object.keys(had)) if (!(name in wanted)) element.removeEventListener(name, relay);
  for (const name of Object.keys(wanted)) if (!(name in had)) element.addEventListener(name, relay);
  listeners.set(element, wanted);
}

/** @param {Event} event */
function relay(event) {
  const element = /** @type {Element} */ (event.currentTarget);
  listeners.get(element)?.[event.type]?.(event);
}
