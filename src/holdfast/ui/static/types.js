// The shapes that pass between server and page. Types only: nothing here runs.

/** @typedef {[number, string, number, string]} LaneSpan from, state, member's number or -1, why */
/** @typedef {{name: string, label: string, spans: LaneSpan[], lag: [number, number][]}} Lane */
/** @typedef {{name: string, static: string|null, spans: [number, string][]}} Member */
/** @typedef {{from: number, to: number, cause: string, culprit: string, rounds: number, generation: number,
 *   moved: string[], paused: number, needless: number, longest: number, pause: number}} Rebalance */
/** @typedef {{paused: number, longest: number, partitions: number, needless: number, dark: number,
 *   darkLongest: number, of: number, during: number}} Wait */
/** @typedef {{title: string, lines: string[]}} Listing */
/** @typedef {{sign: string, text: string, height?: number}} Sign */
/** @typedef {{version: number, kind: string, end: number, protocol: string, produces: number|null, members: Member[],
 *   partitions: Lane[], coordinator: [number, string, number][], rebalances: Rebalance[],
 *   steps: [number, string, string][],
 *   code: {coordinator: Listing, consumer: Listing, coordinatorLit: [number, number][], memberLit: [number, number][][]},
 *   legend: {lanes: Record<string, Sign>, members: Record<string, Sign>, states: Record<string, string>},
 *   wait: Wait, birth: number, begin?: number, wall?: number, strip?: number, witnesses?: string[], atLeast?: boolean}} Story
 * Only a live group's story has: begin (where the known past begins), wall (when its clock was 0), strip (how much a
 * strip shows), witnesses (its sources), atLeast (whether the generation may be a later one). */
/** @typedef {{what: string, about: string, told: string, played: Record<string, string>, holds: boolean, why: string}} Told */
/** @typedef {{setup: Record<string, string>, command: string, story: Story, waits: Record<string, Wait>, told: Told[],
 *   violations: string[]}} Played */
/** @typedef {{name: string, title: string, story: string, look: string, at: number, setup: Record<string, string>}} Scene */
/** @typedef {{scenes: Scene[], kinds: Record<string, string>, events: Record<string, string>,
 *   usual: Record<string, string|number|boolean|null>, live: boolean, acts: string[]}} Catalogue */
/** @typedef {{id: string, text: string, answer: string|null}} Question */
/** @typedef {{scene: string, kind: string, at: number, setup: Record<string, string>, live: string|null}} Address */
/** @typedef {{tag: string, attrs: Record<string, string|number|boolean|null|undefined>,
 *   on: Record<string, (event: Event) => void>, children: Node_[]}} Element_ */
/** @typedef {Element_|string} Node_ */

export {};
