"""A consumer's configuration: Kafka's dotted keys verbatim, checked at start.

What concerns the group is ours and is read here; everything else goes to librdkafka untouched. A secret never appears
in an error, a warning or a repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.assign import by_name
from holdfast.client.pitfalls import check_static
from holdfast.client.rack import resolve
from holdfast.client.warned import warn
from holdfast.group.member import select_protocol
from holdfast.model import Assignor, HoldfastError, RebalanceProtocol

DEFAULT_STRATEGY = "cooperative-sticky"
"""Kafka's Java client lists range first for the sake of old groups; a new consumer wants the one that doesn't stop.
A group that still runs range says so: `holdfast preflight` tells how to migrate."""

JAVA_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

SECRET = re.compile(r"password|secret|oauthbearer|\.pem$|sasl\.username|jaas", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventions:
    """What makes handovers quick, each of which can be switched off."""

    instant_rejoin: bool = True
    drain: bool = True
    watchdog: bool = True
    poke: bool = True
    offset_handover: bool = True
    hot_heartbeats: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Everything the two planes need."""

    group: str
    bootstrap: str
    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    client_id: str = "holdfast"
    instance_id: str | None = None
    rack: str | None = None
    """Resolved: `auto` and `rack_cb` have been asked."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_store: bool = True
    auto_offset_reset: str = "latest"
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    inventions: Inventions = field(default_factory=Inventions)
    trace_file: str | None = None
    on_commit: Callable[..., Any] | None = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The user's keys as they came, for `net`'s security and for librdkafka."""

    def librdkafka(self) -> dict[str, Any]:
        """What the data plane gets: the user's keys less ours, and no group behaviour of its own."""
        kept = {key: value for key, value in self.raw.items() if key not in OURS and not key.startswith("holdfast.")}
        kept.update({"group.id": self.group, "enable.auto.commit": False, "enable.auto.offset.store": False})
        kept.pop("on_commit", None)
        if self.rack:
            kept["client.rack"] = self.rack
        # A moved partition's first fetch waits for the one under way; half a second of that would be most of the gap.
        kept.setdefault("fetch.wait.max.ms", FETCH_WAIT_MS)
        # librdkafka fills a full queue only after a second. A small one, filled at once, is faster and takes less.
        kept.setdefault("fetch.queue.backoff.ms", QUEUE_BACKOFF_MS)
        kept.setdefault("queued.min.messages", QUEUED_MESSAGES)
        if "max.partition.fetch.bytes" not in kept:  # the same setting by its other name
            kept.setdefault("fetch.message.max.bytes", FETCH_BYTES)
        return kept


FETCH_WAIT_MS = 50
QUEUE_BACKOFF_MS = 10
QUEUED_MESSAGES = 10_000
"""librdkafka's own are 1,000 ms and 100,000 of each partition. A megabyte of 100-byte records is 10,000: one answer is
being read and the next one waits."""

FETCH_BYTES = 768 * 1024
"""librdkafka's own is a megabyte. What a fetch brings is unpacked at once, and takes several times the memory it took
on the wire: so much less makes up for what we need ourselves, and reads as fast."""

OURS = frozenset(
    {
        "partition.assignment.strategy",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "enable.auto.commit",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "client.rack",
        "rack_cb",
        "on_commit",
        "default.api.timeout.ms",
    }
)

SWITCHES = {
    "holdfast.instant.rejoin": "instant_rejoin",
    "holdfast.drain": "drain",
    "holdfast.watchdog": "watchdog",
    "holdfast.poke": "poke",
    "holdfast.offset.handover": "offset_handover",
    "holdfast.hot.heartbeats": "hot_heartbeats",
}
OTHER_HOLDFAST_KEYS = frozenset({"holdfast.trace.file"})


def parse(raw: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ConsumerConfig:
    """Check a user's configuration and read our part of it."""
    env = os.environ if environ is None else environ
    group = raw.get("group.id")
    if not isinstance(group, str) or not group:
        raise _bad("group.id", "is missing or empty", "Name the group this consumer belongs to.")
    if str(raw.get("group.protocol", "classic")).lower() != "classic":
        raise _bad("group.protocol", "is not classic", "holdfast speaks the classic protocol; leave the key out.")
    unknown = sorted(k for k in raw if k.startswith("holdfast.") and k not in SWITCHES and k not in OTHER_HOLDFAST_KEYS)
    if unknown:
        known = ", ".join(sorted({*SWITCHES, *OTHER_HOLDFAST_KEYS}))
        raise _bad(unknown[0], "is not a key of holdfast", f"The keys are {known}.")
    bootstrap = raw.get("bootstrap.servers") or raw.get("metadata.broker.list") or env.get("KAFKA_BOOTSTRAP_SERVERS")
    if not isinstance(bootstrap, str) or not bootstrap:
        raise _bad("bootstrap.servers", "is missing", "Give host:port of at least one broker.")
    instance = raw.get("group.instance.id") or env.get("KAFKA_GROUP_INSTANCE_ID") or None
    assignors = _assignors(raw.get("partition.assignment.strategy", DEFAULT_STRATEGY))
    session, heartbeat, max_poll = _timeouts(raw)
    inventions = _inventions(raw, static=instance is not None)
    check_static(instance, session, watchdog=inventions.watchdog)
    return ConsumerConfig(
        group=group,
        bootstrap=bootstrap,
        assignors=assignors,
        protocol=select_protocol(assignors),
        client_id=str(raw.get("client.id", "holdfast")),
        instance_id=instance,
        rack=resolve(raw, env),
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        max_poll_interval_ms=max_poll,
        max_poll_records=_number(raw, "max.poll.records", 500, low=1),
        auto_commit=_boolean(raw, "enable.auto.commit", default=True),
        auto_commit_interval_ms=_number(raw, "auto.commit.interval.ms", 5_000, low=0),
        auto_offset_store=_boolean(raw, "enable.auto.offset.store", default=True),
        auto_offset_reset=_reset(raw),
        retry_backoff_ms=_number(raw, "retry.backoff.ms", 100, low=1),
        metadata_max_age_ms=_number(raw, "metadata.max.age.ms", 300_000, low=1),
        inventions=inventions,
        trace_file=raw.get("holdfast.trace.file") or env.get("HOLDFAST_TRACE_FILE"),
        on_commit=raw.get("on_commit"),
        raw=dict(raw) | {"bootstrap.servers": bootstrap},
    )


def _timeouts(raw: Mapping[str, Any]) -> tuple[int, int, int]:
    session = _number(raw, "session.timeout.ms", 45_000, low=1)
    heartbeat = _number(raw, "heartbeat.interval.ms", 3_000, low=1)
    max_poll = _number(raw, "max.poll.interval.ms", 300_000, low=1)
    if heartbeat >= session:
        raise _bad(
            "heartbeat.interval.ms",
            f"({heartbeat}) is not below session.timeout.ms ({session})",
            "Every heartbeat would come too late; a third of the session timeout is the rule.",
        )
    if heartbeat * 3 > session:
        warn(
            f"heartbeat.interval.ms ({heartbeat}) is more than a third of session.timeout.ms ({session}): two lost "
            "heartbeats in a row cost the membership. Lower the one or raise the other."
        )
    if max_poll < session:
        raise _bad(
            "max.poll.interval.ms",
            f"({max_poll}) is below session.timeout.ms ({session})",
            "The application would be taken for dead before its process could be; raise it.",
        )
    return session, heartbeat, max_poll


def _assignors(value: object) -> tuple[Assignor, ...]:
    """Names (ours, or Java's class names) separated by commas, or assignor objects, or a list of either."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    found: list[Assignor] = []
    for part in parts:
        if isinstance(part, str):
            name = part.strip()
            if name:
                found.append(by_name(JAVA_NAMES.get(name, name)))
        elif isinstance(part, Assignor):
            found.append(part)
        else:
            raise _bad(
                "partition.assignment.strategy",
                f"holds {type(part).__name__}, which is not an assignor",
                "Give names, or objects that follow holdfast.Assignor.",
            )
    if not found:
        raise _bad("partition.assignment.strategy", "is empty", f"The default is {DEFAULT_STRATEGY}.")
    names = [assignor.name for assignor in found]
    if len(set(names)) != len(names):
        raise _bad("partition.assignment.strategy", "names one assignor twice", "Name each once.")
    return tuple(found)


def _inventions(raw: Mapping[str, Any], *, static: bool) -> Inventions:
    values = {field_name: _boolean(raw, key, default=True) for key, field_name in SWITCHES.items()}
    # A static member that dies is expected back: telling the group at once would undo what static membership is for.
    if static and "holdfast.watchdog" not in raw:
        values["watchdog"] = False
    return Inventions(**values)


def _reset(raw: Mapping[str, Any]) -> str:
    value = str(raw.get("auto.offset.reset", "latest")).lower()
    meaning = {
        "smallest": "earliest",
        "earliest": "earliest",
        "beginning": "earliest",
        "largest": "latest",
        "latest": "latest",
        "end": "latest",
        "error": "error",
        "none": "error",
    }.get(value)
    if meaning is None:
        raise _bad("auto.offset.reset", f"is {value!r}", "Choose earliest, latest or error.")
    return meaning


def _number(raw: Mapping[str, Any], key: str, default: int, *, low: int) -> int:
    value = raw.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise _bad(key, f"is {value!r}, not a whole number", "Give milliseconds or a count.") from None
    if number < low:
        raise _bad(key, f"is {number}", f"It must be at least {low}.")
    return number


def _boolean(raw: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = raw.get(key, default)
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in ("true", "1", "t", "yes"):
        return True
    if text in ("false", "0", "f", "no"):
        return False
    raise _bad(key, f"is {value!r}", "Choose true or false.")


def _bad(key: str, what: str, do: str) -> HoldfastError:
    return HoldfastError("INVALID_CONFIG", f"{key} {what}.", do)


def without_secrets(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it may be shown."""
    return {key: "***" if SECRET.search(key) else value for key, value in sorted(raw.items())}
