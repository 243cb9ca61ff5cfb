// The stream of a live group's events. A connection that is lost, or silent for too long, is opened again.

import { post, refusal } from "./api.js";
import { parse } from "./sse.js";

/** @typedef {{sent: (event: string, data: any) => void, state: (connected: boolean) => void, refused: (error: Error, final: boolean) => void}} Heard */

const SILENCE_MS = 7000; // the server sends something every two seconds
const FIRST_WAIT_MS = 500;
const MOST_WAIT_MS = 4000;

/** @param {string} group @param {Heard} heard @returns {() => void} ends it */
export function connect(group, heard) {
  let over = false;
  let wait = FIRST_WAIT_MS;
  /** @type {AbortController|null} */
  let under = null;
  let timer = 0;

  async function once() {
    const stop = (under = new AbortController());
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
    };
    alive();
    try {
      const response = await post("/api/live/events", { group }, stop.signal);
      if (!response.ok) {
        const error = await refusal(response);
        if (response.status < 500) over = true; // asking again would not help
        if (!stop.signal.aborted) heard.refused(error, over);
        return;
      }
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
      const text = new TextDecoder();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || over) return;
        alive();
        heard.state(true);
        wait = FIRST_WAIT_MS;
        const found = parse(rest + text.decode(value, { stream: true }));
        rest = found.rest;
        for (const { event, data } of found.events) heard.sent(event, JSON.parse(data));
      }
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  async function always() {
    while (!over) {
      try {
        await once();
      } catch (error) {
        // Not reached, broken off or silent: the page shows the lost connection, and we try again.
        if (!(error instanceof Error)) throw error;
      }
      if (over) return;
      heard.state(false);
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(MOST_WAIT_MS, wait * 2);
    }
  }

  void always();
  return () => {
    over = true;
    under?.abort();
  };
}
