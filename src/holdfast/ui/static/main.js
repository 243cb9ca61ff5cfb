// Connects the parts: there is one state and one `draw`; every event changes the state and draws.

import { read, tokenIn, write } from "./address.js";
import { ask as askServer, get, post, refusal, remember } from "./api.js";
import { ask } from "./ask.js";
import { code } from "./code.js";
import { show } from "./dom.js";
import { aimed, buttons, liveSetup } from "./groups.js";
import { h } from "./h.js";
import { history as rebalances } from "./history.js";
import { listenToKeys } from "./keys.js";
import { lanes, MOST_ROWS } from "./lanes.js";
import { legend } from "./legend.js";
import { asPlayed, follow, moves, showConnection, showGroups } from "./livemode.js";
import { machines } from "./machines.js";
import { mapFrame, paintMap } from "./map.js";
import { members } from "./members.js";
import { carefully, notice } from "./notice.js";
import { pass, SPEEDS, step, toggle, usualSpeed } from "./player.js";
import { asPng, copied, download } from "./saving.js";
import { eventsWith, setup } from "./setup.js";
import { told } from "./told.js";
import { about, choices, kinds, LIVE } from "./top.js";
import { playWords, showMoment } from "./transport.js";
import { moments, viewAt } from "./view.js";
import { waits } from "./waits.js";
import { some } from "./words.js";

/** @typedef {import("./types.js").Played} Played */
/** @typedef {import("./types.js").Question} Question */

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const still = matchMedia("(prefers-reduced-motion: reduce)");

const state = {
  /** @type {import("./types.js").Catalogue|null} */ catalogue: null,
  address: read(location.search),
  /** @type {Played|null} */ played: null,
  shown: {},
  /** @type {ReturnType<typeof follow>|null} a live group, instead of a scene */ followed: null,
  player: { at: 0, end: 1, playing: false, speed: 1 },
  /** @type {number[]} */ moments: [],
  chosen: -1,
  target: "c0",
  /** @type {Question[]} */ questions: [],
  questionsAt: -1,
  /** @type {import("./ask.js").Said|null} */ said: null,
  plan: "",
  acted: "",
  resize: 6,
  asked: 0,
};

// Requests to the server

/** About what is shown. What is typed and not played yet is no part of it. */
const body = (/** @type {object} */ more = {}) =>
  ({ ...(state.followed ? { group: state.address.live } : state.shown), at: state.player.at, ...more });

/** Scenes and live groups have the same requests. @param {string} name */
const api = (name) => `/api/${state.followed ? "live/" : ""}${name}`;

/** @param {{at?: number}} [where] */
function play({ at } = {}) {
  return carefully(async () => {
    part("caption").textContent = "Playing the scene in three ways …";
    document.body.classList.add("busy");
    const number = ++state.asked;
    const { scene, setup, kind } = state.address;
    try {
      const played = /** @type {Played} */ (await askServer("/api/play", { scene, setup, kind }));
      if (number !== state.asked) return; // another one, or a live group, was asked for meanwhile
      state.shown = { scene, setup, kind };
      const { end } = played.story;
      const fresh = state.played === null || end !== state.player.end;
      state.played = played;
      state.address.setup = state.address.scene ? state.address.setup : played.setup;
      state.moments = moments(played.story);
      state.player = { at: Math.min(at ?? state.player.at, end), end, playing: false,
        speed: fresh ? usualSpeed(end) : state.player.speed };
      state.chosen = Math.min(state.chosen, played.story.members.length - 1);
      Object.assign(state, { said: null, questionsAt: -1, plan: "" });
    } finally {
      document.body.classList.remove("busy");
    }
    draw();
    settled();
  });
}

const REST_MS = 150;
let resting = 0;

/** Update the address and the questions once the moment stays the same. Quick steps do not ask the server. */
function settled() {
  clearTimeout(resting);
  resting = setTimeout(atRest, REST_MS);
}

function atRest() {
  if (!state.played || state.player.playing || state.followed?.live.connected === false) return;
  window.history.replaceState(null, "", write({ ...state.address, at: state.player.at }));
  if (state.questionsAt === state.player.at) return;
  const at = (state.questionsAt = state.player.at);
  void carefully(async () => {
    const { questions } = await askServer(api("questions"), body({ at }));
    if (state.questionsAt !== at) return;
    state.questions = questions;
    draw();
  }, "page");
}

// User actions

/** @param {string} name */
function chooseScene(name) {
  if (name.startsWith(LIVE)) return chooseGroup(name.slice(LIVE.length));
  state.followed?.end();
  state.followed = null;
  const scene = state.catalogue?.scenes.find((each) => each.name === name);
  state.address = { scene: name, kind: scene?.look ?? "holdfast", at: -1, setup: {}, live: null };
  state.chosen = -1;
  void play({ at: scene?.at ?? 0 });
}

/** Without a name the list of groups is shown. @param {string} group */
function chooseGroup(group) {
  state.followed?.end();
  state.address = { scene: "", kind: "", at: -1, setup: {}, live: group };
  Object.assign(state, { played: null, moments: [], questions: [], questionsAt: -1, said: null, plan: "", chosen: -1, asked: state.asked + 1 });
  // Requests failed while the connection was lost. When it is back, clear the error and ask again.
  const connected = () => void carefully(async () => { state.questionsAt = -1; settled(); }, "page");
  state.followed = follow(group, state.catalogue?.acts ?? [], { news, connected, refused: (error) => notice(error.message, "page") });
  state.player = { at: 0, end: 1, playing: false, speed: 1 };
  window.history.replaceState(null, "", write(state.address));
  draw();
}

/** @param {import("./following.js").Live} live @param {boolean} story */
function news(live, story) {
  if (live.group !== state.address.live) return; // from a connection that is being closed
  const before = state.played?.story.steps.at(-1);
  if (story) {
    state.played = asPlayed(live);
    state.moments = state.played ? moments(state.played.story) : [];
  }
  const now = state.followed?.now() ?? 0;
  state.player = { ...state.player, at: live.following ? now : state.player.at, end: now };
  draw();
  if (String(state.played?.story.steps.at(-1)) !== String(before)) settled();
}

/** The action of a demo's button. @param {string} name */
function act(name) {
  void carefully(async () => {
    const { said } = await askServer("/api/live/act", { act: name, member: state.target });
    state.acted = said;
    draw();
  });
}

/** Stop following a live group: the moment stays where it is. */
function rest() {
  if (state.followed?.live.following) state.followed.following = false;
}

/** @param {string} kind */
function chooseKind(kind) {
  state.address.kind = kind;
  void play();
}

/** @param {number} at */
function go(at) {
  rest();
  state.player = { ...state.player, at: Math.min(at, state.player.end), playing: false };
  draw();
  settled();
}

/** @param {string} name @param {string} value */
function change(name, value) {
  const scene = state.catalogue?.scenes.find((each) => each.name === state.address.scene);
  // A changed scene is no longer the ready scene, and its claims do not apply.
  state.address.setup = { ...(scene?.setup ?? {}), ...state.address.setup, [name]: value };
  state.address.scene = "";
  draw();
}

/** @param {string} kind @param {string} lasts */
function happen(kind, lasts) {
  const story = state.played?.story;
  if (!story) return;
  const at = state.player.at;
  const alive = viewAt(story, at).members.filter((m) => m.state !== "gone").map((m) => m.name);
  change("events", eventsWith(state.played?.setup.events ?? "", kind, kind === "deploy" ? alive : [state.target], at, lasts));
  void play({ at });
}

/** @param {Question} question */
function tap(question) {
  if (question.answer !== null) {
    state.said = { text: question.text, answer: question.answer, open: null };
    draw();
    return;
  }
  state.said = { text: question.text, answer: "Playing it …", open: null };
  draw();
  void carefully(async () => {
    const { answer, setup: other } = await askServer("/api/what-if", body({ id: question.id }));
    const open = () => {
      state.address = { ...state.address, scene: "", setup: other };
      void play();
    };
    state.said = { text: question.text, answer, open };
    draw();
  });
}

function plan() {
  void carefully(async () => {
    const found = await askServer(api("plan"), body({ members: state.resize }));
    const moves = found.moves.map((/** @type {any} */ m) => `${m.partition}: ${m.from} → ${m.to}`);
    state.plan = moves.length
      ? `From ${found.from} to ${found.to} members: ${moves.length} of ${found.of} partitions move, ${found.stopped} stop. ${some(moves, 12)}.`
      : `From ${found.from} to ${found.to} members: nothing moves.`;
    draw();
  });
}

/** @param {"svg"|"png"} form */
function save(form) {
  void carefully(async () => {
    const response = await post(api("picture"), body());
    if (!response.ok) throw await refusal(response);
    const drawn = await response.blob();
    download(form === "svg" ? drawn : await asPng(drawn), `holdfast-${state.address.scene || (state.followed ? "group" : "scene")}.${form}`);
  });
}

const copyLink = () => void carefully(() => copied(location.origin + write({ ...state.address, at: state.player.at }), part("caption")));

// Drawing

function draw() {
  const { played, catalogue, player } = state;
  if (!catalogue) return;
  drawTop();
  const live = state.followed?.live ?? null;
  showConnection(part("connection"), live);
  part("transport").hidden = live !== null && !live.story;
  if (live && !live.story) return showGroups(part, live.listed, chooseGroup);
  if (!played) return;
  const { story } = played;
  drawMoment();
  if (!live) show(part("acts"), []);
  show(part("waits"), waits(played.waits, state.address.kind, live ? null : chooseKind, story.witnesses?.length === 1));
  show(part("told"), told(played.told));
  show(part("legend"), legend(story));
  show(part("ask"), ask(state.questions, state.said, tap));
  if (!live) state.target = aimed(story.members.map((m) => m.name), state.target);
  show(part("setup"), live ? drawLiveSetup(live) : setup(
    { words: played.setup.events === undefined && state.address.scene ? played.setup : { ...played.setup, ...state.address.setup },
      usual: catalogue.usual, members: story.members.map((m) => m.name), target: state.target, at: player.at,
      plan: state.plan, resize: state.resize, command: played.command },
    { change, happen, choose: (name) => { state.target = name; }, play: () => void play(),
      resize: (number) => { state.resize = number; }, plan, svg: () => save("svg"), png: () => save("png"), link: copyLink },
  ));
}

/** @param {import("./following.js").Live} live */
function drawLiveSetup(live) {
  const names = viewAt(/** @type {import("./types.js").Story} */ (live.story), state.player.end).members
    .filter((m) => m.state !== "gone").map((m) => m.name);
  state.target = aimed(names, state.target);
  show(part("acts"), buttons(live.acts, names, state.target, state.acted, act, (name) => { state.target = name; }));
  return liveSetup({ readOnly: live.acts.length === 0, plan: state.plan, resize: state.resize },
    { resize: (number) => { state.resize = number; }, plan, svg: () => save("svg"), png: () => save("png") });
}

/** Draw what changes while it plays. */
function drawMoment() {
  const { played, player } = state;
  if (!played) return;
  const { story } = played;
  const view = viewAt(story, player.at, state.chosen);
  show(part("machines"), machines(story, view));
  show(part("members"), members(story, view, state.chosen, (number) => { state.chosen = number; draw(); }));
  show(part("history"), rebalances(story, player.at, go));
  show(part("code"), code(story, view));
  part("caption").setAttribute("aria-live", player.playing ? "off" : "polite"); // played, it would be read without an end
  if (part("caption").textContent !== view.caption) part("caption").textContent = view.caption;
  drawLanes(story, view);
  part("play").textContent = playWords(player.playing, state.followed?.live.following ?? null);
}

/** Draw the lanes and the clock: for a live group they move with every frame.
 * @param {import("./types.js").Story} story @param {import("./view.js").View} view */
function drawLanes(story, view) {
  const { player } = state;
  if (story.partitions.length <= MOST_ROWS) {
    show(part("lanes"), lanes(story, view, player.at));
  } else {
    show(part("lanes"), mapFrame(story, view, player.at));
    paintMap(/** @type {HTMLCanvasElement} */ (part("map")), story, player.at);
  }
  showMoment(part, story, player);
}

function drawTop() {
  const { catalogue, address, player } = state;
  if (!catalogue) return;
  const live = state.followed?.live ?? null;
  show(part("scene"), choices(catalogue, address, live));
  show(part("kinds"), kinds(catalogue, address.kind, live, chooseKind));
  const text = about(catalogue, address, live);
  if (part("story").textContent !== text) part("story").textContent = text;
  /** @type {HTMLElement} */ (part("speed").closest("label")).hidden = live !== null;
  show(part("speed"), SPEEDS.map((speed) => h("option", { value: String(speed), selected: speed === player.speed }, `${speed}×`)));
}

// Time

let last = 0;
let stepped = 0;

/** @param {number} now */
function frame(now) {
  const { player, followed, played } = state;
  if (followed) {
    if (played && moves(followed.live) && !still.matches) {
      const now = followed.now();
      state.player = { ...player, at: now, end: now };
      drawLanes(played.story, viewAt(played.story, now, state.chosen));
    }
  } else if (player.playing) {
    if (still.matches) {
      // With reduced motion: jump from one event to the next, once a second.
      if (now - stepped > 1000) {
        stepped = now;
        const next = step(player, state.moments, 1);
        state.player = { ...next, playing: next.at < next.end };
      }
    } else {
      state.player = pass(player, Math.min(100, now - last));
    }
    if (state.player !== player) drawMoment();
    if (!state.player.playing) settled();
  }
  last = now;
  requestAnimationFrame(frame);
}

function listen() {
  part("scene").addEventListener("change", (event) => chooseScene(/** @type {HTMLSelectElement} */ (event.target).value));
  part("play").addEventListener("click", () => {
    if (state.followed) {
      state.followed.following = !state.followed.live.following;
      return settled();
    }
    state.player = toggle(state.player);
    drawMoment();
    if (!state.player.playing) settled();
  });
  const by = (/** @type {1|-1} */ way) => () => go(step(state.player, state.moments, way).at);
  part("step").addEventListener("click", by(1));
  part("back").addEventListener("click", by(-1));
  const scrub = /** @type {HTMLInputElement} */ (part("scrub"));
  scrub.addEventListener("input", () => {
    rest();
    state.player = { ...state.player, at: Number(scrub.value), playing: false };
    drawMoment();
  });
  scrub.addEventListener("change", () => go(Number(scrub.value)));
  part("speed").addEventListener("change", (event) => {
    state.player.speed = Number(/** @type {HTMLSelectElement} */ (event.target).value);
  });
  listenToKeys(part);
  addEventListener("resize", drawMoment);
}

async function start() {
  const token = tokenIn(location.hash);
  remember(token);
  if (token) window.history.replaceState(null, "", location.pathname + location.search);
  listen();
  await carefully(async () => {
    state.catalogue = await get("/api/scenes");
  });
  const { scene, kind, at, live } = state.address;
  requestAnimationFrame(frame);
  if (live !== null && state.catalogue?.live) return chooseGroup(live);
  state.address.live = null;
  const ready = state.catalogue?.scenes.find((each) => each.name === scene);
  state.address.kind = kind || ready?.look || "holdfast";
  draw();
  await play({ at: at >= 0 ? at : (ready?.at ?? 0) });
}

void start();
