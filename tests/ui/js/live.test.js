// A live group on the page, without a document and without a server.

import assert from "node:assert/strict";
import { test } from "node:test";

import { begun, connectionWords, heard, nowOf } from "../../../src/holdfast/ui/static/following.js";
import { aimed, buttons, groupList, liveSetup, told } from "../../../src/holdfast/ui/static/groups.js";
import { textOf } from "../../../src/holdfast/ui/static/h.js";
import { lanes, strip } from "../../../src/holdfast/ui/static/lanes.js";
import { machines } from "../../../src/holdfast/ui/static/machines.js";
import { stripWindow, when } from "../../../src/holdfast/ui/static/moment.js";
import { parse } from "../../../src/holdfast/ui/static/sse.js";
import { about, choices, kinds } from "../../../src/holdfast/ui/static/top.js";
import { read, write } from "../../../src/holdfast/ui/static/address.js";
import { moments, viewAt } from "../../../src/holdfast/ui/static/view.js";
import { waits } from "../../../src/holdfast/ui/static/waits.js";
import { story } from "./story.js";

const all = (/** @type {any[]} */ nodes) => nodes.map(textOf).join(" ");
const live = (/** @type {object} */ more = {}) => ({ ...story(), begin: 0, wall: 1700000000000, strip: 4000, witnesses: ["looks at the group"], ...more });
/** @type {any} */
const catalogue = { scenes: [{ name: "storm", title: "A storm", story: "s" }], kinds: { eager: "e" }, events: {}, usual: {}, live: true, acts: [] };

test("events are read however the stream is cut", () => {
  const sent = 'event: groups\ndata: [1]\n\n: still here\n\nevent: story\ndata: {"a":2}\n\n';
  for (let cut = 0; cut <= sent.length; cut++) {
    const first = parse(sent.slice(0, cut));
    const second = parse(first.rest + sent.slice(cut));
    assert.deepEqual([...first.events, ...second.events], [{ event: "groups", data: "[1]" }, { event: "story", data: '{"a":2}' }]);
    assert.equal(second.rest, "");
  }
});

test("the clock goes on between two messages, never back, and stops soon without news", () => {
  let now = heard(begun("g", []), "story", { group: "g", story: live({ end: 1000 }) }, 50);
  assert.equal(nowOf(now, 50), 1000);
  assert.equal(nowOf(now, 250), 1200);
  assert.equal(nowOf(now, 99999), 2500);
  now = heard(now, "story", { group: "g", story: live({ end: 1100 }) }, 300);
  assert.equal(nowOf(now, 300), 1250, "the message was late");
  assert.equal(heard(now, "story", { group: "other", story: live() }, 300), now, "of a group that was left");
});

test("a connection that is lost, and a broker that does not answer, are said", () => {
  assert.match(connectionWords(begun("g", [])), /connection lost/);
  const on = { ...begun("g", []), connected: true };
  assert.match(connectionWords(on), /● live/);
  assert.match(connectionWords(heard(on, "problem", { code: "C", what: "w.", do: "d." }, 0)), /connected, but C: w. d./);
  assert.match(connectionWords(heard(heard(on, "problem", { code: "C", what: "w.", do: "d." }, 0), "problem", null, 0)), /● live/);
});

test("a strip shows the stretch in which the moment lies, at one scale", () => {
  assert.deepEqual(stripWindow(live({ end: 10000 }), 10000), [6000, 10000]);
  assert.deepEqual(stripWindow(live({ end: 1000 }), 1000), [0, 4000], "a young one does not change its scale");
  assert.deepEqual(stripWindow(live({ end: 10000 }), 2000), [0, 4000]);
  assert.deepEqual(stripWindow(story(), 2000), [0, 10000], "of a scene the whole");
  const made = strip(live({ end: 10000 }), live().partitions[0], 10000);
  const [only] = made.children.filter((c) => typeof c !== "string" && String(c.attrs.class).startsWith("seg"));
  assert.deepEqual([/** @type {any} */ (only).attrs.x, /** @type {any} */ (only).attrs.width], ["0.0", "1000.0"]);
});

test("steps stay within the past that is known", () => {
  assert.deepEqual(moments(live({ begin: 4550 })), [4600, 4900, 5000]);
});

test("moments of a live group are times of day", () => {
  assert.match(when(live(), 1234), /^\d\d:\d\d:\d\d\.2$/);
  assert.equal(when(story(), 1234), "1.2 s");
});

test("what is not known is not said", () => {
  const unknown = live({ produces: null, protocol: "", atLeast: true });
  unknown.partitions[0].lag = [];
  const view = viewAt(unknown, 6000);
  const words = all([...machines(unknown, view), ...lanes(unknown, view, 6000)]);
  assert.match(words, /not known yet/);
  assert.match(words, /assignor not told · generation ≥ 2/);
  assert.match(words, /P0 .*lag \?/);
  unknown.coordinator = [[0, "Stable", -1]];
  assert.match(all(machines(unknown, viewAt(unknown, 6000))), /generation not known/);
});

test("whoever left long ago is shown no more", () => {
  const left = live({ end: 60000 });
  left.members[1].spans = [[0, "in"], [6000, "out"]];
  left.partitions[0].spans = [[0, "working", 0, ""]];
  assert.equal(viewAt(left, 20000).members.length, 2);
  assert.equal(viewAt(left, 59000).members.length, 1);
});

test("groups are listed as text, and one is chosen", () => {
  /** @type {string[]} */
  const chosen = [];
  const nodes = groupList([{ group: "<script>x</script>", state: "Stable" }], (name) => chosen.push(name));
  assert.match(all(nodes), /<script>x<\/script>\s+Stable/);
  /** @type {any} */ (nodes[1]).children[0].children[0].on.click();
  assert.deepEqual(chosen, ["<script>x</script>"]);
  assert.match(all(groupList([], () => {})), /no group yet/);
});

test("the top names live groups beside the scenes, and has no protocol to choose", () => {
  const now = { ...begun("billing", []), listed: [{ group: "billing", state: "" }, { group: "other", state: "" }], story: live() };
  const address = { scene: "", kind: "", at: -1, setup: {}, live: "billing" };
  const words = all(choices(catalogue, address, now));
  assert.match(words, /All live groups billing other A storm Your own scene/);
  assert.deepEqual(kinds(catalogue, "", now, () => {}), []);
  assert.match(about(catalogue, address, now), /Looks are half a second apart/);
  assert.match(told("g", live({ witnesses: ["a", "b", "c"] })), /as a, b and c tell it\.$/);
  assert.doesNotMatch(all(choices({ ...catalogue, live: false }, { ...address, live: null }, null)), /live/);
});

test("buttons only where somebody offers actions", () => {
  /** @type {string[]} */
  const done = [];
  const [row] = buttons(["add", "kill"], ["c0"], "c0", "", (name) => done.push(name), () => {});
  assert.match(textOf(row), /c0 add a member kill it/);
  /** @type {any} */ (row).children[2].on.click();
  assert.deepEqual(done, ["kill"]);
  assert.deepEqual(buttons([], ["c0"], "c0", "", () => {}, () => {}), []);
  const acts = { resize: () => {}, plan: () => {}, svg: () => {}, png: () => {} };
  assert.match(all(liveSetup({ readOnly: true, plan: "", resize: 6 }, acts)), /only shown/);
});

test("the wait-time of a live group is measured, with nothing to compare", () => {
  const words = all(waits({ holdfast: story().wait }, "holdfast", null));
  assert.match(words, /in the last 10.0 s/);
  assert.doesNotMatch(words, /times less|same seed/);
});

test("the address of a live group goes there and back", () => {
  const address = { scene: "", kind: "", at: -1, setup: {}, live: "a b&c" };
  assert.equal(read(write(address)).live, "a b&c");
  assert.equal(read("?live=").live, "");
});

test("a server that refuses is not said to be tried again", () => {
  assert.match(connectionWords({ ...begun("g", []), refused: true }), /not connected/);
});

test("buttons act on a member that the list has", () => {
  assert.equal(aimed(["c0", "c1"], "c1"), "c1");
  assert.equal(aimed(["c0", "c1"], "c7"), "c0");
  assert.equal(aimed([], "c7"), "c7");
});
