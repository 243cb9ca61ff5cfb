// Looking things up in a story: which span a moment lies in, and how much lag there is then.

/**
 * The index of the span in which a moment lies; spans begin where the one before ends.
 * @param {ArrayLike<ArrayLike<any>>} spans
 * @param {number} moment
 */
export function indexAt(spans, moment) {
  let low = 0;
  let high = spans.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (/** @type {number} */ (spans[middle][0]) <= moment) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * @template {ArrayLike<any>} T
 * @param {T[]} spans
 * @param {number} moment
 * @returns {T}
 */
export function spanAt(spans, moment) {
  return spans[indexAt(spans, moment)];
}

/** Between two points lag is a line. NaN where nobody knows. @param {[number, number][]} points @param {number} moment */
export function lagAt(points, moment) {
  if (points.length === 0) return NaN;
  const index = indexAt(points, moment);
  const [from, lag] = points[index];
  const next = points[index + 1];
  if (!next || moment <= from) return lag;
  return lag + ((moment - from) / (next[0] - from)) * (next[1] - lag);
}
