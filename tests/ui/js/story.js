// A small story by hand: two members, two partitions; P0 moves from c0 to c1.

/** @returns {import("../../../src/holdfast/ui/static/types.js").Story} */
export function story() {
  const sign = (/** @type {string} */ s, height = 1) => ({ sign: s, text: `means ${s}`, height });
  return {
    version: 1, kind: "holdfast", end: 10000, protocol: "cooperative-sticky", produces: 200,
    members: [
      { name: "c0", static: null, spans: [[0, "joining"], [500, "in"]] },
      { name: "<b>c1</b>", static: "i-1", spans: [[0, "absent"], [4000, "joining"], [5000, "in"]] },
    ],
    partitions: [
      { name: "orders-0", label: "P0", spans: [[0, "waiting", -1, ""], [500, "working", 0, ""], [4500, "revoking", 0, "revoked"],
        [4600, "dark", 0, "revoked"], [4900, "taken", 1, ""], [5000, "working", 1, "handed over"]],
        lag: [[0, 0], [4500, 0], [5000, 50], [5200, 0], [10000, 0]] },
      { name: "orders-1", label: "P1", spans: [[0, "waiting", -1, ""], [500, "working", 0, ""]], lag: [[0, 0], [10000, 0]] },
    ],
    coordinator: [[0, "Empty", 0], [4000, "PreparingRebalance", 1], [4900, "Stable", 2]],
    rebalances: [{ from: 4000, to: 5000, cause: "c1 joined", culprit: "c1", rounds: 2, generation: 2, moved: ["P0"], paused: 1,
      needless: 0, longest: 500, pause: 500 }],
    steps: [[0, "member", "c0 starts"], [4000, "round", "a rebalance begins"], [5000, "lane", "c1 works on P0"]],
    code: {
      coordinator: { title: "the coordinator", lines: ["def", "wait"] }, consumer: { title: "a consumer", lines: ["join", "poll"] },
      coordinatorLit: [[0, 0], [4000, 1]], memberLit: [[[0, 1], [4500, 0]], [[0, 0], [5000, 1]]],
    },
    legend: {
      lanes: { waiting: sign("◌", 0), working: sign("●"), revoking: sign("◐", 0.5), dark: sign("✕", 0.1), taken: sign("◔", 0.5), stalled: sign("‖", 0.3) },
      members: { absent: sign(" "), joining: sign("→"), in: sign("●"), hung: sign("‖"), frozen: sign("❄"), out: sign("○"), gone: sign("✕") },
      states: { Empty: "no", PreparingRebalance: "yes", CompletingRebalance: "yes", Stable: "yes" },
    },
    wait: { paused: 500, longest: 500, partitions: 1, needless: 0, dark: 500, darkLongest: 500, of: 2, during: 10000 },
    birth: 0,
  };
}
