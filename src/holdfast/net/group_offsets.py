"""Reads what an offset reset needs to know, and writes its result, for a group without members.

Rules. Everything is read before anything is written. A group with members is refused here, before its coordinator does
so partition by partition. What does not change is not written: its metadata and leader epoch stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.group import messages as m
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, LATEST, Admin
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.group_snapshots import Place, committed_offsets, places
from holdfast.observe.resetting import Move, Scope, Standing
from holdfast.observe.snapshot import NOBODY_IN_IT, PartitionOffsets

COMMIT_AT_ONCE = 1_000
"""Offsets in one request. Kafka appends a request's offsets as one batch, which its message.max.bytes bounds."""


async def require_inactive(cluster: Cluster, group: str) -> bool:
    """Raise if the group has members. Returns whether the group exists."""
    try:
        described = await GroupAdmin(cluster).describe_group(group)
    except BrokerError as error:
        if error.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if described.state not in NOBODY_IN_IT:
        count = len(described.members)
        raise HoldfastError(
            ErrorCode.NON_EMPTY_GROUP.name,
            f"The group {group} is {described.state} with {count} member{'s' if count != 1 else ''}, and "
            "only the members of an active group may set its offsets.",
            "Stop its members first. A killed member, or one with an instance id, stays until its session ends.",
        )
    return True


async def standings(
    cluster: Cluster, group: str, scope: Scope | None, *, time_ms: int | None = None
) -> dict[TopicPartition, Standing]:
    """What is known about each partition in scope; without a scope, about those that the group has an offset for."""
    known, problems = await committed_offsets(cluster, group)
    if problems:
        code, _, what = problems[0].partition(": ")
        raise HoldfastError(code, what, "Without them nothing can be reset; ask for the right to read them.")
    wanted = sorted(known) if scope is None else await _in_scope(cluster, scope)
    ends = await places(cluster, dict.fromkeys(wanted, LATEST))
    starts = await places(cluster, dict.fromkeys(wanted, EARLIEST))
    times = {} if time_ms is None else await places(cluster, dict.fromkeys(wanted, time_ms))
    found = {}
    for at in wanted:
        before, end, start, timed = known.get(at, PartitionOffsets()), ends[at], starts[at], times.get(at, Place())
        found[at] = Standing(
            committed=before.committed,
            start=start.offset,
            end=end.offset,
            at_time=timed.offset,
            problem=before.problem or end.problem or start.problem or timed.problem,
        )
    return found


async def _in_scope(cluster: Cluster, scope: Scope) -> list[TopicPartition]:
    topics = (await Admin(cluster).describe_topics(scope)) if scope else {}
    found: list[TopicPartition] = []
    for name, numbers in sorted(scope.items()):
        topic = topics.get(name)
        if topic is None or topic.error is not ErrorCode.NONE:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            raise HoldfastError(
                error.name,
                f"There is no topic {name}, or it can't be seen.",
                "`holdfast topics list` shows those there are. Nothing was changed.",
            )
        found += [TopicPartition(name, number) for number in sorted(topic.partitions if numbers is None else numbers)]
    return found


async def write(
    cluster: Cluster, group: str, moves: Mapping[TopicPartition, Move]
) -> dict[TopicPartition, NetError | None]:
    """Commit what changes. Returns each partition's result; unchanged partitions are left out.

    After a request that fails none is sent. Its error is the result of all partitions not answered, and results from
    before it are kept: those offsets were written."""
    changed = [(at, move.after) for at, move in sorted(moves.items()) if move.changes and move.after is not None]
    answers: dict[TopicPartition, NetError | None] = {}
    for first in range(0, len(changed), COMMIT_AT_ONCE):
        some = {at: m.OffsetEntry(offset) for at, offset in changed[first : first + COMMIT_AT_ONCE]}
        try:
            answered = await Admin(cluster).commit(group, some)
        except NetError as error:
            return answers | dict.fromkeys((at for at, _ in changed[first:]), error)
        answers |= {at: answered[at] if at in answered else _unanswered(at) for at in some}
    return answers


def _unanswered(at: TopicPartition) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordinator's answer leaves out {at}.")
