"""Ready scenes: what articles tell about rebalances, as setups, with the figures that those articles give.

A claim is such a figure, and the measure that it is compared with here. Where the measured figure lies outside the
claim, the claim says why; a test ensures that it does so exactly then. Nothing in this file is a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model import HoldfastError
from holdfast.sim.played import Played, figure_text
from holdfast.sim.setup import Setup

SECOND_ROUND = (
    "The second round begins when the last member hears of it on its heartbeat, up to 3 s later, and has polled. "
    "Holdfast's members are told in the plan itself."
)

STORM_SHARE = (
    "A rebalance lasts until the slowest member has come to it, here 45 s at most, twice in 6 min. "
    "Half of the time takes batches of minutes at everybody, or several such consumers."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure that articles give for a scene."""

    measure: str
    """A key of `played.MEASURES`."""
    about: str
    """The kind that it is about."""
    told: str
    """The figure in words."""
    low: float
    high: float
    """The same as a range: milliseconds, a number or percent."""
    why: str = ""
    """Why the measured figure lies outside that range, if it does."""

    def holds(self, played: Played) -> bool:
        return self.low <= played.measure(self.measure) <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyScene:
    """A setup with its story."""

    title: str
    story: str
    setup: Setup
    claims: tuple[Claim, ...]
    look: str = "eager"
    """The kind to show first."""
    at_ms: float = 0.0
    """The moment worth a look."""


def _claim(measure: str, about: str, told: str, low: float, high: float, why: str = "") -> Claim:
    return Claim(measure=measure, about=about, told=told, low=low, high=high, why=why)


LONGEST, PAUSED, MOVED, ROUNDS = (
    "longest pause by a rebalance",
    "partitions that a rebalance paused",
    "partitions that moved",
    "rounds after the start",
)
EVICTED, RETAKEN, BACK, OTHERS, OTHERS_LONGEST = (
    "until the coordinator takes it out",
    "from then until others have its partitions",
    "until it asks to come back",
    "partitions of others that paused",
    "longest pause of others",
)
UNSTABLE, LOST = "time in which the group is not Stable", "processing time that is lost"

SCENES: Mapping[str, ReadyScene] = {
    "tick8": ReadyScene(
        title="Tick 8: C0 does not poll in time",
        story="Four consumers share six partitions; a tick is a second. C0 hangs at tick 2, and at tick 8 it has "
        "exceeded max.poll.interval.ms. Watch the lanes that do not move.",
        setup=Setup(
            members=4, partitions=6, events="batch:c0@0s+200ms,hang:c0@2s+18s", max_poll="6s", session="6s",
            heartbeat="2s", batch="2s", spread=0.5, duration="32s",
        ),
        claims=(
            _claim("when the coordinator takes it out", "eager", "at tick 8", 7_500, 8_500),
            _claim(PAUSED, "eager", "every lane goes dark", 6, 6),
            _claim(LONGEST, "eager", "for a few ticks", 1_000, 4_000),
            _claim(OTHERS, "cooperative", "lanes that do not move stay lit", 0, 0),
        ),
        at_ms=12_400,
    ),
    "hung": ReadyScene(
        title="A hung consumer, to the millisecond",
        story="Three consumers, six partitions. C1 hangs in a query for 35 s; max.poll.interval.ms is 30 s. "
        "Its heartbeats go on, so nobody notices before that.",
        setup=Setup(
            members=3, partitions=6, events="hang:c1@11s+35s", max_poll="30s", session="10s", heartbeat="3s",
            batch="300ms", listener="20ms", duration="70s",
        ),
        claims=(
            _claim(EVICTED, "cooperative", "30,000 ms: marked as failed", 30_000, 30_200),
            _claim(
                RETAKEN, "cooperative", "400 ms later others fetch its partitions", 0, 500,
                "The others hear of the round on their next heartbeat, up to 3 s later. Holdfast's members are poked.",
            ),
            _claim(OTHERS, "cooperative", "other consumers never stop", 0, 0),
            _claim(BACK, "cooperative", "35,000 ms: polls again, rejoins", 35_000, 35_100),
            _claim(
                OTHERS_LONGEST, "eager", "in an eager rebalance everybody pauses for > 5 s", 5_000, 60_000,
                "An eager pause is as long as the slowest member takes to come. Here batches take 300 ms at most; the "
                "scene `third` has longer ones.",
            ),
        ),
        look="cooperative",
        at_ms=41_500,
    ),
    "storm": ReadyScene(
        title="A rebalance storm",
        story="From 10 s on C0 works on huge batches of 6 min with a max.poll.interval.ms of 5 min: taken out, back, "
        "taken out again. The others' batches take half a minute.",
        setup=Setup(
            members=4, partitions=8, events="batch:c0@10s+6m", max_poll="5m", batch="30s", spread=0.5, duration="35m"
        ),
        claims=(
            _claim(EVICTED, "eager", "T+5 min: taken out", 300_000, 345_000),
            _claim(ROUNDS, "eager", "a rebalance out and one back in, every 5 to 7 min", 8, 14),
            _claim(
                UNSTABLE, "eager", "50 % or more of the time is spent on rebalancing", 50, 100,
                STORM_SHARE,
            ),
            _claim(LOST, "eager", "50 % or more of it is lost", 50, 100, STORM_SHARE),
        ),
        at_ms=330_000,
    ),
    "third": ReadyScene(
        title="Two consumers, four partitions, a third joins",
        story="The plainest of all rebalances: one partition has to move. The consumers work on batches of 4 to 12 s.",
        setup=Setup(members=2, partitions=4, events="join@30s", batch="8s", spread=0.5, duration="75s"),
        claims=(
            _claim(PAUSED, "eager", "all partitions pause", 4, 4),
            _claim(LONGEST, "eager", "down for 5 to 15 s", 5_000, 15_000),
            _claim(PAUSED, "cooperative", "only what moves pauses", 1, 1),
            _claim(
                LONGEST, "cooperative", "less than 200 ms", 0, 200,
                SECOND_ROUND + " But here all of them wait for the one that polls last.",
            ),
        ),
        at_ms=34_000,
    ),
    "third-quick": ReadyScene(
        title="The same with quick batches",
        story="Two consumers, four partitions, a third joins; the batches take no time and the listener 1 ms. What is "
        "left is the protocol.",
        setup=Setup(members=2, partitions=4, events="join@10s", batch="0ms", listener="1ms", duration="25s"),
        claims=(
            _claim(
                LONGEST, "eager", "down for 5 to 15 s", 5_000, 15_000,
                "Both heard of it on the same heartbeat and had nothing to finish. The seconds come from batches and "
                "listeners; see the scene before.",
            ),
            _claim(PAUSED, "eager", "all partitions pause", 4, 4),
            _claim(LONGEST, "cooperative", "less than 200 ms", 0, 200, SECOND_ROUND),
            _claim(LONGEST, "holdfast", "less than 200 ms", 0, 200),
        ),
        look="holdfast",
        at_ms=12_000,
    ),
    "ten": ReadyScene(
        title="Ten consumers, a hundred partitions, one joins",
        story="The newcomer should get its share, about one partition from each of the others, and nothing else "
        "should stop.",
        setup=Setup(members=10, partitions=100, events="join@20s", batch="2s", spread=0.5, duration="45s"),
        claims=(
            _claim(PAUSED, "eager", "all 100 stop", 100, 100),
            _claim(MOVED, "cooperative", "about 1 from each of the ten", 8, 10),
            _claim(PAUSED, "cooperative", "only those", 8, 10),
        ),
        at_ms=23_800,
    ),
    "fifty": ReadyScene(
        title="50 instances, 200 partitions",
        story="A production group; one more instance starts. The pause is as long as the slowest member takes to come: "
        "batches here take 6 to 18 s.",
        setup=Setup(members=50, partitions=200, events="join@60s", batch="12s", spread=0.5, duration="2m"),
        claims=(
            _claim(PAUSED, "eager", "consumption of every partition is suspended", 200, 200),
            _claim(LONGEST, "eager", "10 to 30 s", 10_000, 30_000),
            _claim(PAUSED, "cooperative", "only a small subset", 1, 10),
        ),
        at_ms=68_000,
    ),
    "hundred": ReadyScene(
        title="One consumer joins a group of 100",
        story="Even if just one consumer is added, all 100 stop, revoke everything and wait. Batches take 6 to 18 s.",
        setup=Setup(members=100, partitions=200, events="join@60s", batch="12s", spread=0.5, duration="2m"),
        claims=(
            _claim(PAUSED, "eager", "all stop, zero messages are processed", 200, 200),
            _claim(LONGEST, "eager", "10 to 30 s", 10_000, 30_000),
            _claim(LONGEST, "holdfast", "never fully stops", 0, 1_000),
        ),
        at_ms=70_000,
    ),
    "deploy": ReadyScene(
        title="A rolling deploy without static ids",
        story="Three pods with four partitions each restart one after the other, each away for 35 s. "
        "Every restart is a leave and a join.",
        setup=Setup(
            members=3, partitions=12, events="restart:c0@10s+35s,restart:c1@60s+35s,restart:c2@110s+35s",
            session="60s", heartbeat="5s", duration="160s",
        ),
        claims=(
            _claim(ROUNDS, "eager", "2 rebalances a restart: 6", 6, 6),
            _claim(
                ROUNDS, "cooperative", "2 rebalances a restart: 6", 6, 6,
                "Three of the six move partitions from one living member to another, and that takes a second round.",
            ),
            _claim(PAUSED, "eager", "disruption of everything", 12, 12),
        ),
        at_ms=11_000,
    ),
    "deploy-static": ReadyScene(
        title="A rolling deploy with static ids",
        story="The same deploy with group.instance.id and a session of 60 s: who is back in time takes up what it had.",
        setup=Setup(
            members=3, partitions=12, events="restart:c0@10s+35s,restart:c1@60s+35s,restart:c2@110s+35s",
            session="60s", heartbeat="5s", duration="160s", static=True,
        ),
        claims=(
            _claim(ROUNDS, "holdfast", "0 rebalances", 0, 0),
            _claim(PAUSED, "cooperative", "the others never pause", 0, 0),
            _claim(
                "longest time without processing", "holdfast", "each pod's partitions wait for it: 35 s", 34_000, 36_000
            ),
        ),
        look="holdfast",
        at_ms=30_000,
    ),
    "restore": ReadyScene(
        title="State to restore: 14 minutes against 1",
        story="14 stateful consumers with 13 partitions each; a partition's state takes a minute to restore. "
        "One leaves. Eager: each of the others gives up its state and restores 14 partitions, one after the other. "
        "Cooperative: each restores the one that it gained.",
        setup=Setup(
            members=14, partitions=182, events="leave:c13@15m", restore="1m", duration="31m",
        ),
        claims=(
            _claim("longest time without processing", "eager", "14 min of outage", 830_000, 850_000),
            _claim("longest time without processing", "cooperative", "a brief gap of 1 min", 55_000, 65_000),
        ),
        at_ms=1_000_000,
    ),
}  # fmt: skip
"""By the name that the command line and the page's address use."""


def scene_named(name: str) -> ReadyScene:
    scene = SCENES.get(name)
    if scene is None:
        raise HoldfastError("UNKNOWN_SCENE", f"{name!r} is not a ready scene.", f"Use one of {', '.join(SCENES)}.")
    return scene


def told_and_played(scene: ReadyScene, played: Mapping[str, Played]) -> list[dict[str, object]]:
    """Each claim beside what was played, in every kind."""
    rows: list[dict[str, object]] = []
    for claim in scene.claims:
        holds = claim.holds(played[claim.about])
        rows.append(
            {
                "what": claim.measure,
                "about": claim.about,
                "told": claim.told,
                "played": {
                    kind: figure_text(claim.measure, each.measure(claim.measure)) for kind, each in played.items()
                },
                "holds": holds,
                "why": claim.why,
            }
        )
    return rows
