// The current moment of a live story: between two messages the page's own clock goes on. Pure.

/** @typedef {import("./types.js").Story} Story */
/** @typedef {{group: string, connected: boolean, refused: boolean, following: boolean, problem: string, listed: {group: string, state: string}[],
 *   story: Story|null, came: number, acts: string[]}} Live */

const AHEAD_MS = 1500;
const SLACK_MS = 400;

/** @param {string} group @param {string[]} acts @returns {Live} */
export function begun(group, acts) {
  return { group, connected: false, refused: false, following: true, problem: "", listed: [], story: null, came: 0, acts };
}

/** The moment that is shown while following. Without news the clock stops soon, because the present is unknown.
 * @param {Live} live @param {number} clock the page's, in milliseconds */
export function nowOf(live, clock) {
  return live.story ? live.story.end + Math.max(0, Math.min(AHEAD_MS, clock - live.came)) : 0;
}

/** @param {Live} live @param {string} event @param {any} data @param {number} clock @returns {Live} */
export function heard(live, event, data, clock) {
  if (event === "groups") return { ...live, listed: data };
  if (event === "problem") return { ...live, problem: data ? `${data.code}: ${data.what} ${data.do}` : "" };
  if (event === "story" && data.group === live.group) {
    // A message that took longer than the one before must not turn the clock back.
    const early = live.story ? nowOf(live, clock) - data.story.end : 0;
    return { ...live, story: data.story, came: clock - Math.max(0, Math.min(SLACK_MS, early)) };
  }
  return live;
}

/** What the page says about its connection. @param {Live} live */
export function connectionWords(live) {
  if (live.refused) return "○ not connected: the server refuses";
  if (!live.connected) return "○ connection lost: trying again";
  return live.problem ? `◐ connected, but ${live.problem}` : "● live";
}
