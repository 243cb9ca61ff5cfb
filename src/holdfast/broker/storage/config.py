"""The settings a topic has, with Kafka's names: parsed, bounded, and listed for DescribeConfigs.

A setting that is not here is refused rather than ignored: a topic that is not compacted must not claim to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode

UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's settings as the log uses them. The constructor takes any numbers; `parse` checks what users set."""

    segment_bytes: int = 64 * 1024 * 1024
    """Kafka's default is 1 GiB. Smaller here, because after a crash the last segment is scanned, and retention works by
    whole segments."""
    segment_ms: int = 7 * 86_400_000
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    """Kafka's default: 1 MiB and the 12 bytes in front of a batch's length."""
    append_time: bool = False
    """True for message.timestamp.type=LogAppendTime."""
    timestamp_after_max_ms: int = 3_600_000
    """A batch from further in the future is refused: it would hold up retention until then."""

    def is_old(self, newest: int, now: int, untouched_ms: float) -> bool:
        """Whether a segment has outlived the retention time. `newest` is the greatest timestamp in it, -1 if there is
        none: then it has no age, and only its size can make it go.

        Timestamps in the future, later than any producer may send, come from before the clock was set back. They would
        keep the segment for as long as the clock was set back. So its age is then the time since its last write.
        """
        if self.retention_ms == UNLIMITED:
            return False
        if newest > now + self.timestamp_after_max_ms:
            return untouched_ms > self.retention_ms
        return 0 <= newest < now - self.retention_ms

    def surplus(self, size: int) -> int:
        """How many of these bytes of a log are beyond what retention keeps; -1 where it keeps everything."""
        return size - self.retention_bytes if self.retention_bytes != UNLIMITED else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One topic setting as DescribeConfigs shows it."""

    name: str
    default: str
    kind: str
    """Kafka's config types: "int", "long", "string", "list"."""
    doc: str
    lowest: int = 0
    highest: int = 2**63 - 1
    choices: tuple[str, ...] = ()


TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="cleanup.policy",
        default="delete",
        kind="list",
        doc="Old segments are deleted. Compaction is not offered by this broker.",
        choices=("delete",),
    ),
    Setting(
        name="compression.type",
        default="producer",
        kind="string",
        doc="Batches are stored as the producer compressed them.",
        choices=("producer",),
    ),
    Setting(
        name="max.message.bytes",
        default="1048588",
        kind="int",
        doc="Largest record batch accepted, in bytes. At most 16 MiB, as one request.",
        highest=16 * 1024 * 1024,
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        default="3600000",
        kind="long",
        doc="How far in the future a batch's timestamp may lie.",
    ),
    Setting(
        name="message.timestamp.type",
        default="CreateTime",
        kind="string",
        doc="Whether the producer's time or the time of the append is kept.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        name="min.insync.replicas",
        default="1",
        kind="int",
        doc="There is one replica; other values are refused.",
        lowest=1,
        highest=1,
    ),
    Setting(
        name="retention.bytes",
        default="-1",
        kind="long",
        doc="Largest size of a partition before its oldest segments are deleted; -1 for no limit.",
        lowest=UNLIMITED,
    ),
    Setting(
        name="retention.ms",
        default="604800000",
        kind="long",
        doc="Age at which a segment is deleted; -1 for never.",
        lowest=UNLIMITED,
    ),
    Setting(
        name="segment.bytes",
        default="67108864",
        kind="int",
        doc="Size of a segment file.",
        lowest=4096,
        highest=2**31 - 1,
    ),
    Setting(
        name="segment.ms",
        default="604800000",
        kind="long",
        doc="Age at which a segment is closed and a new one begun, so that retention can delete it.",
        lowest=1,
    ),
)
_BY_NAME = {setting.name: setting for setting in TOPIC_SETTINGS}

_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max.message.bytes": ("max_message_bytes", int),
    "message.timestamp.after.max.ms": ("timestamp_after_max_ms", int),
    "message.timestamp.type": ("append_time", lambda text: text == "LogAppendTime"),
    "retention.bytes": ("retention_bytes", int),
    "retention.ms": ("retention_ms", int),
    "segment.bytes": ("segment_bytes", int),
    "segment.ms": ("segment_ms", int),
}


def parse(configs: Mapping[str, str]) -> LogConfig:
    """The log's settings from a topic's, or INVALID_CONFIG with the first thing that is wrong."""
    values: dict[str, Any] = {}
    for name, text in sorted(configs.items()):
        setting = _BY_NAME.get(name)
        if setting is None:
            raise _invalid(f"This broker has no topic setting {name!r}.", f"It has: {', '.join(sorted(_BY_NAME))}.")
        _check(setting, text)
        if name in _FIELDS:
            field, convert = _FIELDS[name]
            values[field] = convert(text)
    return LogConfig(**values)


def _check(setting: Setting, text: str) -> None:
    if setting.choices:
        if text not in setting.choices:
            raise _invalid(f"{setting.name}={text!r} is not possible.", f"Use {' or '.join(setting.choices)}.")
        return
    try:
        number = int(text)
    except ValueError:
        raise _invalid(f"{setting.name}={text!r} is not a number.", "Use a whole number.") from None
    if not setting.lowest <= number <= setting.highest:
        bounds = f"Use a number from {setting.lowest} to {setting.highest}."
        raise _invalid(f"{setting.name}={number} is out of bounds.", bounds)


def _invalid(what: str, do: str) -> StorageError:
    return StorageError(ErrorCode.INVALID_CONFIG, what, do)
