"""The options of the source, as Spark's own Kafka source takes them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What one query asks for."""

    kafka: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.` options without their prefix: the member's and the reader's configuration."""
    topics: tuple[str, ...] = ()
    """Names, or one pattern that starts with ^."""
    starting: str = "committed"
    max_offsets: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    read_committed: bool = False

    @property
    def group(self) -> str:
        return self.kafka["group.id"]


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Read the options; names are case-insensitive, as Spark's are."""
    found = {key.lower(): value for key, value in options.items()}
    kafka = {key[len("kafka.") :]: value for key, value in found.items() if key.startswith("kafka.")}
    for key, why in (
        ("bootstrap.servers", "where the brokers are"),
        ("group.id", "which group the query is a member of"),
    ):
        if not kafka.get(key):
            raise _bad(f"kafka.{key}", "is missing", f"It says {why}.")
    if "subscribe" in found:
        topics = tuple(name.strip() for name in found["subscribe"].split(",") if name.strip())
    elif "subscribepattern" in found:
        topics = ("^(?:" + found["subscribepattern"] + ")$",)
    else:
        raise _bad("subscribe", "is missing", "Give subscribe or subscribePattern.")
    starting = found.get("startingoffsets", "latest").lower()
    if starting not in ("earliest", "latest", "committed"):
        raise _bad("startingOffsets", f"is {starting!r}", "Choose earliest, latest or committed.")
    limit = found.get("maxoffsetspertrigger")
    if limit is not None and (not limit.isdigit() or int(limit) < 1):
        raise _bad("maxOffsetsPerTrigger", f"is {limit!r}", "Give a whole number of records, at least 1.")
    return SourceOptions(
        kafka=kafka,
        topics=topics,
        starting=starting,
        max_offsets=None if limit is None else int(limit),
        include_headers=found.get("includeheaders", "false").lower() == "true",
        fail_on_data_loss=found.get("failondataloss", "true").lower() == "true",
        read_committed=kafka.get("isolation.level", "read_uncommitted") == "read_committed",
    )


def _bad(name: str, what: str, do: str) -> HoldfastError:
    return HoldfastError("INVALID_OPTION", f"option {name} {what}.", do)
