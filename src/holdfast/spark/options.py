"""The source's options, the same as those of Spark's own Kafka source, read and checked once.

Names are case-insensitive, as in Spark. Options with the prefix `kafka.` go to the member and to the readers under
Kafka's own key. Nothing here opens a connection or imports pyspark: a wrong option is refused before anything starts.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.client.config.known import JAVAS, LIBRDKAFKAS, did_you_mean
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.kafka_keys import PREFIX, check_kafka_keys
from holdfast.spark.places import COMMITTED, EARLIEST, LATEST, Place, Places
from holdfast.spark.sharing import Claim, Sharing, take_sharing

DEFAULT_TRIGGER_DELAY_S = 900.0
"""Spark's own default of maxTriggerDelay: 15 minutes."""

SPELLED = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
)
"""The options as people write them. Spark hands them to a data source in lower case."""
KNOWN = frozenset(name.lower() for name in SPELLED)
STARTINGS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

SPARKS_OWN = frozenset(
    {
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "path",
    }
)
"""Options of Spark's Kafka source without a meaning here. They are accepted, so that a job changes only the format."""

LARGEST = 2**63 - 1
"""Of an offset, a time, a number of records."""
MOST_BYTES = 2**31 - 1

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What one query asks for."""

    kafka: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.` options without their prefix: the member's and the readers' configuration."""
    topics: tuple[str, ...] = ()
    """Names, or one pattern that starts with ^."""
    assigned: tuple[TopicPartition, ...] = ()
    """Partitions named by the user (`assign`): then the query is no member and shares with nobody."""
    starting: Places = LATEST
    ending: Places = LATEST
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = DEFAULT_TRIGGER_DELAY_S
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    sharing: Sharing = field(default_factory=Sharing)
    """How the query shares its group with others."""

    @property
    def group(self) -> str:
        return self.kafka.get("group.id", "")

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics, for messages."""
        return self.topics or tuple(sorted({partition.topic for partition in self.assigned}))

    @property
    def claim(self) -> Claim:
        """What the query reads, and in which group."""
        servers, shares = self.kafka.get("bootstrap.servers", ""), self.sharing.shares
        return Claim(servers=servers, group=self.group, topics=self.topics, assigned=self.assigned, shares=shares)

    @property
    def read_committed(self) -> bool:
        return self.kafka.get("isolation.level", "read_uncommitted") == "read_committed"


def wants_headers(options: Mapping[str, str]) -> bool:
    """Read only the option that the schema depends on, because Spark asks for the schema first."""
    found = {key.lower(): value for key, value in options.items()}
    return _boolean(found, "includeHeaders", default=False)


def parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check. A stream must name its group; a batch needs one only for `startingOffsets=committed`."""
    found = {key.lower(): str(value) for key, value in options.items()}
    kafka = {key.removeprefix("kafka."): value for key, value in found.items() if key.startswith("kafka.")}
    kafka, sharing = take_sharing(kafka)
    unknown = sorted(k for k in found if not k.startswith("kafka.") and k not in KNOWN and k not in SPARKS_OWN)
    if unknown:
        raise _bad(unknown[0], "is not an option of this source", _near(unknown[0]))
    if not kafka.get("bootstrap.servers"):
        raise _bad("kafka.bootstrap.servers", "is missing", "It says where the brokers are.")
    if streaming and not kafka.get("group.id"):
        raise _bad("kafka.group.id", "is missing", "It says which group the query is a member of.")
    topics, assigned = _topics_or_partitions(found)
    if assigned and sharing.standby:
        raise _bad("kafka.holdfast.standby", "is given with assign", "Followers need a group: use subscribe.")
    if streaming and (given := [name for name in ENDINGS if name.lower() in found]):
        raise _bad(given[0], "is for batches", "A stream has no end: leave it out, or use spark.read.")
    starting = _places(found, "starting", LATEST if streaming else EARLIEST)
    ending = LATEST if streaming else _places(found, "ending", LATEST)
    _check_places(starting, ending, kafka, streaming=streaming)
    _check_named("starting", starting, topics, assigned)
    _check_named("ending", ending, topics, assigned)
    read = SourceOptions(
        kafka=kafka,
        topics=topics,
        assigned=assigned,
        starting=starting,
        ending=ending,
        max_offsets=_number(found, "maxOffsetsPerTrigger"),
        min_offsets=_number(found, "minOffsetsPerTrigger"),
        max_delay_s=_duration_s(found, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY_S),
        min_partitions=_number(found, "minPartitions"),
        max_records_per_partition=_number(found, "maxRecordsPerPartition"),
        include_headers=_boolean(found, "includeHeaders", default=False),
        fail_on_data_loss=_boolean(found, "failOnDataLoss", default=True),
        sharing=sharing,
    )
    if read.min_offsets and read.max_offsets and read.min_offsets > read.max_offsets:
        raise _bad(
            "minOffsetsPerTrigger",
            f"({read.min_offsets}) is above maxOffsetsPerTrigger ({read.max_offsets})",
            "No batch could satisfy both.",
        )
    isolation = kafka.get("isolation.level", "read_uncommitted")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise _bad("kafka.isolation.level", f"is {isolation!r}", "Choose read_committed or read_uncommitted.")
    size = kafka.get("max.partition.fetch.bytes", "1").strip()
    if not size.isdecimal() or not 1 <= int(size) <= MOST_BYTES:
        raise _bad("kafka.max.partition.fetch.bytes", f"is {size!r}", f"Give a number of bytes, 1 to {MOST_BYTES}.")
    check_kafka_keys(read.kafka)
    if "auto.offset.reset" in kafka and not any(name.lower() in found for name in STARTINGS):
        says = (
            f"is given, and no startingOffsets: it would begin at {'latest' if streaming else 'earliest'} all the same"
        )
        do = "Say startingOffsets instead. With startingOffsets=committed it says where to begin without an offset."
        raise _bad("kafka.auto.offset.reset", says, do)
    return read


def _near(name: str) -> str:
    """What was probably meant. Often it is one of Kafka's own keys without its prefix."""
    if name in JAVAS or name in LIBRDKAFKAS:
        return f"Did you mean {PREFIX}{name}?"
    return did_you_mean(name, SPELLED) or f"The options are {', '.join(SPELLED)}, and {PREFIX}* for Kafka's own."


def _topics_or_partitions(found: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[TopicPartition, ...]]:
    """What to read, from exactly one of subscribe, subscribePattern and assign."""
    given = [name for name in ("subscribe", "subscribePattern", "assign") if found.get(name.lower())]
    if len(given) != 1:
        what = "are given together" if given else "is missing"
        raise _bad(" and ".join(given) or "subscribe", what, "Give one of subscribe, subscribePattern and assign.")
    value = found[given[0].lower()]
    if given[0] == "assign":
        return (), _assigned(value)
    if given[0] == "subscribe":
        names = tuple(sorted({name.strip() for name in value.split(",") if name.strip()}))
        odd = [name for name in names if name.startswith("^")]
        if odd or not names:
            raise _bad(
                "subscribe", f"is {value!r}", "Name topics, separated by commas; for a pattern, subscribePattern."
            )
        return names, ()
    flags = re.match(r"\(\?([aimsux]+)\)", value)  # Python allows global flags only at the very start
    pattern = f"^.*(?:{value})" if flags is None else f"^.*(?{flags[1]}:{value[flags.end() :]})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # Java's [a-z&&[^b]] is something else in Python
            re.compile(pattern)
    except (re.error, FutureWarning) as error:
        raise _bad("subscribePattern", f"is not a regular expression ({error})", "Correct the pattern.") from None
    return (pattern,), ()  # matches anywhere in a name, as in Spark's own source


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    try:
        read = json.loads(value)
        if not all(isinstance(numbers, list) for numbers in read.values()):
            raise ValueError(value)
        listed = {str(topic): list(map(_whole, numbers)) for topic, numbers in read.items()}
    except (ValueError, AttributeError, TypeError):
        raise _bad("assign", f"is {value!r}", 'Write for instance {"orders": [0, 1]}.') from None
    found = sorted(TopicPartition(topic, n) for topic, numbers in listed.items() for n in numbers)
    if not found or any(p.partition < 0 for p in found) or len(set(found)) != len(found):
        raise _bad("assign", f"is {value!r}", "Name at least one partition, each once, from 0 on.")
    return tuple(found)


def _places(found: Mapping[str, str], end: str, default: Places) -> Places:
    """`startingOffsets` and its variants; a timestamp takes precedence over an offset, as in Spark's source."""
    strategy = found.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise _bad("startingOffsetsByTimestampStrategy", f"is {strategy!r}", "Choose error or latest.")
    late_is_latest = end == "ending" or strategy == "latest"
    if f"{end}timestamp" in found:
        time_ms = _number(found, f"{end}Timestamp", low=0)
        return Places(default=Place.at_time(time_ms or 0, late_is_latest=late_is_latest))
    if f"{end}offsetsbytimestamp" in found:
        times = _per_partition(found[f"{end}offsetsbytimestamp"], f"{end}OffsetsByTimestamp", low=0)
        named = {p: Place.at_time(time_ms, late_is_latest=late_is_latest) for p, time_ms in times.items()}
        return Places(named=named)
    name = f"{end}Offsets"
    value = found.get(name.lower())
    if value is None:
        return default
    words = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}
    if value.strip().lower() in words:
        return words[value.strip().lower()]
    offsets = _per_partition(value, name, low=-2)
    return Places(named={p: Place.from_offset(offset) for p, offset in offsets.items()})


def _check_places(starting: Places, ending: Places, kafka: Mapping[str, str], *, streaming: bool) -> None:
    if streaming:
        return
    if LATEST.default in (starting.default, *starting.named.values()):
        raise _bad("startingOffsets", "says latest", "A batch would be empty: choose earliest, offsets or a time.")
    if EARLIEST.default in (ending.default, *ending.named.values()):
        raise _bad("endingOffsets", "says earliest", "A batch would be empty: choose latest, offsets or a time.")
    if COMMITTED.default in (starting.default, ending.default) and not kafka.get("group.id"):
        raise _bad("kafka.group.id", "is missing", "Committed offsets belong to a group: name it.")


def _whole(number: object) -> int:
    """A whole number in JSON. Python would cut 23.9 to 23 and take true for 1."""
    if isinstance(number, float | bool) or not -LARGEST <= int(str(number)) <= LARGEST:
        raise ValueError(number)
    return int(str(number))


def _check_named(end: str, places: Places, topics: tuple[str, ...], assigned: tuple[TopicPartition, ...]) -> None:
    """Refuse a place in a topic that is not read: the name is mistyped, and its partition would begin elsewhere."""
    for partition in places.named:
        by_name = any(re.search(t, partition.topic) if t.startswith("^") else t == partition.topic for t in topics)
        if not by_name and partition not in assigned:
            do = "Correct the name, or leave it out."
            raise _bad(f"{end}Offsets", f"names {partition}, which is not read", do)


def _per_partition(value: str, name: str, *, low: int) -> dict[TopicPartition, int]:
    try:
        read = {
            TopicPartition(str(topic), _whole(partition)): _whole(number)
            for topic, partitions in json.loads(value).items()
            for partition, number in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise _bad(name, f"is {value!r}", 'Write earliest, latest, or for instance {"orders": {"0": 23}}.') from None
    if not read or any(number < low for number in read.values()):
        raise _bad(name, f"is {value!r}", f"Name at least one partition; numbers from {low} on.")
    return dict(sorted(read.items()))


def _number(found: Mapping[str, str], name: str, *, low: int = 1) -> int | None:
    value = found.get(name.lower())
    if value is None:
        return None
    if not value.strip().isdecimal() or not low <= int(value) <= LARGEST:
        raise _bad(name, f"is {value!r}", f"Give a whole number, at least {low}, that fits into 64 bits.")
    return int(value)


def _boolean(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = found.get(name.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise _bad(name, f"is {value!r}", "Choose true or false.")
    return value == "true"


def _duration_s(found: Mapping[str, str], name: str, default: float) -> float:
    value = found.get(name.lower())
    if value is None:
        return default
    matched = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if matched is None or (matched[2] or "ms") not in _UNITS_S:
        raise _bad(name, f"is {value!r}", "Write for instance 500ms, 30s or 15m.")
    return int(matched[1]) * _UNITS_S[matched[2] or "ms"]


def _bad(name: str, what: str, do: str) -> HoldfastError:
    return HoldfastError("INVALID_OPTION", f"option {name} {what}.", do)
