"""Worlds written by hand: the scene of the command line, and the histories whose figures the tests assert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.model import HoldfastError
from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings, parse_time

MIN_SESSION_MS = 6_000.0
"""The coordinator's group.min.session.timeout.ms."""

SESSION_MS, HEARTBEAT_MS, COMMIT_INTERVAL_MS = 45_000.0, 3_000.0, 5_000.0
"""The consumer's defaults. As with the consumer, a session that is not set is at most as long as max.poll.interval.ms,
and a heartbeat that is not set a third of the session."""

SWITCHES: Mapping[str, str] = {
    "watchdog": "watchdog",
    "poke": "pokes",
    "instant-rejoin": "instant_rejoin",
    "offset-handover": "hand_over_offsets",
    "hot-heartbeats": "hot_heartbeats",
}
"""What a scene can do without, by the consumer's names (`holdfast.watchdog` and so on), and the member's field."""

MAX_TIMEOUT_MS = 24 * 86_400_000.0
"""Timeouts are 32 bits of milliseconds on the wire: 24.8 days."""

MAX_DURATION_MS = 3_600_000.0
"""An hour with 50 members is a million steps: about a minute of work, and as much as anybody can look at."""


def scene_config(
    *,
    members: int = 4,
    partitions: int = 6,
    assignor: str = "cooperative-sticky",
    seed: int = 7,
    events: str = "",
    duration: str = "60s",
    static: bool = False,
    heartbeat: str | None = None,
    session: str | None = None,
    max_poll: str = "5m",
    batch: str = "200ms",
    spread: float = 0.0,
    listener: str = "100ms",
    restore: str = "0ms",
    without: Iterable[str] = (),
    foreign: bool = False,
) -> WorldConfig:
    """A world with `members` alike on one topic. Times are texts such as "20s", by default the consumer's defaults.

    `without` switches off what makes our consumers quick: words of `SWITCHES`, or "all" of them. `foreign` members
    behave like other clients, which have none of it.
    """
    if not 0 <= spread < 1:
        raise HoldfastError("BAD_SPREAD", f"{spread:g} is not a share.", "Use 0 or more and less than 1, say 0.5.")
    duration_ms = parse_time(duration)
    if not 0 < duration_ms <= MAX_DURATION_MS:
        raise HoldfastError("BAD_DURATION", f"{duration} is not a length to play.", "Use more than 0 and up to 60m.")
    common = MemberPlan(
        name="",
        assignors=(assignor,),
        commit_interval_ms=COMMIT_INTERVAL_MS,
        batch_ms=parse_time(batch),
        batch_spread=spread,
        listener_ms=parse_time(listener),
        restore_ms=parse_time(restore),
        **_timeouts(max_poll, session, heartbeat),
        **_switches(without, static=static, foreign=foreign),
    )
    names = [f"c{number}" for number in range(members)]
    plans = tuple(replace(common, name=name, instance_id=f"i-{name}" if static else None) for name in names)
    return WorldConfig(
        seed=seed,
        members=plans,
        topics=(("orders", partitions),),
        happenings=parse_happenings(events),
        duration_ms=duration_ms,
    )


def _timeouts(max_poll: str, session: str | None, heartbeat: str | None) -> dict[str, Any]:
    """A member's three timeouts; what is not set follows from the others, as with the consumer."""
    max_poll_ms = _timeout("max-poll", max_poll)
    session_ms = min(SESSION_MS, max_poll_ms) if session is None else _timeout("session", session)
    session_ms = max(MIN_SESSION_MS, session_ms)
    heartbeat_ms = min(HEARTBEAT_MS, session_ms / 3) if heartbeat is None else _timeout("heartbeat", heartbeat)
    return {
        "max_poll_interval_ms": int(max_poll_ms),
        "session_timeout_ms": int(session_ms),
        "heartbeat_interval_ms": int(heartbeat_ms),
    }


def _switches(without: Iterable[str], *, static: bool, foreign: bool) -> dict[str, Any]:
    off = _switched_off(without)
    if foreign:
        return {**dict.fromkeys(SWITCHES.values(), False), "foreign": True}
    if static:  # a static member is expected back, so no watchdog leaves for it
        off["watchdog"] = False
    return {**dict.fromkeys(SWITCHES.values(), True), **off}


def _timeout(name: str, text: str) -> float:
    """At least 1 ms: members count in whole milliseconds, and divide by them."""
    ms = parse_time(text)
    if not 1 <= ms <= MAX_TIMEOUT_MS:
        raise HoldfastError("BAD_TIMEOUT", f"{text} is not a time for {name}.", "Use 1ms to 24 days (34560m).")
    return ms


def _switched_off(without: Iterable[str]) -> dict[str, bool]:
    words = [word.strip() for word in without if word.strip()]
    for word in words:
        if word not in (*SWITCHES, "all"):
            raise HoldfastError(
                "UNKNOWN_SWITCH",
                f"{word!r} is nothing that can be switched off.",
                f"Use {', '.join(SWITCHES)}, or all of them.",
            )
    return dict.fromkeys((SWITCHES[word] for word in (SWITCHES if "all" in words else words)), False)


def hung_consumer(*, assignor: str = "cooperative-sticky", pokes: bool = True) -> WorldConfig:
    """Three consumers, six partitions; C1 hangs for 35 s, longer than its max.poll.interval.ms of 30 s."""
    plans = tuple(
        MemberPlan(
            name=f"c{number}",
            assignors=(assignor,),
            session_timeout_ms=10_000,
            heartbeat_interval_ms=3_000,
            max_poll_interval_ms=30_000,
            pokes=pokes,
        )
        for number in range(3)
    )
    return WorldConfig(members=plans, happenings=parse_happenings("hang:c1@11s+35s"), duration_ms=60_000)


def rolling_deploy(*, static: bool, assignor: str = "cooperative-sticky") -> WorldConfig:
    """Three pods with four partitions each are restarted one after the other, each away for 35 s."""
    plans = tuple(
        MemberPlan(
            name=f"pod-{number}",
            assignors=(assignor,),
            instance_id=f"order-processor-{number}" if static else None,
            session_timeout_ms=60_000,
            heartbeat_interval_ms=5_000,
            max_poll_interval_ms=300_000,
        )
        for number in range(3)
    )
    return WorldConfig(
        members=plans,
        topics=(("orders", 12),),
        happenings=parse_happenings("restart:pod-0@10s+35s,restart:pod-1@60s+35s,restart:pod-2@110s+35s"),
        duration_ms=160_000,
    )


def one_change(event: str, **options: bool | float | tuple[str, ...] | None) -> WorldConfig:
    """Three members with Kafka's default heartbeat on twelve partitions; one thing happens, 1 s after a tick."""
    common = MemberPlan(name="", session_timeout_ms=45_000, max_poll_interval_ms=300_000)
    plans = tuple(replace(common, name=f"c{number}", **options) for number in range(3))  # type: ignore[arg-type]  # options of a MemberPlan
    return WorldConfig(
        members=plans,
        topics=(("orders", 12),),
        happenings=parse_happenings(f"{event}@11s"),
        duration_ms=25_000,
    )


def half_migrated() -> WorldConfig:
    """From range to cooperative-sticky in two rolling bounces (KIP-429), seen in the middle of each of them."""
    old, both, new = ("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)
    plans = (
        MemberPlan(name="old-0", assignors=old),
        MemberPlan(name="old-1", assignors=old),
        MemberPlan(name="both-0", assignors=both, start_ms=8_000),
        MemberPlan(name="both-1", assignors=both, start_ms=16_000),
        MemberPlan(name="new-0", assignors=new, start_ms=30_000),
        MemberPlan(name="new-1", assignors=new, start_ms=38_000),
    )
    return WorldConfig(
        members=plans,
        happenings=parse_happenings("leave:old-0@12s,leave:old-1@20s,leave:both-0@34s,leave:both-1@42s,join:new-2@48s"),
        duration_ms=55_000,
        heals=True,
    )
