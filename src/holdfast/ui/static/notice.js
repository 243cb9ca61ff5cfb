// The notice that shows what went wrong.

/** Who made a request. A person's successful request clears any notice; the page's own clears only a notice of its own.
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
