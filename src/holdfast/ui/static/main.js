// Wires the parts together: one state, one `draw`, and everything that happens changes the state and draws.

import { read, tokenIn, write } from "./address.js";
import { ask as askServer, get, post, refusal, remember } from "./api.js";
import { ask } from "./ask.js";
import { code } from "./code.js";
import { show } from "./dom.js";
import { h } from "./h.js";
import { history as rebalances } from "./history.js";
import { lanes, MOST_ROWS } from "./lanes.js";
import { legend } from "./legend.js";
import { machines } from "./machines.js";
import { mapFrame, paintMap } from "./map.js";
import { members } from "./members.js";
import { pass, SPEEDS, step, toggle, usualSpeed } from "./player.js";
import { deployWords, eventWord, setup } from "./setup.js";
import { told } from "./told.js";
import { moments, viewAt } from "./view.js";
import { waits } from "./waits.js";
import { clock, some } from "./words.js";

/** @typedef {import("./types.js").Played} Played */
/** @typedef {import("./types.js").Question} Question */

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const still = matchMedia("(prefers-reduced-motion: reduce)");

const state = {
  /** @type {import("./types.js").Catalogue|null} */ catalogue: null,
  address: read(location.search),
  /** @type {Played|null} */ played: null,
  player: { at: 0, end: 1, playing: false, speed: 1 },
  /** @type {number[]} */ moments: [],
  chosen: -1,
  target: "c0",
  /** @type {Question[]} */ questions: [],
  questionsAt: -1,
  /** @type {import("./ask.js").Said|null} */ said: null,
  plan: "",
  resize: 6,
  busy: false,
  asked: 0,
  noticeBy: "person",
};

// Asking the server

const body = (/** @type {object} */ more = {}) => ({
  scene: state.address.scene, setup: state.address.setup, kind: state.address.kind, at: state.player.at, ...more,
});

/** What a person did ends any notice. What the page asks by itself ends only its own: a refusal stays to be read.
 * @param {() => Promise<void>} work @param {"person"|"page"} [by] */
async function carefully(work, by = "person") {
  try {
    await work();
    if (by === "person" || state.noticeBy === by) notice("", by);
  } catch (error) {
    notice(error instanceof Error ? error.message : String(error), by);
  }
}

/** @param {string} text @param {"person"|"page"} by */
function notice(text, by) {
  state.noticeBy = by;
  part("notice").hidden = text === "";
  if (part("notice").textContent !== text) part("notice").textContent = text;
}

/** @param {{at?: number}} [where] */
function play({ at } = {}) {
  return carefully(async () => {
    state.busy = true;
    part("caption").textContent = "Playing the scene in three ways …";
    document.body.classList.add("busy");
    const number = ++state.asked;
    try {
      const played = /** @type {Played} */ (await askServer("/api/play", body()));
      if (number !== state.asked) return; // somebody asked for another one meanwhile
      const { end } = played.story;
      const fresh = state.played === null || end !== state.player.end;
      state.played = played;
      state.address.setup = state.address.scene ? state.address.setup : played.setup;
      state.moments = moments(played.story);
      state.player = { at: Math.min(at ?? state.player.at, end), end, playing: false,
        speed: fresh ? usualSpeed(end) : state.player.speed };
      state.chosen = Math.min(state.chosen, played.story.members.length - 1);
      state.said = null;
      state.questionsAt = -1;
      state.plan = "";
    } finally {
      state.busy = false;
      document.body.classList.remove("busy");
    }
    draw();
    settled();
  });
}

const REST_MS = 150;
let resting = 0;

/** At rest: the address says where, and the questions are this moment's. Whoever steps on quickly asks nothing. */
function settled() {
  clearTimeout(resting);
  resting = setTimeout(atRest, REST_MS);
}

function atRest() {
  if (!state.played || state.player.playing) return;
  window.history.replaceState(null, "", write({ ...state.address, at: state.player.at }));
  if (state.questionsAt === state.player.at) return;
  const at = (state.questionsAt = state.player.at);
  void carefully(async () => {
    const { questions } = await askServer("/api/questions", body({ at }));
    if (state.questionsAt !== at) return;
    state.questions = questions;
    draw();
  }, "page");
}

// What people do

/** @param {string} name */
function chooseScene(name) {
  const scene = state.catalogue?.scenes.find((each) => each.name === name);
  state.address = { scene: name, kind: scene?.look ?? "holdfast", at: -1, setup: {} };
  state.chosen = -1;
  void play({ at: scene?.at ?? 0 });
}

/** @param {string} kind */
function chooseKind(kind) {
  state.address.kind = kind;
  void play();
}

/** @param {number} at */
function go(at) {
  state.player = { ...state.player, at: Math.min(at, state.player.end), playing: false };
  draw();
  settled();
}

/** @param {string} name @param {string} value */
function change(name, value) {
  const scene = state.catalogue?.scenes.find((each) => each.name === state.address.scene);
  // A scene that is changed is no longer the scene that something is told of.
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
  const word = kind === "deploy" ? deployWords(alive, at) : eventWord(kind, state.target, at, lasts);
  const events = state.played?.setup.events ?? "";
  change("events", events ? `${events},${word}` : word);
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
    const found = await askServer("/api/plan", body({ members: state.resize }));
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
    const response = await post("/api/picture", body());
    if (!response.ok) throw await refusal(response);
    const drawn = await response.blob();
    download(form === "svg" ? drawn : await asPng(drawn), `holdfast-${state.address.scene || "scene"}.${form}`);
  });
}

/** @param {Blob} svg @returns {Promise<Blob>} */
async function asPng(svg) {
  const url = URL.createObjectURL(svg);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth * 2, image.naturalHeight * 2];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture")))));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function copyLink() {
  const link = location.origin + write({ ...state.address, at: state.player.at });
  void carefully(async () => {
    await navigator.clipboard.writeText(link);
    part("caption").textContent = "The link is copied.";
  });
}

// Drawing

function draw() {
  const { played, catalogue, player } = state;
  if (!catalogue) return;
  drawTop();
  if (!played) return;
  const { story } = played;
  drawMoment();
  show(part("waits"), waits(played.waits, state.address.kind, chooseKind));
  show(part("told"), told(played.told));
  show(part("legend"), legend(story));
  show(part("ask"), ask(state.questions, state.said, tap));
  show(part("setup"), setup(
    { words: played.setup.events === undefined && state.address.scene ? played.setup : { ...played.setup, ...state.address.setup },
      usual: catalogue.usual, members: story.members.map((m) => m.name), target: state.target, at: player.at,
      plan: state.plan, resize: state.resize, command: played.command },
    { change, happen, choose: (name) => { state.target = name; }, play: () => void play(),
      resize: (number) => { state.resize = number; }, plan, svg: () => save("svg"), png: () => save("png"), link: copyLink },
  ));
}

/** What changes while it plays. */
function drawMoment() {
  const { played, player } = state;
  if (!played) return;
  const { story } = played;
  const view = viewAt(story, player.at, state.chosen);
  show(part("machines"), machines(story, view));
  if (story.partitions.length <= MOST_ROWS) {
    show(part("lanes"), lanes(story, view, player.at));
  } else {
    show(part("lanes"), mapFrame(story, view));
    paintMap(/** @type {HTMLCanvasElement} */ (part("map")), story, player.at);
  }
  show(part("members"), members(story, view, state.chosen, (number) => { state.chosen = number; draw(); }));
  show(part("history"), rebalances(story, player.at, go));
  show(part("code"), code(story, view));
  if (part("caption").textContent !== view.caption) part("caption").textContent = view.caption;
  const scrub = /** @type {HTMLInputElement} */ (part("scrub"));
  scrub.max = String(player.end);
  scrub.value = String(player.at);
  scrub.setAttribute("aria-valuetext", clock(player.at));
  part("clock").textContent = clock(player.at);
  part("play").textContent = player.playing ? "❚❚ Pause" : "▶ Play";
}

function drawTop() {
  const { catalogue, address, player } = state;
  if (!catalogue) return;
  const options = [...catalogue.scenes.map((s) => ({ name: s.name, title: s.title })), { name: "", title: "Your own scene" }];
  show(part("scene"), options.map(({ name, title }) => h("option", { value: name, selected: name === address.scene }, title)));
  show(part("kinds"), Object.entries(catalogue.kinds).map(([kind, words]) =>
    h("button", { type: "button", title: words, "data-kind": kind, "aria-pressed": kind === address.kind ? "true" : "false",
      onclick: () => chooseKind(kind) }, kind)));
  const scene = catalogue.scenes.find((each) => each.name === address.scene);
  const text = `${scene ? scene.story : "Your own scene."} In ${address.kind}: ${catalogue.kinds[address.kind] ?? ""}.`;
  if (part("story").textContent !== text) part("story").textContent = text;
  show(part("speed"), SPEEDS.map((speed) => h("option", { value: String(speed), selected: speed === player.speed }, `${speed}×`)));
}

// Time

let last = 0;
let stepped = 0;

/** @param {number} now */
function frame(now) {
  const { player } = state;
  if (player.playing) {
    if (still.matches) {
      // Without motion: from one thing that happens to the next, once a second.
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
    state.player = toggle(state.player);
    drawMoment();
    if (!state.player.playing) settled();
  });
  const by = (/** @type {1|-1} */ way) => () => go(step(state.player, state.moments, way).at);
  part("step").addEventListener("click", by(1));
  part("back").addEventListener("click", by(-1));
  const scrub = /** @type {HTMLInputElement} */ (part("scrub"));
  scrub.addEventListener("input", () => {
    state.player = { ...state.player, at: Number(scrub.value), playing: false };
    drawMoment();
  });
  scrub.addEventListener("change", () => go(Number(scrub.value)));
  part("speed").addEventListener("change", (event) => {
    state.player.speed = Number(/** @type {HTMLSelectElement} */ (event.target).value);
  });
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, select, button, summary, a") || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = { " ": "play", ArrowRight: "step", ArrowLeft: "back" }[event.key];
    if (key) {
      event.preventDefault();
      part(key).click();
    }
  });
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
  const { scene, kind, at } = state.address;
  const ready = state.catalogue?.scenes.find((each) => each.name === scene);
  state.address.kind = kind || ready?.look || "holdfast";
  draw();
  await play({ at: at >= 0 ? at : (ready?.at ?? 0) });
  requestAnimationFrame(frame);
}

void start();
