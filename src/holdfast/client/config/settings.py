"""A consumer's configuration: Kafka's dotted keys verbatim, checked at start.

Keys that concern the group are read here; all others go to librdkafka unchanged. A secret never appears in an error, a
warning or a repr. `keys` has normalised the names before.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.assign import by_name
from holdfast.assign.filled import filled, is_assignor
from holdfast.client.config.errors import ConfigError, ConfigValueError, bad
from holdfast.client.config.keys import boolean, named, normalized, number, text, unknown
from holdfast.client.config.pitfalls import check_static
from holdfast.client.config.rack import resolve
from holdfast.client.config.warning import warn
from holdfast.client.watchdog.tokens import Tokens, tokens_of
from holdfast.group.member import select_protocol
from holdfast.group.verdicts import Ask
from holdfast.model import Assignor, HoldfastError, RebalanceProtocol
from holdfast.net.config import MAX_BATCH_KEY, NO_SERVERS, client_config, unpack_limits
from holdfast.net.security import LOGIN_KEY, Login

DEFAULT_STRATEGY = "cooperative-sticky"
"""Kafka's Java client lists range first, for old groups; a new consumer should get the one that does not stop."""

FITTING_IN = "range,roundrobin,cooperative-sticky"
"""What a consumer without a configured strategy lists in a group that is not cooperative. First librdkafka's default,
so that a process in which only the import was changed can join members that still run librdkafka. Then ours, for when
those are gone."""

COOPERATIVE_AFTER_MS = 600_000
"""How long an eager group stays eager after its last member with librdkafka's default has left. Until then such members
may come back, for instance by rolling a deployment back."""

JAVA_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventions:
    """The features that make handovers quick. Each can be switched off."""

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
    """Empty for a consumer with manual assignments only, which needs a group only to commit."""
    bootstrap: str
    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    eager_assignors: tuple[Assignor, ...] = ()
    """What to list in a group that is not cooperative; empty if the user configured a strategy."""
    cooperative_after_ms: float | None = COOPERATIVE_AFTER_MS
    client_id: str = "holdfast"
    instance_id: str | None = None
    rack: str | None = None
    """Already resolved, if it was given as `auto` or by `rack_cb`."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    auto_commit: bool = True
    auto_commit_interval_ms: float = 5_000
    """Infinite for 0, which switches off periodic commits, but not those at a revoke and at close."""
    auto_offset_store: bool = True
    auto_offset_reset: str = "latest"
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    internal_topics: bool = True
    """Whether patterns match Kafka's internal topics, as librdkafka's do. Spark's don't."""
    inventions: Inventions = field(default_factory=Inventions)
    trace_file: str | None = None
    trace_topic: str | None = None
    metrics_port: int = 0
    """0: metrics are not served."""
    metrics_host: str = "127.0.0.1"
    on_commit: Callable[..., Any] | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False)
    login: Login | None = field(default=None, repr=False)
    """The user and password that both planes and the watchdog log in with; None if they don't log in that way."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The user's keys, normalised, for `net`'s security and for librdkafka."""

    @property
    def all_assignors(self) -> tuple[Assignor, ...]:
        """Every assignor that may plan a round of ours."""
        return (*self.assignors, *self.eager_assignors)

    @property
    def shown(self) -> str:
        """The consumer's name in the log."""
        return f"{self.client_id} of group {self.group}" if self.group else self.client_id

    def librdkafka(self) -> dict[str, Any]:
        """librdkafka's configuration: the user's keys without those that are ours, and without group behaviour."""
        kept = {key: value for key, value in self.raw.items() if key not in OURS and not key.startswith("holdfast.")}
        kept.update({"enable.auto.commit": False, "enable.auto.offset.store": False})
        kept["group.id"] = self.group or NO_GROUP
        kept.setdefault("client.id", self.client_id)  # one name, in librdkafka's statistics and log as in our metrics
        if "auto.offset.reset" in kept:
            kept["auto.offset.reset"] = self.auto_offset_reset  # by the name that librdkafka knows
        if not self.bootstrap:
            del kept["bootstrap.servers"]
        if self.tokens is not None and self.tokens.built_in:
            del kept["oauth_cb"]
        if self.rack:
            kept["client.rack"] = self.rack
        # A moved partition's first fetch waits for the one under way. librdkafka's 500 ms would be most of the gap.
        kept.setdefault("fetch.wait.max.ms", FETCH_WAIT_MS)
        # librdkafka refills a full queue only after a second. A small one, refilled at once, is faster and takes less.
        kept.setdefault("fetch.queue.backoff.ms", QUEUE_BACKOFF_MS)
        kept.setdefault("queued.min.messages", QUEUED_MESSAGES)
        if "max.partition.fetch.bytes" not in kept:  # the same setting by its other name
            kept.setdefault("fetch.message.max.bytes", FETCH_BYTES)
        return kept


NO_GROUP = "holdfast-no-group"
"""librdkafka aborts the whole process if its group.id is empty. Nothing is joined or committed under this name."""

FETCH_WAIT_MS = 50
QUEUE_BACKOFF_MS = 10
QUEUED_MESSAGES = 10_000
"""librdkafka's defaults are 1,000 ms and 100,000 records per partition. 10,000 records of 100 bytes are a megabyte: one
answer is being read while the next one waits."""

FETCH_BYTES = 768 * 1024
"""librdkafka's default is a megabyte. Fetched records are unpacked at once and take several times their size on the
wire. The smaller value makes up for the memory that we need ourselves, and reads as fast."""

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
METRICS_PORT, METRICS_HOST = "holdfast.metrics.port", "holdfast.metrics.host"
HOLDFAST_KEYS = frozenset(
    {
        *SWITCHES,
        "holdfast.trace.file",
        "holdfast.trace.topic",
        "holdfast.cooperative.after.ms",
        MAX_BATCH_KEY,
        METRICS_PORT,
        METRICS_HOST,
    }
)


HOUR_MS, DAY_MS = 3_600_000, 86_400_000
"""librdkafka's limits for sessions and heartbeats, and for intervals."""


def parse(config: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ConsumerConfig:
    """Check a user's configuration and read our part of it. Raises ConfigError."""
    try:
        return _parse(normalized(config), os.environ if environ is None else environ)
    except ConfigError:
        raise
    except HoldfastError as error:  # from modules that don't know confluent-kafka: assignors, logins, addresses
        raise ConfigError(error.code, error.what, error.do) from None


def _parse(raw: dict[str, Any], env: Mapping[str, str]) -> ConsumerConfig:
    group = _group(raw)
    unknown_keys = sorted(k for k in raw if k.startswith("holdfast.") and k not in HOLDFAST_KEYS)
    if unknown_keys:
        raise unknown(unknown_keys[0], HOLDFAST_KEYS)
    unpack_limits(raw)  # refused here, not with the first batch
    bootstrap = _bootstrap(raw, env)
    raw["bootstrap.servers"] = bootstrap or NO_SERVERS
    tokens, login = _logins(raw)
    instance = text(raw, "group.instance.id", "") or env.get("KAFKA_GROUP_INSTANCE_ID") or None
    told = raw.get("partition.assignment.strategy") or None
    assignors = _assignors(DEFAULT_STRATEGY if told is None else told)
    session, heartbeat, max_poll = _timeouts(raw)
    inventions = _inventions(raw, static=instance is not None)
    check_static(instance, session, watchdog=inventions.watchdog)
    if "max.poll.records" in raw:
        number(raw, "max.poll.records", 500, low=1, high=2**31 - 1)
        warn("max.poll.records does nothing here: consume(n) says call by call how many records it may return.")
    return ConsumerConfig(
        group=group,
        bootstrap=bootstrap,
        assignors=assignors,
        protocol=select_protocol(assignors),
        eager_assignors=_assignors(FITTING_IN) if told is None else (),
        cooperative_after_ms=_cooperative_after(raw),
        client_id=text(raw, "client.id", "holdfast"),
        instance_id=instance,
        rack=resolve(raw, env),
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        max_poll_interval_ms=max_poll,
        auto_commit=_auto_commit(raw),
        auto_commit_interval_ms=number(raw, "auto.commit.interval.ms", 5_000, low=0, high=DAY_MS) or math.inf,
        auto_offset_store=boolean(raw, "enable.auto.offset.store", default=True),
        auto_offset_reset=_reset(raw),
        retry_backoff_ms=number(raw, "retry.backoff.ms", 100, low=1, high=DAY_MS),
        metadata_max_age_ms=number(raw, "metadata.max.age.ms", 300_000, low=1, high=DAY_MS),
        inventions=inventions,
        trace_file=raw.get("holdfast.trace.file") or env.get("HOLDFAST_TRACE_FILE"),
        trace_topic=text(raw, "holdfast.trace.topic", "") or env.get("HOLDFAST_TRACE_TOPIC") or None,
        metrics_port=number(raw, METRICS_PORT, 0, low=0, high=65_535),
        metrics_host=_metrics_host(raw),
        on_commit=raw.get("on_commit"),
        tokens=tokens,
        login=login,
        raw=raw,
    )


def _metrics_host(raw: Mapping[str, Any]) -> str:
    """Refuse an empty text: it would listen on every address, perhaps only because a variable is unset."""
    host = text(raw, METRICS_HOST, "127.0.0.1").strip()
    if not host:
        raise bad(METRICS_HOST, "is empty", "Leave it out for 127.0.0.1, or write 0.0.0.0 for every address.")
    return host


def _logins(raw: dict[str, Any]) -> tuple[Tokens | None, Login | None]:
    """The token source and the login that all connections of this consumer share."""
    tokens = tokens_of(raw)
    if tokens is not None:
        raw["oauth_cb"] = tokens
    sasl = client_config(raw).security.sasl  # raises for bad settings now, instead of with the first poll
    if sasl is None or sasl.token is not None:
        return tokens, None
    raw[LOGIN_KEY] = sasl.login
    return tokens, sasl.login


def _group(raw: Mapping[str, Any]) -> str:
    """The group's name. The key is required, even if its value says that there is no group."""
    if "group.id" not in raw:
        raise bad(
            "group.id",
            "is missing: group.id must be set",
            "Name the group this consumer belongs to; None or '' for one that only reads what it assigns itself.",
            ConfigValueError,
        )
    protocol = named(raw, "group.protocol", "classic").lower()
    if protocol != "classic":
        raise bad(
            "group.protocol",
            f"is {protocol}, and holdfast speaks the classic protocol only",
            "Leave the key out, here and in the other members: one group speaks one protocol. Partitions that stay put "
            "don't stop under the classic one either.",
        )
    return text(raw, "group.id", "")


def _bootstrap(raw: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Empty if no brokers are configured: then none is ever reached, and the log says so, as with librdkafka."""
    given = raw.get("bootstrap.servers") or raw.get("metadata.broker.list") or env.get("KAFKA_BOOTSTRAP_SERVERS") or ""
    return ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)


def _auto_commit(raw: Mapping[str, Any]) -> bool:
    """`auto.commit.enable` is the old name. librdkafka applies it to its legacy consumer only, and goes on committing.
    Here it counts: a user who sets it to false wants no auto-commits."""
    key = "enable.auto.commit" if "enable.auto.commit" in raw else "auto.commit.enable"
    return boolean(raw, key, default=True)


def _timeouts(raw: Mapping[str, Any]) -> tuple[int, int, int]:
    """Session timeout, heartbeat and poll interval. Defaults are adjusted to fit the values that the user set."""
    session = number(raw, "session.timeout.ms", 45_000, low=1, high=HOUR_MS)
    heartbeat = number(raw, "heartbeat.interval.ms", 3_000, low=1, high=HOUR_MS)
    max_poll = number(raw, "max.poll.interval.ms", 300_000, low=1, high=DAY_MS)
    if max_poll < session and "session.timeout.ms" in raw:
        raise bad(
            "max.poll.interval.ms",
            f"({max_poll}) is below session.timeout.ms ({session})",
            "The application would be declared dead before its process could be. Raise it to "
            f"{session} or more, or lower session.timeout.ms to {max_poll} or less.",
        )
    session = min(session, max_poll)
    third = max(1, session // 3)
    if heartbeat > third and "heartbeat.interval.ms" not in raw:
        heartbeat = third
    elif heartbeat >= session:
        warn(
            f"heartbeat.interval.ms ({heartbeat}) is not below session.timeout.ms ({session}): every heartbeat would "
            f"come too late. {third} is used, a third of the session, which is the rule."
        )
        heartbeat = third
    elif heartbeat > third:
        warn(
            f"heartbeat.interval.ms ({heartbeat}) is more than a third of session.timeout.ms ({session}): two lost "
            "heartbeats in a row cost the membership. Lower the one or raise the other."
        )
    return session, heartbeat, max_poll


def session_refused(config: ConsumerConfig, error: HoldfastError) -> HoldfastError:
    """The coordinator only refuses the session timeout. Add its value, and which setting it came from."""
    session = config.session_timeout_ms
    begins = f"{Ask.JOIN.value}: session.timeout.ms is {session}"
    kafkas = "outside the range the broker allows (Kafka's own is 6000 to 1800000)"
    if "session.timeout.ms" in config.raw or session != config.max_poll_interval_ms:
        return HoldfastError(error.code, f"{begins}, {kafkas}.", error.do)
    what = f"{begins}, taken from max.poll.interval.ms, {kafkas}."
    return HoldfastError(error.code, what, "Raise max.poll.interval.ms: a session that is not set is never longer.")


def _cooperative_after(raw: Mapping[str, Any]) -> float | None:
    """-1 is never, 0 at once."""
    after = number(raw, "holdfast.cooperative.after.ms", COOPERATIVE_AFTER_MS, low=-1, high=DAY_MS)
    return None if after < 0 else float(after)


def _assignors(value: object) -> tuple[Assignor, ...]:
    """Names (ours, or Java's class names) separated by commas, or assignor objects, or a list of either."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    found: list[Assignor] = []
    for part in parts:
        if isinstance(part, str):
            name = part.strip()
            if name:
                found.append(by_name(JAVA_NAMES.get(name, name)))
        elif is_assignor(part):
            found.append(filled(part))
        else:
            raise bad(
                "partition.assignment.strategy",
                f"holds {type(part).__name__}, which is not an assignor",
                "Give names, or objects that have at least name and assign, as docs/assignors.md shows.",
            )
    if not found:
        raise bad("partition.assignment.strategy", "is empty", f"The default is {DEFAULT_STRATEGY}.")
    return tuple({assignor.name: assignor for assignor in reversed(found)}.values())[::-1]  # first of each name wins


def _inventions(raw: Mapping[str, Any], *, static: bool) -> Inventions:
    values = {field_name: boolean(raw, key, default=True) for key, field_name in SWITCHES.items()}
    # A static member that dies is expected back. Leaving for it at once would defeat static membership.
    if static and "holdfast.watchdog" not in raw:
        values["watchdog"] = False
    return Inventions(**values)


def _reset(raw: Mapping[str, Any]) -> str:
    value = named(raw, "auto.offset.reset", "latest").lower()
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
        raise bad("auto.offset.reset", f"is {value!r}", "Choose earliest, latest or error.")
    return meaning
