"""Before and during the join: KIP-429's events 1a–1e, protocol selection, and the answers to JoinGroup."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.group.member.effects import Call, ForgetCoordinator, Lost, Plan, Revoked
from holdfast.group.member.events import JoinAnswered, Notified
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.messages import JoinAnswer, JoinRequest, SyncRequest, cut_reason
from holdfast.group.user_data import MemberNote, append_note
from holdfast.model import (
    NOBODY,
    Assignor,
    ErrorCode,
    HoldfastError,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)
from holdfast.model.consumer_protocol import encode_subscription

FATAL: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: (
        "another process joined the group with the same group.instance.id and replaced this one.",
        "Give every process its own group.instance.id (in Kubernetes the StatefulSet's pod name), and stop the other.",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "this user may not read the group.",
        "Grant READ on the group, or use another group.id or user.",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside the range the broker allows.",
        "Choose one between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no assignor with this one.",
        "Compare partition.assignment.strategy with the members': `holdfast preflight GROUP` shows them. A migration "
        "takes two rolling bounces, the first of which lists both assignors.",
    ),
    ErrorCode.INVALID_GROUP_ID: ("the broker refuses this group.id.", "Use a non-empty one of at most 249 characters."),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group is full (group.max.size on the broker).",
        "Run fewer members or raise the limit.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker does not know this version of the group protocol.",
        "Kafka 0.11 or newer is needed; group.instance.id needs 2.3.",
    ),
}

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
MARKED_REASON = "the leader keeps partitions back until they are revoked"
MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors that say the coordinator is somewhere else."""


def select_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The most advanced protocol that every configured assignor can work under (KIP-429)."""
    common = set(RebalanceProtocol).intersection(*(set(assignor.protocols) for assignor in assignors))
    if not assignors or not common:
        raise HoldfastError(
            "NO_COMMON_PROTOCOL",
            "the configured assignors have no rebalance protocol in common: "
            + ", ".join(f"{a.name} ({'/'.join(p.name for p in a.protocols)})" for a in assignors)
            + ".",
            "Remove from partition.assignment.strategy what does not fit the others.",
        )
    return max(common)


def fatal_error(code: ErrorCode) -> HoldfastError:
    what, do = FATAL.get(
        code, ("the coordinator answered with an error we can't recover from.", "See the broker's log.")
    )
    return HoldfastError(code.name, what, do)


def lose_membership(turn: Turn, error: ErrorCode) -> None:
    """1d: forget the id (UNKNOWN_MEMBER_ID) or the generation alone (ILLEGAL_GENERATION); what is owned is lost."""
    kept = turn.state.membership.without_generation() if error is ErrorCode.ILLEGAL_GENERATION else NOBODY
    turn.trace("membership-lost", cause=error.name)
    turn.set(
        membership=kept,
        lost=True,
        positions={},  # others may be beyond them by the time we are back
        heartbeat=None,
        next_heartbeat_at=None,
        next_hot_at=None,
        leader=False,
    )


def prepare(turn: Turn, reason: str) -> None:
    """The step before a join: give up what must be given up, then join. Runs also in mid-round (KAFKA-12983)."""
    state = turn.state
    if state.leave_after_round:  # there is no result to wait for any more
        part(turn)
        return
    turn.set(join_reason=reason, rejoin=None, leave_at=None, look_at=None)
    turn.trace("rejoin", cause=reason, owned=as_value(state.owned))
    calls = _before_joining(state)
    if not calls:
        _join(turn)
        return
    given_up = frozenset[TopicPartition]().union(
        *(call.partitions for call in calls if isinstance(call, Revoked | Lost))
    )
    turn.set(phase=Phase.PREPARING)
    for call in calls:
        if isinstance(call, Revoked | Lost):
            turn.trace("losing" if isinstance(call, Lost) else "revoking", partitions=as_value(call.partitions))
    turn.notify(calls, then_owned=state.owned - given_up)


def part(turn: Turn) -> None:
    """The last thing the listener is told: everything owned goes. Then we go (`leaving.let_go`)."""
    state = turn.state
    turn.set(
        phase=Phase.LEAVING,
        rejoin=None,
        leave_at=None,
        leave_after_round=False,
        look_at=None,
        retry_at=None,
        pending=None,
    )
    gone = state.lost or not state.membership.joined
    turn.trace("losing" if gone else "revoking", partitions=as_value(state.owned))
    turn.notify([Lost(state.owned) if gone else Revoked(state.owned)], then_owned=frozenset())


def _before_joining(state: MemberState) -> list[Call]:
    if not state.owned:
        return []
    if state.lost:
        return [Lost(state.owned)]
    if not state.cooperative:
        return [Revoked(state.owned)]
    gone = frozenset(p for p in state.owned if p.topic in state.topics and not _exists(state, p))
    unwanted = frozenset(p for p in state.owned if p.topic not in state.topics)
    calls: list[Call] = []
    if gone:
        calls.append(Lost(gone))
    if unwanted:
        calls.append(Revoked(unwanted))
    return calls


def _exists(state: MemberState, partition: TopicPartition) -> bool:
    """Whether the cluster still has it. With no metadata at all nothing is said to be gone."""
    if not state.partition_counts:
        return True
    return partition.partition < state.partition_counts.get(partition.topic, 0)


def prepared(turn: Turn, event: Notified) -> None:
    """The listener has returned from the step before the join."""
    turn.set(owned=turn.state.next_phase_owned, pending=None, positions=turn.to_hand_over(event.positions))
    if turn.state.rejoin is not None:  # something else happened meanwhile, so look again at what must go (KAFKA-9815)
        prepare(turn, turn.state.rejoin)
    else:
        _join(turn)


def _join(turn: Turn) -> None:
    state = turn.state
    config = state.config
    turn.set(phase=Phase.JOINING, lost=False, heartbeat=None, drain_sent=state.draining is not None)
    state = turn.state
    turn.send(
        JoinRequest(
            group=config.group,
            membership=state.membership,
            instance_id=config.instance_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            protocols=tuple((a.name, _subscription(state, a)) for a in config.assignors),
            reason=cut_reason(state.join_reason),
            client_id=config.client_id,
        )
    )
    turn.trace("join-sent", cause=state.join_reason, owned=as_value(state.owned))
    if state.join_reason != MARKED_REASON:  # where the leader marked, everybody rejoins without being told
        turn.poke(known=False)


def _subscription(state: MemberState, assignor: Assignor) -> bytes:
    note = MemberNote(
        draining=state.draining is not None,
        endpoint=state.config.endpoint,
        positions=state.positions if state.config.hand_over_offsets else {},
        assignors=tuple(each.name for each in state.config.assignors),
    )
    own = assignor.subscription_user_data(state.topics, state.assigned, state.held_generation)
    return encode_subscription(
        Subscription(
            topics=tuple(sorted(state.topics)),
            owned=state.owned,
            generation=state.held_generation,
            user_data=append_note(own, note, state.held_generation),
            rack=state.config.rack,
        )
    )


def retry_join(turn: Turn) -> None:
    """The backoff is over."""
    _join(turn)


def back_off(turn: Turn, cause: str) -> None:
    """Try the join again a little later, with the id we have (KAFKA-13214)."""
    if turn.state.leave_after_round:
        part(turn)
        return
    turn.trace("join-retry", cause=cause)
    turn.set(phase=Phase.JOINING, pending=None, retry_at=turn.now + turn.state.config.retry_backoff_ms)


def join_answered(turn: Turn, event: JoinAnswered) -> None:
    answer = event.answer
    turn.set(pending=None)
    turn.answered(answer.error)
    if answer.error is ErrorCode.NONE:
        _joined(turn, answer)
    elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:  # 1e
        turn.set(membership=answer.membership.without_generation())
        _join(turn)
    elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        lose_membership(turn, answer.error)
        prepare(turn, f"the coordinator answered {answer.error.name} to our join")
    elif answer.error in RETRIABLE:
        if answer.error in MOVED:
            turn.do(ForgetCoordinator())
        back_off(turn, answer.error.name)
    else:
        turn.fail(fatal_error(answer.error))


def _joined(turn: Turn, answer: JoinAnswer) -> None:
    state = turn.state
    names = {assignor.name for assignor in state.config.assignors}
    if answer.protocol not in names:
        turn.fail(
            HoldfastError(
                "INCONSISTENT_GROUP_PROTOCOL",
                f"the coordinator chose {answer.protocol!r}, which this member did not offer.",
                "The broker is at fault; report it.",
            )
        )
        return
    if _missed_a_round(state, answer):
        # What we own may have been given to others: nothing of it may be processed or committed any more.
        lose_membership(turn, ErrorCode.ILLEGAL_GENERATION)
        prepare(turn, "the group completed a round without us")
        return
    leads = answer.leader == answer.membership.member_id
    turn.set(
        membership=answer.membership,
        leader=leads,
        protocol=answer.protocol,
        joined_at=turn.now,
        positions={},  # they ride in one completed round only: later they would be stale
        next_heartbeat_at=turn.now + state.config.heartbeat_interval_ms,
    )
    if state.leave_after_round:
        turn.set(leave_at=turn.now + state.config.heartbeat_interval_ms)
    turn.trace("joined", leader=answer.leader, leads=leads, members=len(answer.members), protocol=answer.protocol)
    if leads and not answer.skip_assignment:
        serial = turn.next_serial()
        turn.set(phase=Phase.PLANNING, pending=serial)
        turn.do(Plan(serial, answer.protocol, answer.members, answer.membership.generation))
    else:
        turn.set(planned_counts=None)  # where we lead, our former self planned: its note to us will say what for
        send_sync(turn, {})


def _missed_a_round(state: MemberState, answer: JoinAnswer) -> bool:
    """Whether the group went through a whole round without us. Dynamic members are expelled for that and hear of it;
    static ones keep their place, and what they claim is out of date (KAFKA-14639)."""
    before, now = state.membership, answer.membership
    kept_place = state.static and before.joined and before.member_id == now.member_id
    return kept_place and bool(state.owned) and now.generation > before.generation + 1


def send_sync(turn: Turn, assignments: dict[str, bytes]) -> None:
    state = turn.state
    turn.set(phase=Phase.SYNCING)
    turn.send(
        SyncRequest(
            group=state.config.group,
            membership=state.membership,
            instance_id=state.config.instance_id,
            protocol=state.protocol,
            assignments=assignments,
        )
    )
    turn.trace("sync-sent", planned=len(assignments))
