// The page's drawing without a document: state in, scene out. Run by node's own test runner.

import assert from "node:assert/strict";
import { test } from "node:test";

import { get, refusal } from "../../../src/holdfast/ui/static/api.js";
import { read, tokenIn, write } from "../../../src/holdfast/ui/static/address.js";
import { ask } from "../../../src/holdfast/ui/static/ask.js";
import { axis, pieces } from "../../../src/holdfast/ui/static/axis.js";
import { code } from "../../../src/holdfast/ui/static/code.js";
import { textOf } from "../../../src/holdfast/ui/static/h.js";
import { history } from "../../../src/holdfast/ui/static/history.js";
import { listenToKeys } from "../../../src/holdfast/ui/static/keys.js";
import { lanes, strip } from "../../../src/holdfast/ui/static/lanes.js";
import { machines } from "../../../src/holdfast/ui/static/machines.js";
import { mapFrame, rectangles, rows } from "../../../src/holdfast/ui/static/map.js";
import { members } from "../../../src/holdfast/ui/static/members.js";
import { pass, step, toggle, usualSpeed } from "../../../src/holdfast/ui/static/player.js";
import { deployWords, eventWord } from "../../../src/holdfast/ui/static/setup.js";
import { indexAt, lagAt, spanAt } from "../../../src/holdfast/ui/static/spans.js";
import { told } from "../../../src/holdfast/ui/static/told.js";
import { moments, viewAt } from "../../../src/holdfast/ui/static/view.js";
import { waits } from "../../../src/holdfast/ui/static/waits.js";
import { some, straight, time, timesLess } from "../../../src/holdfast/ui/static/words.js";
import { story } from "./story.js";

const all = (/** @type {any[]} */ nodes) => nodes.map(textOf).join(" ");
/** @param {any} node @param {(n: any) => boolean} wanted @returns {any[]} */
const find = (node, wanted) =>
  typeof node === "string" ? [] : [...(wanted(node) ? [node] : []), ...node.children.flatMap((/** @type {any} */ c) => find(c, wanted))];

test("a refusal is shown with its code, and an answer that is not ours with its status", async () => {
  const ours = new Response('{"error": {"code": "PAGE_FAULT", "what": "it failed.", "do": "Report it."}}', { status: 500 });
  assert.equal((await refusal(ours)).message, "PAGE_FAULT: it failed. Report it.");
  const real = globalThis.fetch;
  globalThis.fetch = async () => new Response("Internal Server Error", { status: 500 });
  try {
    await assert.rejects(get("/api/scenes"), /^Error: HTTP_500: the page's server gave no reason\./);
  } finally {
    globalThis.fetch = real;
  }
});

test("a moment lies in the span that begins before it", () => {
  const spans = [[0, "a"], [5, "b"], [9, "c"]];
  assert.deepEqual([0, 4.9, 5, 100].map((at) => spanAt(spans, at)[1]), ["a", "a", "b", "c"]);
  assert.equal(indexAt(spans, -1), 0);
});

test("lag is a line between two points, and jumps where two points share a moment", () => {
  const points = /** @type {[number, number][]} */ ([[0, 0], [10, 100], [10, 200], [20, 0]]);
  assert.deepEqual([0, 5, 10, 15, 99].map((at) => lagAt(points, at)), [0, 50, 200, 100, 0]);
});

test("a view says who owns what, how much is lit, and what happened last", () => {
  const before = viewAt(story(), 4000);
  assert.equal(before.lit, 2);
  assert.deepEqual(before.members.map((m) => m.name), ["c0", "<b>c1</b>"]);
  const during = viewAt(story(), 4700);
  assert.equal(during.lit, 1);
  assert.equal(during.lanes[0].state, "dark");
  assert.deepEqual(during.members[0].owns, ["P1"]);
  assert.equal(during.state, "PreparingRebalance");
  assert.equal(during.caption, "4.0 s: a rebalance begins");
  const after = viewAt(story(), 6000);
  assert.deepEqual(after.members.map((m) => m.owns), [["P1"], ["P0"]]);
  assert.equal(viewAt(story(), 100).members.length, 1, "who has not started is not shown");
});

test("the code that is lit is the newest member's, or the chosen one's", () => {
  assert.equal(viewAt(story(), 4700).speaker, 0);
  assert.equal(viewAt(story(), 6000).speaker, 1);
  assert.equal(viewAt(story(), 6000, 0).consumerLine, 0);
  const [, listings] = code(story(), viewAt(story(), 6000));
  const lit = find(listings, (n) => n.attrs.class === "lit");
  assert.deepEqual(lit.map(textOf), ["wait", "poll"]);
});

test("every lane has a sign and words, not only a colour", () => {
  const [, list] = lanes(story(), viewAt(story(), 4700), 4700);
  const [first, second] = find(list, (n) => n.tag === "li");
  assert.match(textOf(first), /✕ P0 → nobody means ✕ \(revoked\) lag \d+/);
  assert.match(textOf(second), /● P1 → c0/);
});

test("a lane that another member has taken over has a cut, so that its owners differ without colours", () => {
  const cuts = (/** @type {number} */ lane) => find(strip(story(), story().partitions[lane], 9000), (n) => n.attrs.class === "cut");
  assert.deepEqual(cuts(0).map((cut) => cut.attrs.x), ["497.0"]);
  assert.deepEqual(cuts(1), [], "nobody else ever had it");
});

test("a strip has its times, and marks what happened", () => {
  assert.deepEqual(pieces(story(), 0).map(({ wide, text }) => `${text} ${wide}`), ["0 s 20", "2 s 20", "4 s 20", "6 s 20", "8 s 20"]);
  const told = story();
  told.end = 10500;
  assert.equal(pieces(told, 0).at(-1)?.text, "", "no text where it has no room");
  const ticks = (/** @type {number} */ end) => pieces({ ...told, end }, 0).map(({ text }) => text).filter(Boolean);
  assert.deepEqual(ticks(120000), ["0 s", "20 s", "40 s", "60 s", "80 s", "100 s"]);
  assert.deepEqual(ticks(480000), ["0 min", "2 min", "4 min", "6 min"]);
  told.steps.unshift([2100, "happened", "c1 starts"]);
  const [mark] = find(axis(told, 0), (n) => n.attrs.class === "event");
  assert.match(mark.attrs.d, /^M191\.0 /);
});

test("arrows step on the time's slider and on buttons, and do what they always do in fields", () => {
  /** @type {string[]} */
  const clicked = [];
  let listener = (/** @type {any} */ _event) => {};
  const part = (/** @type {string} */ id) => /** @type {any} */ ({ click: () => clicked.push(id) });
  const real = globalThis.document;
  globalThis.document = /** @type {any} */ ({ addEventListener: (/** @type {string} */ _, /** @type {any} */ to) => { listener = to; } });
  try {
    listenToKeys(part);
  } finally {
    globalThis.document = real;
  }
  const press = (/** @type {string} */ key, /** @type {string} */ on) =>
    listener({ key, preventDefault() {}, target: { closest: (/** @type {string} */ wanted) => (wanted.split(", ").some((each) =>
      each === on || (each === "input:not(#scrub)" && on === "input")) ? {} : null) } });
  press("ArrowRight", "#scrub");
  press("ArrowLeft", "button");
  press(" ", "#scrub");
  press(" ", "button");
  press("ArrowRight", "input");
  press("ArrowRight", "select");
  assert.deepEqual(clicked, ["step", "back", "play"]);
});

test("a strip has a segment for each span, and hides the future", () => {
  const made = strip(story(), story().partitions[0], 5000);
  const segments = find(made, (n) => String(n.attrs.class).startsWith("seg"));
  assert.equal(segments.length, 6);
  const [future] = find(made, (n) => n.attrs.class === "future");
  assert.equal(future.attrs.x, "500.0");
  assert.equal(future.attrs.width, "500.0");
});

test("many partitions become a map and a line for each state", () => {
  const many = story();
  many.partitions = Array.from({ length: 1000 }, (_, n) => ({ ...many.partitions[n % 2], label: `P${n}` }));
  const view = viewAt(many, 4700);
  const words = all(mapFrame(many, view, 4700));
  assert.match(words, /● 500/);
  assert.match(words, /✕ 500 .*: P0, P2, .* and 492 more/);
  assert.equal(rectangles(many, 600, 400, [0, many.end]).length, 500 * 5 + 500);
});

test("the rows of a map lie together by their first owner", () => {
  const many = story();
  many.partitions = Array.from({ length: 4 }, (_, n) => ({ ...many.partitions[1], label: `P${n}`, spans: [[0, "waiting", -1, ""], [500, "working", n % 2, ""]] }));
  many.partitions.unshift({ ...many.partitions[0], label: "P9", spans: [[0, "waiting", -1, ""]] });
  assert.deepEqual(rows(many).map(({ label }) => label), ["P0", "P2", "P1", "P3", "P9"]);
});

test("who joins later has a place already, so that nothing jumps", () => {
  const places = (/** @type {any} */ one, /** @type {number} */ at) => all(members(one, viewAt(one, at), -1, () => {})) &&
    members(one, viewAt(one, at), -1, () => {}).flatMap((n) => find(n, (e) => e.tag === "li")).length;
  assert.equal(places(story(), 100), 2);
  assert.equal(places(story(), 6000), 2);
});

test("who is out of the group is not counted in it", () => {
  const heading = (/** @type {number} */ at) => all(members(left, viewAt(left, at), -1, () => {}).slice(0, 1));
  const left = story();
  left.members[0].spans.push([7000, "gone"]);
  left.partitions[1].spans.push([7000, "dark", 0, "left"]);
  assert.equal(heading(6000), "Consumer group · 2 consumers");
  assert.equal(heading(8000), "Consumer group · 1 of 2 in it");
  assert.equal(heading(100), "Consumer group · 1 consumer");
  left.members[1].spans.push([7000, "gone"]);
  left.partitions[0].spans.push([7000, "stalled", 1, "away"]);
  assert.equal(heading(8000), "Consumer group · 1 of 2 in it", "a static one that is away keeps its place and what it owns");
});

test("names are text, wherever they are drawn", () => {
  const view = viewAt(story(), 6000);
  const nodes = [...members(story(), view, -1, () => {}), ...machines(story(), view), ...history(story(), 6000, () => {})];
  assert.match(all(nodes), /<b>c1<\/b>/);
  assert.ok(nodes.flatMap((n) => find(n, (e) => e.tag === "b")).length === 0);
});

test("a name does not turn around the text beside it", () => {
  assert.equal(straight("c1\u202egnp\u2067x"), "c1\ufffdgnp\ufffdx");
  const nodes = members(story(), viewAt(story(), 6000), -1, () => {});
  const isolated = nodes.flatMap((n) => find(n, (e) => e.tag === "bdi")).map(textOf);
  assert.deepEqual(isolated, ["c0", "<b>c1</b>"]);
});

test("static and dynamic members are told apart", () => {
  assert.match(all(members(story(), viewAt(story(), 100), -1, () => {})), /a restart triggers a rebalance/);
  assert.match(all(members(story(), viewAt(story(), 6000), -1, () => {})), /1 of 2 static/);
});

test("the bar measures against eager", () => {
  const wait = story().wait;
  const nodes = waits({ eager: { ...wait, paused: 5000 }, holdfast: wait }, "eager", () => {});
  assert.match(all(nodes), /5.0 s/);
  assert.match(all(nodes), /10.0 times less/);
  const fills = nodes.flatMap((n) => find(n, (e) => String(e.attrs.class).startsWith("fill")));
  assert.deepEqual(fills.map((f) => f.attrs["width%"]), ["100.00", "10.00"]);
});

test("a bar that counts only rebalances says what stood still beside them", () => {
  // State that was restored after a leave: "0 ms, none at all", beside a claim of 61.2 s.
  const wait = { ...story().wait, paused: 0, longest: 0, partitions: 0, dark: 796000, darkLongest: 61200 };
  const words = all(waits({ eager: { ...wait, paused: 5000 }, cooperative: wait, holdfast: { ...wait, dark: 0, darkLongest: 0 } }, "eager", () => {}));
  assert.match(words, /0 ms none by rebalances longest 0 ms, 0 of 2 paused, 0 given back for any reason: 13.3 min without processing, longest 61.2 s/);
  assert.match(words, /0 ms none at all/);
});

test("a rebalance can be clicked, and a question tapped", () => {
  /** @type {number[]} */
  const gone = [];
  const [button] = history(story(), 0, (at) => gone.push(at)).flatMap((n) => find(n, (e) => e.tag === "button"));
  button.on.click();
  assert.deepEqual(gone, [4000]);
  /** @type {string[]} */
  const tapped = [];
  const nodes = ask([{ id: "lag", text: "How far?", answer: "x" }], null, (q) => tapped.push(q.id));
  nodes.flatMap((n) => find(n, (e) => e.tag === "button"))[0].on.click();
  assert.deepEqual(tapped, ["lag"]);
});

test("what is told says why where it differs", () => {
  const row = { what: "w", about: "eager", told: "5 s", played: { eager: "3 s", holdfast: "1 s" }, holds: false, why: "because" };
  assert.match(all(told([row])), /≠ .*5 s.*because/s);
  assert.doesNotMatch(all(told([{ ...row, holds: true }])), /because/);
  assert.deepEqual(told([]), []);
});

test("time passes at its speed, stops at the end, and begins again", () => {
  const player = { at: 0, end: 1000, playing: true, speed: 2 };
  assert.equal(pass(player, 100).at, 200);
  assert.deepEqual(pass(player, 900), { ...player, at: 1000, playing: false });
  assert.equal(toggle({ ...player, at: 1000, playing: false }).at, 0);
  assert.equal(pass({ ...player, playing: false }, 100).at, 0);
  assert.equal(usualSpeed(32000), 1);
  assert.equal(usualSpeed(1860000), 60);
});

test("steps go from one thing that happens to the next, and back", () => {
  const player = { at: 4000, end: 10000, playing: true, speed: 1 };
  const at = moments(story());
  assert.equal(step(player, at, 1).at, 4500);
  assert.equal(step(player, at, -1).at, 500);
  assert.equal(step({ ...player, at: 9000 }, at, 1).at, 10000);
});

test("an address goes there and back, and does not carry the token", () => {
  const address = { scene: "storm", kind: "eager", at: 12400, setup: { members: "5", events: "join@10s,crash:c0@20s" }, live: null };
  assert.deepEqual(read(write(address)), address);
  assert.doesNotMatch(write(address), /token/);
  assert.equal(tokenIn("#token=a-b_c"), "a-b_c");
  assert.deepEqual(read("?at=soon"), { scene: "", kind: "", at: -1, setup: {}, live: null });
});

test("buttons write events as the simulator reads them", () => {
  assert.equal(eventWord("join", "c0", 12345, ""), "join@12.3s");
  assert.equal(eventWord("restart", "c1", 2000, "90s"), "restart:c1@2.0s+90s");
  assert.equal(deployWords(["c0", "c1"], 0), "restart:c0@0.0s+3s,restart:c1@5.0s+3s");
});

test("times and lists as people read them", () => {
  assert.deepEqual([12, 1500, 840000].map(time), ["12 ms", "1.5 s", "14.0 min"]);
  assert.equal(timesLess(10, 0), "none at all");
  assert.equal(timesLess(10, 20), "2.0 times more");
  assert.equal(timesLess(2814000, 219), "12,849 times less");
  assert.equal(time(76194000), "21.2 h");
  assert.equal(some(["a", "b", "c"], 2), "a, b and 1 more");
});
