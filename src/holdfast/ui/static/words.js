// Times and numbers as people read them.

/** @param {number} ms */
export function time(ms) {
  if (ms >= 7200000) return `${(ms / 3600000).toFixed(1)} h`;
  if (ms >= 120000) return `${(ms / 60000).toFixed(1)} min`;
  return ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms)} ms`;
}

/** A moment of the scene. @param {number} ms */
export function clock(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Without the characters that turn the direction of text around: a name with one of them turned the words beside it too.
 * @param {string} text */
export function straight(text) {
  return text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** @param {number} number */
export function count(number) {
  return Math.round(number).toLocaleString("en");
}

/** How many times less; "" if there is nothing to compare. @param {number} first @param {number} other */
export function timesLess(first, other) {
  if (first <= 0) return "";
  if (other <= 0) return "none at all";
  const ratio = Math.max(first, other) / Math.min(first, other);
  return `${ratio >= 100 ? count(ratio) : ratio.toFixed(1)} times ${first >= other ? "less" : "more"}`;
}

/** @param {string[]} labels @param {number} most */
export function some(labels, most) {
  return labels.length <= most ? labels.join(", ") : `${labels.slice(0, most).join(", ")} and ${labels.length - most} more`;
}
