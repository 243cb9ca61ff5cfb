// A live group on the page: its events change the state that is drawn, and the clock goes on between them.

import { connect } from "./connection.js";
import { show } from "./dom.js";
import { begun, connectionWords, heard, nowOf } from "./following.js";
import { groupList } from "./groups.js";
import { MOST_ROWS } from "./lanes.js";

/** @typedef {import("./following.js").Live} Live */
/** @typedef {{news: (live: Live, story: boolean) => void, connected: () => void, refused: (error: Error) => void}} Told */

/** Follows one group; without a name, the list of groups. @param {string} group @param {string[]} acts @param {Told} told */
export function follow(group, acts, told) {
  /** @type {Live} */
  let live = begun(group, acts);
  const change = (/** @type {Live} */ next, story = false) => {
    live = next;
    told.news(live, story);
  };
  const end = connect(group, {
    sent: (event, data) => change(heard(live, event, data, performance.now()), event === "story"),
    state: (connected) => {
      if (live.connected === connected) return;
      change({ ...live, connected });
      if (connected) told.connected();
    },
    refused: (error, final) => {
      if (final) change({ ...live, connected: false, refused: true });
      told.refused(error);
    },
  });
  return {
    end,
    now: () => nowOf(live, performance.now()),
    get live() { return live; },
    set following(/** @type {boolean} */ following) { change({ ...live, following }); },
  };
}

/** A live story in the form that the rest of the page draws. @param {Live} live @returns {import("./types.js").Played|null} */
export function asPlayed({ story }) {
  return story && { setup: {}, command: "", story, waits: { [story.kind]: story.wait }, told: [], violations: [] };
}

/** Whether strips move with every frame. Many partitions are painted only when there is news. @param {Live} live */
export function moves({ story, following }) {
  return following && story !== null && story.partitions.length <= MOST_ROWS;
}

/** @param {HTMLElement} element @param {Live|null} live */
export function showConnection(element, live) {
  element.hidden = live === null;
  const words = live ? connectionWords(live) : "";
  if (element.textContent !== words) element.textContent = words;
  element.classList.toggle("lost", live !== null && (!live.connected || live.problem !== ""));
}

/** Shows only the list of groups, without a timeline.
 * @param {(id: string) => HTMLElement} part @param {{group: string, state: string}[]} listed @param {(group: string) => void} choose */
export function showGroups(part, listed, choose) {
  for (const id of ["machines", "acts", "members", "code", "told", "setup", "legend", "waits", "ask", "history"]) show(part(id), []);
  show(part("lanes"), groupList(listed, choose));
}
