// Parses server-sent events from a stream of text. Pure: an unfinished event is returned for the next call.

/** @typedef {{event: string, data: string}} Sent */

/** @param {string} text the last call's rest and the new text @returns {{events: Sent[], rest: string}} */
export function parse(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  /** @type {Sent[]} */
  const events = [];
  for (const block of blocks) {
    const sent = { event: "message", data: "" };
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) sent.event = line.slice(7);
      else if (line.startsWith("data: ")) sent.data += line.slice(6);
      // A line that begins with a colon is a comment: it only shows that the connection lives.
    }
    if (sent.data) events.push(sent);
  }
  return { events, rest };
}
