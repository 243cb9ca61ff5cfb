// Looking things up in a story: the span and the lag at a moment.

/**
 * The index of the span that contains a moment; a span begins where the one before ends.
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

/** Lag, interpolated between two points; NaN if it is unknown. @param {[number, number][]} points @param {number} moment */
export function lagAt(points, moment) {
  if (points.length === 0) return NaN;
  const index = indexAt(points, moment);
  const [from, lag] = points[index];
  const next = points[index + 1];
  if (!next || moment <= from) return lag;
  return lag + ((moment - from) / (next[0] - from)) * (next[1] - lag);
}
