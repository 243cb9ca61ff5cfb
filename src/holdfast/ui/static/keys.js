// The keyboard: the space bar plays and pauses, the arrow keys step.

const KEYS = { " ": "play", ArrowRight: "step", ArrowLeft: "back" };

/** @param {(id: string) => HTMLElement} part */
export function listenToKeys(part) {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, select, button, summary, a") || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = /** @type {Record<string, string>} */ (KEYS)[event.key];
    if (key) {
      event.preventDefault();
      part(key).click();
    }
  });
}
