"""Before and during the join: KIP-429's events 1a–1e, protocol selection, and the answers to JoinGroup."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.group.member import adapting
from holdfast.group.member.effects import Call, Lost, Plan, Revoked
from holdfast.group.member.events import JoinAnswered, Notified
from holdfast.group.member.parts import NO_PLAN, Aside
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.trouble import back_off_ms, judge, troubled
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.messages import JoinAnswer, JoinRequest, SyncRequest, cut_reason
from holdfast.group.user_data import MemberNote, append_note, as_many_as_fit, attach_note
from holdfast.group.verdicts import Ask, Verdict, refusal
from holdfast.model import (
    NOBODY,
    Assignor,
    ErrorCode,
    HoldfastError,
    Membership,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    is_built_in,
)
from holdfast.model.consumer_protocol import encode_subscription

REBALANCING_REASON = "the group is rebalancing"
MARKED_REASON = "the leader keeps partitions back until they are revoked"


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


def lose_membership(turn: Turn, error: ErrorCode) -> None:
    """1d: forget the id (UNKNOWN_MEMBER_ID) or only the generation (ILLEGAL_GENERATION); what is owned is lost."""
    kept = turn.state.membership.without_generation() if error is ErrorCode.ILLEGAL_GENERATION else NOBODY
    turn.trace("membership-lost", cause=error.name)
    turn.set(membership=kept, lost=True)
    turn.set_held(positions={})  # other members may be beyond them when we are back
    turn.set_round(leads=False)
    turn.set_requests(heartbeat=None)
    turn.set_beats(next_at=None, hot_at=None)
    turn.set_planning(again_at=None)


def prepare(turn: Turn, reason: str) -> None:
    """Before a join: revoke or lose what must be given up, then join. Also in the middle of a round (KAFKA-12983)."""
    state = turn.state
    if state.leaving.after_round:  # this round will have no result to wait for
        part(turn)
        return
    turn.set(owed=None)
    turn.set_round(reason=reason)
    if state.draining is not None:
        turn.set_drain(aside=Aside.NO)
        turn.set_leaving(at=None)
    turn.trace("rejoin", cause=reason, owned=as_value(state.owned))
    calls = _before_joining(state)
    if not calls:
        _join(turn)
        return
    given_up = frozenset[TopicPartition]().union(
        *(call.partitions for call in calls if isinstance(call, Revoked | Lost))
    )
    turn.set(phase=Phase.PREPARING)
    if not state.lost and (gone := vanished(state)):
        turn.trace("vanished", cause=reason, partitions=as_value(gone))
    for call in calls:
        if isinstance(call, Revoked | Lost):
            turn.trace("losing" if isinstance(call, Lost) else "revoking", partitions=as_value(call.partitions))
    turn.notify(calls, then_owned=state.owned - given_up)


def part(turn: Turn) -> None:
    """Begin to leave: have everything owned revoked (or lost). When the listener has returned, `leaving.let_go` sends
    the leave."""
    state = turn.state
    turn.set(phase=Phase.LEAVING, owed=None)
    turn.set_requests(retry_at=None, pending=None)
    turn.set_drain(aside=Aside.NO)
    turn.set_leaving(at=None, after_round=False)
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
    # Partitions that no longer exist are revoked, not lost: we are still a member and may commit. A leader that does
    # not know a topic assigns it to the member that claims it (2e), so the owner has to give it up.
    unwanted = frozenset(p for p in state.owned if p.topic not in state.topics) | vanished(state)
    unwanted |= state.held.taken & state.owned
    return [Revoked(unwanted)] if unwanted else []


def vanished(state: MemberState) -> frozenset[TopicPartition]:
    """Owned partitions of subscribed topics that no longer exist in the cluster. None while there is no metadata."""
    seen = state.partition_counts
    if not seen:
        return frozenset()
    return frozenset(p for p in state.owned if p.topic in state.topics and p.partition >= seen.get(p.topic, 0))


def prepared(turn: Turn, event: Notified) -> None:
    """The listener has returned from the calls before the join."""
    state = turn.state
    turn.set_held(positions=turn.to_hand_over(event.positions))
    turn.set(owned=state.held.then_owned)
    turn.set_requests(pending=None)
    if state.owed is not None:  # something changed meanwhile: check again what must be given up (KAFKA-9815)
        prepare(turn, state.owed.reason)
    else:
        _join(turn)


def _join(turn: Turn) -> None:
    state = turn.state
    config = state.config
    turn.set(phase=Phase.JOINING, lost=False)
    turn.set_round(drains=state.draining is not None)
    # While it waits, silence does not count. If our session may be over already, it goes on counting.
    silent = turn.now - state.requests.vouched_at > config.session_timeout_ms
    turn.set_requests(heartbeat=None, unheard=state.requests.unheard or silent)
    state = turn.state
    turn.send(
        JoinRequest(
            group=config.group,
            membership=state.membership,
            instance_id=config.instance_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            protocols=tuple((a.name, _subscription(state, a)) for a in state.assignors),
            reason=cut_reason(state.round.reason),
            client_id=config.client_id,
        )
    )
    turn.trace(
        "join-sent",
        cause=state.round.reason,
        owned=as_value(state.owned),
        lists=[assignor.name for assignor in state.assignors],
    )
    if not _everybody_knows(state):
        turn.poke(known=False, heard=state.round.reason == REBALANCING_REASON)


def _everybody_knows(state: MemberState) -> bool:
    """After a marked round everybody rejoins by itself, so a poke is not needed. In a small group a member that revoked
    pokes nevertheless: it costs nothing, and reaches members that don't follow the mark."""
    return state.round.reason == MARKED_REASON or (state.pokes.passed_on and state.said.marked)


def _subscription(state: MemberState, assignor: Assignor) -> bytes:
    hands_over = state.config.hand_over_offsets and RebalanceProtocol.COOPERATIVE in assignor.protocols
    note = MemberNote(
        draining=state.draining is not None,
        endpoint=state.config.endpoint,
        positions=as_many_as_fit(state.held.positions, state.said.room) if hands_over else {},
        assignors=tuple(each.name for each in state.assignors),
        version=0 if is_built_in(assignor) else assignor.version,
    )
    own = assignor.subscription_user_data(state.topics, state.held.assigned, state.held.generation)
    return encode_subscription(
        Subscription(
            topics=tuple(sorted(state.topics)),
            owned=state.owned,
            generation=state.held.generation,
            user_data=(
                append_note(own, note, state.held.generation) if is_built_in(assignor) else attach_note(own, note)
            ),
            rack=state.config.rack,
        )
    )


def retry_join(turn: Turn) -> None:
    """The back-off is over. What must be given up may have changed meanwhile (KAFKA-9815)."""
    if _before_joining(turn.state):
        prepare(turn, turn.state.rejoin or turn.state.round.reason)
    else:
        _join(turn)


def back_off(turn: Turn, cause: str) -> None:
    """Retry the join after a back-off, with the id we have (KAFKA-13214)."""
    if turn.state.leaving.after_round:
        part(turn)
        return
    turn.trace("join-retry", cause=cause)
    turn.set(phase=Phase.JOINING)
    turn.set_requests(pending=None, retry_at=turn.now + back_off_ms(turn.state))


def join_again(turn: Turn, reason: str) -> None:
    """A round failed: join again, at once after the first failure in a row, otherwise after a back-off."""
    if turn.state.trouble.tries <= 1:
        prepare(turn, reason)
    else:
        turn.set_round(reason=reason)
        back_off(turn, reason)


def join_answered(turn: Turn, event: JoinAnswered) -> None:
    answer = event.answer
    state = turn.state
    turn.set_requests(pending=None)
    if answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and adapting.fits_in(state):
        if not adapting.undo_upgrade(turn):
            adapting.fit_in(turn)
            prepare(turn, adapting.FITTING_IN_REASON)
        elif turn.state.leaving.after_round:  # there will be no round to wait for
            part(turn)
        return
    match judge(turn, Ask.JOIN, answer.error):
        case Verdict.FINE:
            turn.vouched(state.requests.sent_at)
            _joined(turn, state, answer)
        case Verdict.TAKE_ID if not state.membership.known:  # 1e
            turn.vouched(state.requests.sent_at)
            turn.set(membership=answer.membership.without_generation())
            _join(turn)
        case Verdict.TAKE_ID:  # although we had an id
            turn.set(membership=answer.membership.without_generation())
            troubled(turn, refusal(Ask.JOIN, answer.error), loud=False)
            back_off(turn, answer.error.name)
        case Verdict.EXPELLED | Verdict.OUTDATED:
            lose_membership(turn, answer.error)
            troubled(turn, refusal(Ask.JOIN, answer.error), loud=False)
            join_again(turn, f"the coordinator answered {answer.error.name} to our join")
        case Verdict.MOVED | Verdict.LATER | Verdict.TELL | Verdict.REBALANCE:
            back_off(turn, answer.error.name)


def _joined(turn: Turn, state: MemberState, answer: JoinAnswer) -> None:
    """The round has all its members. `state` is the one in which the join was answered."""
    names = {assignor.name for assignor in state.assignors}
    if answer.protocol not in names:
        error = HoldfastError(
            "INCONSISTENT_GROUP_PROTOCOL",
            f"the coordinator chose {answer.protocol!r}, which this member did not offer.",
            "The broker is at fault; report it. The join is tried again.",
        )
        troubled(turn, error, loud=True)
        back_off(turn, error.what)
        return
    if _missed_a_round(state, answer):
        # Others may own our partitions by now: nothing of them may be processed or committed any more.
        lose_membership(turn, ErrorCode.ILLEGAL_GENERATION)
        prepare(turn, "the group completed a round without us")
        return
    leads = answer.leader == answer.membership.member_id
    turn.set(membership=answer.membership)
    turn.set_held(positions={})  # valid for one completed round only: later they would be stale
    turn.set_round(leads=leads, leader_id=answer.leader, protocol=answer.protocol, joined_at=turn.now)
    turn.set_beats(next_at=turn.now + state.config.heartbeat_interval_ms)
    if state.adapting.eager:
        adapting.joined(turn, answer.protocol)
    if state.leaving.after_round:
        turn.set_leaving(at=turn.now + state.config.heartbeat_interval_ms)
    turn.trace("joined", leader=answer.leader, leads=leads, members=len(answer.members), protocol=answer.protocol)
    if leads and not answer.skip_assignment:
        serial = turn.next_serial()
        turn.set(phase=Phase.PLANNING)
        turn.set_requests(pending=serial)
        turn.do(Plan(serial, answer.protocol, answer.members, answer.membership.generation))
    else:
        turn.replace(planning=NO_PLAN)  # if we lead, we planned before a restart: that plan's note says by which counts
        send_sync(turn, answer.membership, answer.protocol, {})


def _missed_a_round(state: MemberState, answer: JoinAnswer) -> bool:
    """Whether the group completed a whole round without us. A dynamic member is expelled then, and is told. A static
    one keeps its place, but what it claims is out of date (KAFKA-14639)."""
    before, now = state.membership, answer.membership
    kept_place = state.static and before.joined and before.member_id == now.member_id
    return kept_place and bool(state.owned) and now.generation > before.generation + 1


def send_sync(turn: Turn, membership: Membership, protocol: str | None, assignments: dict[str, bytes]) -> None:
    config = turn.config
    turn.set(phase=Phase.SYNCING)
    turn.send(
        SyncRequest(
            group=config.group,
            membership=membership,
            instance_id=config.instance_id,
            protocol=protocol,
            assignments=assignments,
        )
    )
    turn.trace("sync-sent", planned=len(assignments))
