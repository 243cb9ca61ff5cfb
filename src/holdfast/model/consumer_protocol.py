"""The consumer protocol's bytes: what a member joins with, and what the leader answers (KIP-429, KIP-792, KIP-881).

Both messages open with an int16 version and use Kafka's classic types: big-endian integers, int16-length strings,
int32-length byte strings (-1 is null) and int32-count arrays.

    subscription   topics [string] · user data bytes?
                   v1+ owned [{topic string, partitions [int32]}] · v2+ generation int32 · v3+ rack string?
    assignment     partitions [{topic string, partitions [int32]}] · user data bytes?

Rules. What we write is sorted, so equal values are equal bytes. What we read is not trusted: every length is checked
against the bytes left before anything is allocated, a version newer than 3 is read as 3 and its tail ignored, and
whatever can't be read raises `HoldfastError` and nothing else. A message that ends just before a field that its version
should have is read as if the field had its default: some clients raised the version without adding the field.

This module must not know kio (the tests check it against kio), or what a plan is.
"""

from __future__ import annotations

import struct

from holdfast.model.errors import HoldfastError
from holdfast.model.membership import NO_GENERATION
from holdfast.model.partition import TopicPartition, by_topic
from holdfast.model.subscription import Assignment, Subscription

SUBSCRIPTION_VERSION = 3
"""The newest subscription we write. Readers of older versions ignore what they don't know."""

ASSIGNMENT_VERSION = 0
"""All versions of the assignment (0–3) have the same fields; every client understands the lowest."""

MAX_STRING_BYTES = 32_767
"""The largest length that an int16 can hold."""

MAX_TOPICS = 2**31 - 1
"""The largest count that an int32 can hold."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MALFORMED = "MALFORMED_CONSUMER_PROTOCOL"


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """The bytes a member joins with. Fields that `version` does not have are left out."""
    if not 0 <= version <= SUBSCRIPTION_VERSION:
        raise HoldfastError(
            "UNSUPPORTED_CONSUMER_PROTOCOL",
            f"Subscription version {version} does not exist.",
            f"Use 0 to {SUBSCRIPTION_VERSION}.",
        )
    topics = sorted(set(subscription.topics))
    parts = [_INT16.pack(version), _INT32.pack(len(topics)), *map(_string, topics), _bytes(subscription.user_data)]
    if version >= 1:
        parts.append(_partitions(subscription.owned))
    if version >= 2:
        parts.append(_INT32.pack(subscription.generation))
    if version >= 3:
        parts.append(_INT16.pack(-1) if subscription.rack is None else _string(subscription.rack))
    return b"".join(parts)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """A member's subscription. The instance id travels beside these bytes, in the join itself."""
    reader = FieldReader(data, "subscription")
    version = reader.version()
    topics = reader.topics(MAX_TOPICS)
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 and reader.more() else frozenset()
    generation = reader.int32() if version >= 2 and reader.more() else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 and reader.more() else None
    return Subscription(
        topics=topics,
        owned=owned,
        generation=generation,
        user_data=user_data,
        rack=rack,
        instance_id=instance_id,
        version=min(version, SUBSCRIPTION_VERSION),
    )


def decode_head(data: bytes, most_topics: int = MAX_TOPICS) -> tuple[tuple[str, ...], bytes | None]:
    """Topics and user data of a subscription, without the partitions it owns: a megabyte can hold a quarter of a
    million of those, which take a second to read. More than `most_topics` topics are refused unread."""
    reader = FieldReader(data, "subscription")
    reader.version()
    return reader.topics(most_topics), reader.nullable_bytes()


def encode_assignment(assignment: Assignment) -> bytes:
    """The bytes the leader sends to one member in SyncGroup."""
    return _INT16.pack(ASSIGNMENT_VERSION) + _partitions(assignment.partitions) + _bytes(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """What a round gave us. A member that the leader left out gets 0 bytes: an empty assignment."""
    if not data:
        return Assignment()
    reader = FieldReader(data, "assignment")
    reader.version()
    return Assignment(partitions=reader.partitions(), user_data=reader.nullable_bytes() if reader.more() else None)


def _string(text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise HoldfastError(
            "UNENCODABLE_NAME", f"{text!r} can't be written as UTF-8.", "Use names without lone surrogates."
        ) from error
    if len(encoded) > MAX_STRING_BYTES:
        raise HoldfastError(
            "NAME_TOO_LONG",
            f"A name of {len(encoded)} bytes does not fit the consumer protocol.",
            f"Names have at most {MAX_STRING_BYTES} bytes.",
        )
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    grouped = by_topic(partitions)
    parts = [_INT32.pack(len(grouped))]
    for topic, numbers in grouped.items():
        parts.append(_string(topic))
        try:
            parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
        except struct.error as error:
            raise HoldfastError(
                "PARTITION_OUT_OF_RANGE",
                f"A partition of {topic} does not fit 32 bits.",
                "Partition numbers go from 0 to 2147483647.",
            ) from error
    return b"".join(parts)


class FieldReader:
    """A cursor over untrusted bytes. Every read checks what is left first."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise self._malformed(f"version {version}")
        return version

    def int16(self) -> int:
        return int(_INT16.unpack_from(self._data, self._skip(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self._data, self._skip(4))[0])

    def count(self, *, item_bytes: int) -> int:
        """An array's length, refused when its items could not fit into the bytes left."""
        count = self.int32()
        if count < 0 or count * item_bytes > len(self._data) - self._at:
            raise self._malformed(f"an array of {count} items")
        return count

    def topics(self, most: int) -> tuple[str, ...]:
        count = self.count(item_bytes=2)
        if count > most:
            raise self._malformed(f"{count} topics")
        return tuple(self.string() for _ in range(count))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self._malformed("a null name")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        at = self._skip(length)
        try:
            return self._data[at : at + length].decode()
        except UnicodeDecodeError as error:
            raise self._malformed("a name that is not UTF-8") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        if length == -1:
            return None
        at = self._skip(length)
        return bytes(self._data[at : at + length])

    def partitions(self) -> frozenset[TopicPartition]:
        found: set[TopicPartition] = set()
        for _ in range(self.count(item_bytes=6)):
            topic = self.string()
            count = self.count(item_bytes=4)
            numbers = struct.unpack_from(f">{count}i", self._data, self._skip(4 * count))
            found.update(TopicPartition(topic, number) for number in numbers)
        return frozenset(found)

    def _skip(self, length: int) -> int:
        """Move past `length` bytes and return where they start."""
        at = self._at
        if length < 0 or length > len(self._data) - at:
            raise self._malformed(f"{length} bytes wanted and {len(self._data) - at} left")
        self._at = at + length
        return at

    def _malformed(self, found: str) -> HoldfastError:
        return HoldfastError(
            _MALFORMED,
            f"The {self._what} can't be read at byte {self._at} of {len(self._data)}: {found}.",
            "The member that sent it speaks another protocol, or its bytes were damaged.",
        )
