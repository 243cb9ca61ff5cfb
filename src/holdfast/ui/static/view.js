// A story at one moment: what every part of the page shows. Pure.

import { when } from "./moment.js";
import { indexAt, lagAt, spanAt } from "./spans.js";

/** @typedef {import("./types.js").Story} Story */
/** @typedef {{label: string, name: string, state: string, owner: number, why: string, since: number, lag: number}} LaneNow */
/** @typedef {{name: string, number: number, isStatic: boolean, state: string, owns: string[], dark: number}} MemberNow */
/** @typedef {{state: string, generation: number, lit: number, of: number, lanes: LaneNow[], members: MemberNow[],
 *   lag: number, caption: string, speaker: number, coordinatorLine: number, consumerLine: number}} View */

const OWNS = new Set(["working", "stalled", "taken", "revoking"]);

/** @param {Story} story @param {number} at @param {number} chosen the member whose code is shown, or -1 @returns {View} */
export function viewAt(story, at, chosen = -1) {
  const lanes = story.partitions.map((lane) => {
    const [since, state, owner, why] = spanAt(lane.spans, at);
    return { label: lane.label, name: lane.name, state, owner, why, since, lag: lagAt(lane.lag, at) };
  });
  const [, state, generation] = spanAt(story.coordinator, at);
  const speaker = chosen >= 0 ? chosen : lastToAct(story, at);
  return {
    state,
    generation,
    lanes,
    lit: lanes.filter((lane) => lane.state === "working").length,
    of: lanes.length,
    members: membersAt(story, at, lanes),
    lag: lanes.reduce((sum, lane) => sum + (lane.lag || 0), 0),
    caption: captionAt(story, at),
    speaker,
    coordinatorLine: spanAt(story.code.coordinatorLit, at)[1],
    consumerLine: speaker >= 0 ? spanAt(story.code.memberLit[speaker], at)[1] : -1,
  };
}

/** @param {Story} story @param {number} at @param {LaneNow[]} lanes @returns {MemberNow[]} */
function membersAt(story, at, lanes) {
  /** @type {string[][]} */
  const owns = story.members.map(() => []);
  const dark = story.members.map(() => 0);
  for (const lane of lanes) {
    if (lane.owner < 0 || !OWNS.has(lane.state)) continue;
    owns[lane.owner].push(lane.label);
    if (lane.state !== "working") dark[lane.owner] += 1;
  }
  return story.members
    .map((member, number) => ({
      name: member.name,
      number,
      isStatic: member.static !== null,
      state: spanAt(member.spans, at)[1],
      owns: owns[number],
      dark: dark[number],
    }))
    .filter((member) => member.state !== "absent" && !isLongGone(story, member, at));
}

const LONG_GONE_MS = 30000;

/** In a live group, a member that has left is still shown for a while. @param {Story} story @param {MemberNow} member @param {number} at */
function isLongGone(story, { number, state, owns }, at) {
  if (story.wall === undefined || (state !== "gone" && state !== "out") || owns.length) return false;
  return at - spanAt(story.members[number].spans, at)[0] > LONG_GONE_MS;
}

/** The member with the newest step. @param {Story} story @param {number} at */
function lastToAct(story, at) {
  let newest = -1;
  let when = -1;
  story.code.memberLit.forEach((lit, number) => {
    const since = spanAt(lit, at)[0];
    if (since <= at && since > when) [newest, when] = [number, since];
  });
  return newest;
}

/** What happened last. @param {Story} story @param {number} at */
function captionAt(story, at) {
  if (story.steps.length === 0 || story.steps[0][0] > at) return "";
  const index = indexAt(story.steps, at);
  return `${when(story, story.steps[index][0])}: ${story.steps[index][2]}`;
}

/** All moments at which something happens, of those that the story shows. @param {Story} story */
export function moments(story) {
  const found = new Set(story.steps.map(([at]) => at));
  for (const lane of story.partitions.slice(0, 40)) for (const [at] of lane.spans) found.add(at);
  return [...found].filter((at) => at >= (story.begin ?? 0)).sort((a, b) => a - b);
}
