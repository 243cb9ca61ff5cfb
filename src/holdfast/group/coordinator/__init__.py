"""The group coordinator as a pure machine: no clock, no random, no socket, no waiting.

How to drive it
---------------
    coordinator = Coordinator(CoordinatorSettings(), new_member_id=lambda name: f"{name}-{uuid4()}")
    coordinator = Coordinator.replay(records, now, settings=..., new_member_id=...)     # or: continue from a log

    effects = coordinator.handle(token, request, now)    # a client asks
    effects = coordinator.tick(now)                      # when next_deadline() has come; harmless at any other time
    effects = coordinator.disconnected(token, now)       # the client behind a token went away
    effects = coordinator.drop_partitions(gone, now)     # partitions were deleted from the cluster
    effects = coordinator.close(now)                     # stop serving: waiting clients are told to look elsewhere
    coordinator.next_deadline()                          # when to tick next, in the time of `now`; None: not at all
    coordinator.describe(group_id), .list_groups()       # views for DescribeGroups and ListGroups

`request` is one of `group.messages.Request`, or `DeleteGroupRequest` / `DeleteOffsetsRequest` from here. `token` is
anything hashable but None, unique among the requests that are unanswered; joins and syncs are answered later. `now` is
milliseconds as a float and never goes back; a durable coordinator must give time that goes on across restarts (the
wall clock at the start plus what a monotonic clock has counted since), because offsets expire by it.

What comes back
---------------
A list of effects, to be performed in the order they come, those of an earlier call before those of a later one:

    Persist(records)        append them together; `encode_record` makes (key bytes, value bytes or None) of each
    Reply(token, answer)    answer the client; everything it depends on was persisted before
    Emit(trace record)      one step for the trace

Keeping that order (also when appends are gathered and synced together) is what makes commits visible in log order and
an acknowledged commit durable. If an append fails, the machine is ahead of its log: answer the requests whose replies
were not sent yet with `refusal(request, error)`, `close()` the coordinator and `replay` a new one from what the log
has.

What it keeps
-------------
`Coordinator.replay` of all records ever persisted restores the durable state (invariant I8): members, protocol, leader,
generation and assignments as of the last completed join or sync barrier, and all offsets. Not kept: who is joining
right now, ids given out, timers, waiting clients. Members get fresh sessions. A round that had a generation but no plan
yet continues with its sync barrier. `Coordinator.records()` is the same state as the shortest log.

Where things are
----------------
`table` says what each event does in each state (drawn in docs/coordinator-states.md); `joining`, `syncing`, `leaving`,
`offsets`, `ending` do it, with `rounds` for what they share; `checks` decides who is refused; `roster` is a group's
data. Tests play the same scenes against a real Kafka and compare the answers.

Where it goes beyond Kafka 4.1's classic coordinator, on purpose:
- a generation is persisted before it is given out, so that none is used twice, even after a crash between the two;
- a static member that returns with other topics starts a round (Kafka looks only at the protocol's name);
- a full group lets its own static members return, and new members don't get the places of absent ones;
- a client that vanishes while its join waits and never learnt its member id leaves no dead member behind (KAFKA-7610);
- static members that did not join a round are not expelled for not syncing in it;
- an offset committed to an empty group is kept for the whole retention time from then on;
- a pending member that leaves does not disturb a stable group.
"""

from holdfast.group.coordinator.checks import refusal
from holdfast.group.coordinator.codec import decode_record, encode_record
from holdfast.group.coordinator.coordinator import Coordinator, records_of
from holdfast.group.coordinator.effects import Effect, Emit, Persist, Reply, Token
from holdfast.group.coordinator.group import Group
from holdfast.group.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    Record,
)
from holdfast.group.coordinator.requests import (
    AdminAnswer,
    AdminRequest,
    DeleteGroupAnswer,
    DeleteGroupRequest,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    GroupListing,
    GroupView,
    MemberView,
)
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.coordinator.states import State

__all__ = [
    "AdminAnswer",
    "AdminRequest",
    "Coordinator",
    "CoordinatorSettings",
    "DeleteGroupAnswer",
    "DeleteGroupRequest",
    "DeleteOffsetsAnswer",
    "DeleteOffsetsRequest",
    "Effect",
    "Emit",
    "Group",
    "GroupListing",
    "GroupRecord",
    "GroupTombstone",
    "GroupView",
    "MemberRecord",
    "MemberView",
    "OffsetRecord",
    "OffsetTombstone",
    "Persist",
    "Record",
    "Reply",
    "State",
    "Token",
    "decode_record",
    "encode_record",
    "records_of",
    "refusal",
]
