"""Offsets to commit, by partition: from what the application gave, to what it gets back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import confluent_kafka as ck

from holdfast.client.errors import Refused, refused_here
from holdfast.client.partitions import NO_OFFSET, after_record, confluent_entry, entry_of, name_of
from holdfast.group.messages import CommitAnswer, OffsetEntry
from holdfast.model import ErrorCode, TopicPartition

Entries = dict[TopicPartition, OffsetEntry]


def sendable(entries: Entries) -> Entries:
    """Those that name an offset."""
    return {p: entry for p, entry in entries.items() if entry.offset >= 0}


def accepted_of(entries: Entries, answer: CommitAnswer | None) -> Entries:
    """Those that the coordinator has taken."""
    errors = {} if answer is None else answer.errors
    return {p: entry for p, entry in sendable(entries).items() if errors.get(p) is ErrorCode.NONE}


def after(message: ck.Message) -> Entries:
    """The position after a record; no offset if the message has none."""
    error = message.error()
    if error is not None:
        why = f"a message with an error has no offset: {error.str()}"
        raise refused_here(ck.KafkaError._INVALID_ARG, why)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None:
        return {}
    if offset is None or offset < 0:
        return {TopicPartition(topic, partition): NO_OFFSET}
    return {TopicPartition(topic, partition): after_record(message)}


def entries_of(offsets: Iterable[ck.TopicPartition]) -> Entries:
    """The application's list. An entry without an offset is kept: it is not sent, but shown in the result."""
    return {name_of(p): entry_of(p) for p in offsets}


def results_of(entries: Mapping[TopicPartition, OffsetEntry], answer: CommitAnswer | None) -> list[ck.TopicPartition]:
    """The partitions of a commit, each with its error. One that has an offset but no answer was not ours to commit."""
    shown: list[ck.TopicPartition] = []
    for partition, entry in sorted(entries.items()):
        code = ErrorCode.NONE if answer is None or entry.offset < 0 else answer.errors.get(partition)
        if code is ErrorCode.NONE:
            shown.append(confluent_entry(partition, entry))
        else:
            number = ck.KafkaError._STATE if code is None else int(code)
            shown.append(Refused(partition, entry, ck.KafkaError(number)))
    return shown
