"""Committed offsets: kept, shown, expired, deleted. The group itself is deleted here too, with the last of them.

Rules. An offset is written before its commit is answered. Offsets never expire while somebody may need them: in a
group with members only those of topics that nobody subscribes to (KAFKA-13636), in an empty group only once it has been
empty for the whole retention time.
"""

from __future__ import annotations

from holdfast.group.coordinator.checks import commit_error, refusal
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import (
    CheckDue,
    Committed,
    Deleted,
    OffsetsAsked,
    OffsetsDeleted,
    PartitionsDropped,
)
from holdfast.group.coordinator.records import GroupTombstone, OffsetRecord, OffsetTombstone
from holdfast.group.coordinator.requests import DeleteGroupAnswer, DeleteOffsetsAnswer
from holdfast.group.coordinator.roster import CHECK_KEY, Roster
from holdfast.group.coordinator.states import State
from holdfast.group.coordinator.subscriptions import subscribed_topics
from holdfast.group.coordinator.tracing import trace_refusal
from holdfast.group.messages import (
    CONSUMER_PROTOCOL_TYPE,
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    OffsetEntry,
)
from holdfast.model import ErrorCode, TopicPartition


def commit(roster: Roster, event: Committed, step: Step) -> None:
    """Writes the offsets, then answers. It counts as a heartbeat."""
    request = event.request
    error = commit_error(roster, request)
    if error is not None:
        refuse_commit(roster, event, step, error)
        return
    verdicts: dict[TopicPartition, ErrorCode] = {}
    records: list[OffsetRecord] = []
    room = roster.settings.max_offsets_per_group - len(roster.offsets)
    for partition, entry in sorted(request.offsets.items()):
        if metadata_bytes(entry.metadata) > roster.settings.offset_metadata_max_bytes:
            verdicts[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif partition not in roster.offsets and room <= 0:
            verdicts[partition] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        else:
            room -= partition not in roster.offsets
            verdicts[partition] = ErrorCode.NONE
            records.append(offset_record(request, partition, entry, step.now))
    for record in records:
        roster.set_offset(record)
    member = roster.members.get(request.membership.member_id)
    if member is not None:
        roster.watch(member, step.now)
    step.persist(*records)
    step.reply(event.token, CommitAnswer(errors=verdicts))


def commit_in_completing(roster: Roster, event: Committed, step: Step) -> None:
    """Refuses: REBALANCE_IN_PROGRESS. The member has the generation, but nobody has a plan yet."""
    refuse_commit(roster, event, step, commit_error(roster, event.request) or ErrorCode.REBALANCE_IN_PROGRESS)


def refuse_commit(roster: Roster, event: Committed, step: Step, error: ErrorCode) -> None:
    trace_refusal(roster, step, "commit-refused", event.request.membership, event.request.instance_id, error)
    step.reply(event.token, refusal(event.request, error))


def offset_record(request: CommitRequest, partition: TopicPartition, entry: OffsetEntry, now: float) -> OffsetRecord:
    return OffsetRecord(
        group=request.group,
        partition=partition,
        offset=entry.offset,
        leader_epoch=entry.leader_epoch,
        metadata=entry.metadata,
        committed_at_ms=now,
    )


def metadata_bytes(metadata: str) -> int:
    return len(metadata.encode("utf-8", "surrogatepass"))


def show_offsets(roster: Roster, event: OffsetsAsked, step: Step) -> None:
    """Answers the committed offsets; does not fence."""
    asked = event.request.partitions
    wanted = sorted(roster.offsets) if asked is None else [each for each in asked if each in roster.offsets]
    found = {partition: entry_of(roster.offsets[partition]) for partition in wanted}
    step.reply(event.token, FetchOffsetsAnswer(offsets=found))


def entry_of(record: OffsetRecord) -> OffsetEntry:
    return OffsetEntry(record.offset, record.leader_epoch, record.metadata)


def delete_offsets(roster: Roster, event: OffsetsDeleted, step: Step) -> None:
    """Forgets offsets, but for topics that a member subscribes to."""
    request = event.request
    if roster.members and roster.protocol_type != CONSUMER_PROTOCOL_TYPE:
        step.reply(event.token, DeleteOffsetsAnswer(error=ErrorCode.NON_EMPTY_GROUP))
        return
    topics = subscribed_topics(roster)
    verdicts = {
        partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if topics is None or partition.topic in topics
        else ErrorCode.NONE
        for partition in sorted(request.partitions)
    }
    gone = [each for each, verdict in verdicts.items() if verdict is ErrorCode.NONE and each in roster.offsets]
    forget_offsets(roster, step, gone, "deleted")
    step.reply(event.token, DeleteOffsetsAnswer(errors=verdicts))


def drop_partitions(roster: Roster, event: PartitionsDropped, step: Step) -> None:
    """Forgets the offsets of deleted partitions."""
    forget_offsets(roster, step, sorted(roster.committed_among(event.partitions)), "partitions deleted")


def forget_offsets(roster: Roster, step: Step, partitions: list[TopicPartition], cause: str) -> None:
    if not partitions:
        return
    for partition in partitions:
        roster.drop_offset(partition)
    step.trace("offsets-forgotten", generation=roster.generation, cause=cause, partitions=len(partitions))
    step.persist(*(OffsetTombstone(roster.group_id, partition) for partition in partitions))


def expire_offsets(roster: Roster, event: CheckDue, step: Step) -> None:
    """Forgets expired offsets, and the group itself if it is empty and has none left."""
    retention_ms = roster.settings.offsets_retention_ms
    old = [each for each, record in roster.offsets.items() if record.committed_at_ms + retention_ms <= step.now]
    if roster.members:
        old = unsubscribed(roster, old) if roster.state is State.STABLE else []
    elif roster.protocol_type is not None and roster.since_ms + retention_ms > step.now:
        old = []
    forget_offsets(roster, step, sorted(old), "retention time is over")
    roster.deadlines.set(CHECK_KEY, step.now + roster.settings.offsets_retention_check_interval_ms)
    if roster.state is State.EMPTY and not roster.offsets and not roster.pending:
        bury(roster, step, "nothing in it any more")


def unsubscribed(roster: Roster, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Those of topics that no member subscribes to; none of them when that can't be known."""
    topics = subscribed_topics(roster) if partitions else None
    return [] if topics is None else [each for each in partitions if each.topic not in topics]


def delete_group(roster: Roster, event: Deleted, step: Step) -> None:
    """Forgets the group with its offsets."""
    forget_offsets(roster, step, sorted(roster.offsets), "group deleted")
    bury(roster, step, "deleted")
    step.reply(event.token, DeleteGroupAnswer())


def keep_group(roster: Roster, event: Deleted, step: Step) -> None:
    """Refuses: NON_EMPTY_GROUP."""
    step.reply(event.token, DeleteGroupAnswer(error=ErrorCode.NON_EMPTY_GROUP))


def bury(roster: Roster, step: Step, cause: str) -> None:
    """End an empty group. Its name may be used again, from generation 0 on."""
    step.trace("group-gone", generation=roster.generation, cause=cause)
    if roster.durable is not None:
        step.persist(GroupTombstone(roster.group_id))
        roster.durable = None
    roster.pending.clear()
    roster.deadlines.clear_all()
    roster.move(State.DEAD, step.now)
