// What went wrong, where it can be read.

/** Who asked: what a person did ends any notice. What the page asks by itself ends only its own: a refusal stays to be read.
 * @typedef {"person"|"page"} By */

/** @type {By} */
let noticeBy = "person";
const element = () => /** @type {HTMLElement} */ (document.getElementById("notice"));

/** @param {() => Promise<void>} work @param {By} [by] */
export async function carefully(work, by = "person") {
  try {
    await work();
    if (by === "person" || noticeBy === by) notice("", by);
  } catch (error) {
    notice(error instanceof Error ? error.message : String(error), by);
  }
}

/** @param {string} text @param {By} by */
export function notice(text, by) {
  noticeBy = by;
  element().hidden = text === "";
  if (element().textContent !== text) element().textContent = text;
}
