// The keyboard: the space bar plays and pauses, the arrow keys step. On the time's slider they do the same: its own steps
// are a tenth of a millisecond, and thousands of them lie between two things that happen.

const KEYS = { " ": "play", ArrowRight: "step", ArrowLeft: "back" };

/** @param {(id: string) => HTMLElement} part */
export function listenToKeys(part) {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (meansMore(target, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = /** @type {Record<string, string>} */ (KEYS)[event.key];
    if (key) {
      event.preventDefault();
      part(key).click();
    }
  });
}

/** Whether a key has a meaning of its own where it is pressed: a button is pressed by the space bar, but not moved by
 * arrows. @param {HTMLElement} target @param {string} key */
function meansMore(target, key) {
  return target.closest(key === " " ? "input:not(#scrub), select, button, summary, a" : "input:not(#scrub), select") !== null;
}
