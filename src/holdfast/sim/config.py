"""A world as a value: everything that happens in it follows from this and its seed, so it is printed first.

Times are milliseconds. `scenarios` and the command line write such a value by hand, `swarm` draws one from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.group.note_budget import NOTES_BYTES
from holdfast.sim.network import NetworkProfile

GROUP = "group-a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """One process that takes part, and how it behaves."""

    name: str
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    eager_assignors: tuple[str, ...] = ()
    """What it lists in a group that is not cooperative, like a consumer without a configured strategy."""
    cooperative_after_ms: float | None = 10_000.0
    """How long it leaves such a group eager before it tries to change that."""
    topics: tuple[str, ...] = ("orders",)
    instance_id: str | None = None
    start_ms: float = 0.0
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 10_000
    commit_interval_ms: float = 1_000.0
    poll_ms: float = 500.0
    """How often the application polls. Real ones poll more often, which makes no difference within the limits."""
    listener_ms: float = 1.0
    """How long a listener's call takes, if it has partitions."""
    batch_ms: float = 0.0
    """How long the application works on the result of one poll. A listener's call may have to wait as long. It polls
    again when it is done, which may be later than `poll_ms` and than max.poll.interval.ms."""
    batch_spread: float = 0.0
    """The share by which such a batch may be shorter or longer. Without it equal members poll in step."""
    sync_ms: float = 0.0
    """How long it takes to send its sync when its join was answered: a slow process, or a slow line."""
    restore_ms: float = 0.0
    """How long the state of one partition takes to restore before it can be processed; one partition at a time."""
    listener_raises: bool = False
    commit_on_revoke: bool = True
    stores_in_listener: bool = False
    """Whether it stores how far it is only when its listener is called, and now and then between."""
    commits_in_listener: bool = False
    """Whether it commits by itself, in its listener, what it has done of the partitions that are revoked. Without
    `commit_on_revoke`, which is the driver's."""
    commits_ahead: bool = True
    """Whether a revoke's commit goes ahead of the join. If not, it is being tried again, and the join may overtake it.
    """
    speed: float = 4.0
    """How much faster than the producer it processes."""
    foreign: bool = False
    """Behaves like another client: as a leader it neither marks nor knows draining members, as a member it waits for
    its heartbeat and hands nothing over."""
    marks: bool = True
    """Whether it writes holdfast's notes when it leads."""
    instant_rejoin: bool = True
    hand_over_offsets: bool = True
    hot_heartbeats: bool = True
    responsive_ms: float | None = 1_000.0
    """It joins a round only if its application has polled within this time; None joins at once."""
    pokes: bool = False
    """Whether members poke each other: a datagram that makes them ask the coordinator at once."""
    watchdog: bool = False
    """Whether a watchdog commits and leaves for it when its process crashes."""

    @property
    def commits_what_it_gives_up(self) -> bool:
        return self.commit_on_revoke or self.commits_in_listener

    @property
    def slow(self) -> bool:
        """Whether its batches decide how often it polls."""
        return self.batch_ms > self.poll_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that is done to the world at a given time."""

    at_ms: float
    kind: str
    """A word of `happenings.KINDS`."""
    target: str = ""
    """The member or topic it concerns."""
    lasts_ms: float = 0.0
    amount: int = 0

    def __str__(self) -> str:
        target = f":{self.target}" if self.target else ""
        amount = f"={self.amount}" if self.amount else ""
        lasts = f"+{self.lasts_ms / 1000:g}s" if self.lasts_ms else ""
        return f"{self.kind}{target}{amount}@{self.at_ms / 1000:g}s{lasts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """A whole world."""

    seed: int = 7
    members: tuple[MemberPlan, ...]
    topics: tuple[tuple[str, int], ...] = (("orders", 6),)
    """(topic, partitions)"""
    happenings: tuple[Happening, ...] = ()
    duration_ms: float = 60_000.0
    """Of the phase in which things happen; a swarm's world then heals and settles."""
    network: NetworkProfile = field(default_factory=NetworkProfile)
    initial_delay_ms: float = 500.0
    """The coordinator's group.initial.rebalance.delay.ms."""
    append_ms: float = 5.0
    """How long the broker's log lets an append linger before it is answered; Kafka's group coordinator: 5 ms."""
    plan_ms: float = 1.0
    """How long planning takes."""
    notes_bytes: int = NOTES_BYTES
    """Limit for all notes of a plan. With a low one even this small group gets a large group's notes."""
    short_notes: bool = False
    """Whether leaders write a large group's notes, with which members read on for a while what a round took from them.
    """
    request_timeout_ms: float = 5_000.0
    metadata_ms: float = 5_000.0
    """How old a member's view of the topics may become."""
    records_per_s: float = 100.0
    """What the producer writes to every partition."""
    crash_on_append: float = 0.0
    """Chance that the broker dies between an append and the answer that depends on it."""
    refuses: float = 0.0
    """Chance that a member's request is refused with a transient error, known or unknown."""
    heals: bool = False
    """Whether, after `duration_ms`, all faults stop and the group must settle and finish its work."""

    def describe(self) -> list[str]:
        """The configuration as lines for people."""
        lines = [
            f"seed {self.seed}: {len(self.members)} members, "
            + ", ".join(f"{name} with {count} partitions" for name, count in self.topics)
            + f", {self.duration_ms / 1000:g} s"
            + (", then healed" if self.heals else "")
        ]
        net = self.network
        if self.heals:
            lines.append(
                f"network: {net.delay_ms:g} ms + {net.jitter_ms:g} ms jitter, loss {net.loss:.1%}, duplicates "
                f"{net.duplicate:.1%}, requests time out after {self.request_timeout_ms:g} ms"
            )
            lines.append(
                f"broker: initial delay {self.initial_delay_ms:g} ms, append {self.append_ms:g} ms, "
                f"dies on append {self.crash_on_append:.1%}, refuses {self.refuses:.1%}; "
                f"topics are looked at every {self.metadata_ms:g} ms"
            )
        if self.notes_bytes != NOTES_BYTES:
            lines.append(f"notes: {self.notes_bytes} bytes for all members")
        if self.short_notes:
            lines.append(f"notes are short ones, as in a large group; a plan takes {self.plan_ms:g} ms")
        lines += [f"  {_member_line(member)}" for member in self.members]
        if any(member.batch_ms >= self.duration_ms for member in self.members):
            lines.append("The scene ends before the first batch does: play longer, with --duration.")
        lines += [f"  {happening}" for happening in sorted(self.happenings, key=lambda h: (h.at_ms, str(h)))]
        return lines


def _member_line(member: MemberPlan) -> str:
    words = [
        member.name,
        "+".join(member.assignors) + (f" or {'+'.join(member.eager_assignors)}" if member.eager_assignors else ""),
        f"session {member.session_timeout_ms} ms",
        f"heartbeat {member.heartbeat_interval_ms} ms",
        f"max.poll {member.max_poll_interval_ms} ms",
    ]
    words += [f"static {member.instance_id}"] if member.instance_id else []
    words += ["topics " + ",".join(member.topics)] if member.topics != ("orders",) else []
    words += [name for name in ("foreign", "pokes", "watchdog", "listener_raises") if getattr(member, name)]
    words += ["no commit on revoke"] if not member.commits_what_it_gives_up else []
    words += ["commits in its listener"] if member.commits_in_listener else []
    words += [f"syncs after {member.sync_ms:.0f} ms"] if member.sync_ms else []
    spread = f" ± {member.batch_spread:.0%}" if member.batch_spread else ""
    words += [f"batch {member.batch_ms:g} ms{spread}"] if member.slow else []
    words += [f"restores a partition in {member.restore_ms:g} ms"] if member.restore_ms else []
    words += [f"listener {member.listener_ms:g} ms"] if member.listener_ms != 1.0 else []
    words += [f"from {member.start_ms / 1000:g} s"] if member.start_ms else []
    return " · ".join(words)
