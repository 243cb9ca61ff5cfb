// Time in the scene: playing, pausing, stepping. Pure: the page passes the milliseconds that have gone by.

/** @typedef {{at: number, end: number, playing: boolean, speed: number}} Player */

export const SPEEDS = [0.1, 0.5, 1, 2, 5, 20, 60, 200];

/** The default speed, at which a scene takes about half a minute. @param {number} end */
export function usualSpeed(end) {
  return SPEEDS.find((speed) => end / speed <= 40000) ?? SPEEDS[SPEEDS.length - 1];
}

/** @param {Player} player @param {number} passed milliseconds of real time @returns {Player} */
export function pass(player, passed) {
  if (!player.playing) return player;
  const at = Math.min(player.end, player.at + passed * player.speed);
  return { ...player, at, playing: at < player.end };
}

/** @param {Player} player @returns {Player} */
export function toggle(player) {
  const again = !player.playing && player.at >= player.end;
  return { ...player, playing: !player.playing, at: again ? 0 : player.at };
}

/** Go to the next or the previous moment at which something happens.
 * @param {Player} player @param {number[]} moments sorted @param {1|-1} way @returns {Player} */
export function step(player, moments, way) {
  const next =
    way > 0 ? moments.find((at) => at > player.at + 0.05) : [...moments].reverse().find((at) => at < player.at - 0.05);
  return { ...player, playing: false, at: next ?? (way > 0 ? player.end : 0) };
}
