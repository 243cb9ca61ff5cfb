"""Warns, once each and with advice, about what causes trouble later.

Four mistakes bring groups down again and again: processing that takes nearly as long as max.poll.interval.ms, a commit
for every record, `range` where many topics make it uneven, and a static id whose session timeout hides a dead member
for minutes. Each gives a `PitfallWarning` and one `pitfall` record in the trace.

Rules. The checks cost nothing per record: the polling thread compares one number per poll, the rest happens at commits
and in rounds. Warnings are given on the polling thread, where the application's own filters apply, and never stop it.
What another thread finds is kept until the listener's calls of the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.client.config.warning import warn
from holdfast.model import TopicPartition, TraceRecord

if TYPE_CHECKING:
    from holdfast.client.config.settings import ConsumerConfig
    from holdfast.group.leader import LeaderPlan
    from holdfast.group.messages import OffsetEntry

NEAR = 0.7
"""A pause between polls of more than this share of max.poll.interval.ms is too long: on a slow day it takes half as
long again."""

SINGLE_COMMITS = 100
SINGLE_COMMITS_WITHIN_MS = 10_000.0
"""This many commits of one record each within this time are a habit. Rare commits of a slow topic are not."""

HIDDEN_FOR_MS = 120_000
"""From this session timeout on, a dead static member goes unnoticed for minutes. A restart takes one at most."""

LOPSIDED = 1.5
"""How many times its fair share a member may hold under `range` before a warning."""


class Pitfalls:
    """Finds one consumer's pitfalls."""

    def __init__(self, config: ConsumerConfig, trace: Callable[[TraceRecord], None], *, name: str) -> None:
        self.slow_ms = config.max_poll_interval_ms * NEAR
        """A longer pause between two polls is reported; infinite once all was said."""
        self._config = config
        self._trace = trace
        self._name = name
        self._told: set[str] = set()
        self._found: deque[tuple[str, str]] = deque(maxlen=16)
        self._last: dict[TopicPartition, int] = {}
        self._singles = 0
        self._singles_since = 0.0

    # -- on the polling thread

    def paused(self, took_ms: float, now: float, stuck: str | None) -> None:
        """This much time went by between two polls."""
        limit = self._config.max_poll_interval_ms
        if took_ms >= limit:
            where = f" It was at {stuck}." if stuck else ""
            self._warn(
                "poll-interval-exceeded",
                f"{took_ms:.0f} ms went by between two polls, and max.poll.interval.ms is {limit}: the group went on "
                f"without this member, and what it held is processed again by others.{where} Process less between two "
                "polls (a smaller num_messages), or raise max.poll.interval.ms.",
                now,
            )
            self.slow_ms = float("inf")
        else:
            self._warn(
                "poll-interval-near",
                f"{took_ms:.0f} ms went by between two polls, {took_ms / limit:.0%} of max.poll.interval.ms ({limit}). "
                "Beyond it the member is out of its group and its work is done twice. Process less between two polls "
                "(a smaller num_messages), or raise max.poll.interval.ms.",
                now,
            )
            self.slow_ms = float(limit)

    def committed(self, entries: Mapping[TopicPartition, OffsetEntry], now: float) -> None:
        """The application commits these."""
        if "commit-per-record" in self._told:
            return
        advanced = sum(entry.offset - self._last.get(p, entry.offset) for p, entry in entries.items())
        self._last.update({p: entry.offset for p, entry in entries.items()})
        if advanced != 1 or now - self._singles_since > SINGLE_COMMITS_WITHIN_MS:
            self._singles, self._singles_since = 0, now
        self._singles += advanced == 1
        if self._singles >= SINGLE_COMMITS:
            self._warn(
                "commit-per-record",
                f"the last {SINGLE_COMMITS} commits were for one record each: every record waits for the coordinator. "
                "Commit once per batch (consume(), then commit()), or let enable.auto.commit do it.",
                now,
            )
            self._last.clear()

    def tell(self, now: float) -> None:
        """Warn about what other threads found."""
        while self._found:
            self._warn(*self._found.popleft(), now)

    # -- on any thread

    def planned(self, plan: LeaderPlan) -> None:
        """We led this round."""
        if plan.round.strategy not in ("range", "roundrobin"):  # sticky's claims are remembered, not held
            return
        if "range-skew" not in self._told and (text := lopsided(plan)) is not None:
            self._found.append(("range-skew", text))
        if "eager-claims" not in self._told and (text := claims_given_away(plan)) is not None:
            self._found.append(("eager-claims", text))

    def _warn(self, kind: str, text: str, now: float) -> None:
        if kind in self._told:
            return
        self._told.add(kind)
        self._trace(
            TraceRecord(
                at=now,
                source="consumer",
                step="pitfall",
                group=self._config.group,
                member=self._name,
                cause=text,
                data={"pitfall": kind},
            )
        )
        warn(text)


def lopsided(plan: LeaderPlan) -> str | None:
    """How unevenly `range` divides several topics, if it is worth a warning.

    It starts every topic with the first member again, so the remainders pile up on the same members.
    """
    if plan.round.strategy != "range":
        return None
    loads = {member: len(partitions) for member, partitions in plan.round.assignment.items()}
    topics = len(plan.round.columns.topics)
    most, least = max(loads.values(), default=0), min(loads.values(), default=0)
    if topics < 2 or most - least < 2:
        return None
    fair = -(-sum(loads.values()) // len(loads))
    if most <= LOPSIDED * fair:
        return None
    heaviest = min(member for member, load in loads.items() if load == most)
    return (
        f"range gives {heaviest} {most} of {sum(loads.values())} partitions over {topics} topics, and another "
        f"member {least}, where {fair} each would be fair: it starts every topic with the first member again. Move the "
        "group to cooperative-sticky: `holdfast preflight GROUP --to cooperative-sticky` tells how."
    )


def claims_given_away(plan: LeaderPlan) -> str | None:
    """Members that still process partitions which an eager plan gives to others: KIP-429's silent danger.

    Eager members revoke before they join and claim nothing. A member that claims partitions speaks the cooperative
    protocol, and goes on processing them until it hears the round's result, when the new owner has begun.
    """
    holders = sorted({handover.source for handover in plan.round.moved.values() if handover.source is not None})
    if not holders:
        return None
    return (
        f"{', '.join(holders[:5])} joined with partitions in hand, which {plan.round.strategy} gives to others: for a "
        "moment two members process them. It speaks the cooperative protocol in an eager group: stop it, and do "
        "the first bounce of a migration, in which every member lists both assignors."
    )


def check_static(instance_id: str | None, session_timeout_ms: int, *, watchdog: bool) -> None:
    """Warn if a dead static member would go unnoticed for minutes: its partitions wait until its session ends."""
    if instance_id is None or watchdog or session_timeout_ms < HIDDEN_FOR_MS:
        return
    warn(
        f"group.instance.id is set and session.timeout.ms is {session_timeout_ms}: if this process dies, nobody reads "
        f"its partitions for {session_timeout_ms / 60_000:.1f} minutes. Choose a session timeout just above the "
        "longest restart (45–60 s), or set holdfast.watchdog=true, which tells the group of a killed process at once."
    )
