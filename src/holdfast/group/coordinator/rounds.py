"""One round: how it starts, how its join barrier completes, and how members drop out of it.

    start_round ── members join ──> complete_join ── the leader syncs ──> stable (in `syncing`)

Rules. Every start has a cause in words and a culprit. The order within a completion is: expel the late, choose the
leader, raise the generation, write it down, and only then answer.
"""

from __future__ import annotations

from holdfast.group.coordinator.effects import Step, Token
from holdfast.group.coordinator.leading import leader_of_round
from holdfast.group.coordinator.roster import JOIN_KEY, SYNC_KEY, Member, Roster
from holdfast.group.coordinator.states import State
from holdfast.group.messages import JoinAnswer, SyncAnswer
from holdfast.model import ErrorCode, JoinedMember, Membership


def start_round(roster: Roster, step: Step, *, cause: str, culprit: str) -> None:
    """Ask everybody to join again. A member that caused this by joining is parked already."""
    first = roster.state is State.EMPTY
    interrupt_sync(roster, step)
    step.trace(
        "rebalance-started",
        generation=roster.generation,
        cause=cause,
        culprit=culprit,
        members=len(roster.members),
        state=roster.state.value,
    )
    roster.move(State.PREPARING, step.now)
    roster.round_since_ms = step.now
    roster.awaited = {member.member_id for member in roster.members.values() if member.join_token is None}
    timeout_ms = roster.rebalance_timeout_ms
    roster.deadlines.set(JOIN_KEY, step.now + timeout_ms)
    delay_ms = roster.settings.group_initial_rebalance_delay_ms
    if first:
        roster.initial_until = step.now + timeout_ms
        roster.newcomers = False
        roster.deadlines.set(JOIN_KEY, step.now + min(delay_ms, timeout_ms))
        if delay_ms <= 0:
            complete_join(roster, step)


def interrupt_sync(roster: Roster, step: Step) -> None:
    """Tell members that wait for a plan, which will not come now, to join again."""
    roster.unsynced.clear()
    roster.deadlines.clear(SYNC_KEY)
    for member in in_order(roster):
        if roster.state is State.COMPLETING:
            member.assignment = b""
        token = roster.take_sync_token(member)
        if token is not None:
            step.reply(token, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
            roster.watch(member, step.now)


def maybe_complete_join(roster: Roster, step: Step) -> None:
    """Complete the join barrier if nobody is missing. The first round of a group waits for its delay, too."""
    if roster.state is not State.PREPARING:
        return
    everybody_here = not roster.awaited and not roster.pending and roster.initial_until is None
    if everybody_here or not roster.members:
        complete_join(roster, step)


def complete_join(roster: Roster, step: Step) -> None:
    """End the join barrier with the members that have joined."""
    roster.deadlines.clear(JOIN_KEY)
    roster.initial_until = None
    expel_late(roster, step)
    if not roster.members:
        become_empty(roster, step)
        return
    if len(roster.awaited) == len(roster.members):
        # Only static members are left and none has joined. Nobody can lead; their sessions decide (KAFKA-8220).
        roster.deadlines.set(JOIN_KEY, step.now + roster.rebalance_timeout_ms)
        return
    roster.protocol = roster.vote()
    roster.leader = leader_of_round(roster)
    roster.generation += 1
    roster.move(State.COMPLETING, step.now)
    for member in roster.members.values():
        member.assignment = b""
    step.trace(
        "generation",
        generation=roster.generation,
        leader=roster.leader,
        protocol=roster.protocol,
        members=[*sorted(roster.members)],
        took_ms=step.now - roster.round_since_ms,
    )
    step.persist(roster.record())
    hand_out_generation(roster, step)


def expel_late(roster: Roster, step: Step) -> None:
    """Dynamic members that did not join in time are out; static ones keep their place until their session ends."""
    for member_id in sorted(roster.awaited):
        member = roster.members[member_id]
        if not member.is_static:
            cause = f"{member.name} did not join again within the rebalance timeout"
            take_out(roster, step, member, what="member-expelled", cause=cause)


def become_empty(roster: Roster, step: Step) -> None:
    """Nobody is left. The generation rises nevertheless, so that former members are recognised as outdated."""
    roster.generation += 1
    roster.protocol = None
    roster.move(State.EMPTY, step.now)
    step.trace("empty", generation=roster.generation)
    step.persist(roster.record())


def hand_out_generation(roster: Roster, step: Step) -> None:
    """Answer everybody that joined. The leader first: the others wait for it."""
    roster.unsynced = {member_id for member_id in roster.members if member_id not in roster.awaited}
    roster.awaited = set()
    roster.deadlines.set(SYNC_KEY, step.now + roster.rebalance_timeout_ms)
    for member_id in sorted(roster.unsynced, key=lambda each: (each != roster.leader, each)):
        member = roster.members[member_id]
        member.is_new = False
        member.knows_its_id = True
        token = roster.take_join_token(member)
        if token is not None:
            step.reply(token, generation_answer(roster, member))
        roster.watch(member, step.now)


def generation_answer(roster: Roster, member: Member) -> JoinAnswer:
    """The round as one of its members hears of it: the leader gets everybody's subscription."""
    leads = member.member_id == roster.leader
    return JoinAnswer(
        membership=Membership(member.member_id, roster.generation),
        protocol_type=roster.protocol_type,
        protocol=roster.protocol,
        leader=roster.leader,
        members=everybody(roster) if leads else (),
    )


def everybody(roster: Roster) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(
            member_id=member.member_id, instance_id=member.instance_id, metadata=member.metadata(roster.protocol)
        )
        for member in in_order(roster)
    )


def take_out(roster: Roster, step: Step, member: Member, *, what: str, cause: str) -> None:
    """Remove a member, and trace why. Its parked requests are answered UNKNOWN_MEMBER_ID."""
    step.trace(
        what,
        member=member.member_id,
        generation=roster.generation,
        cause=cause,
        culprit=member.member_id,
        client_id=member.client_id,
    )
    answer_parked(roster, step, member, ErrorCode.UNKNOWN_MEMBER_ID)
    roster.remove(member)


def answer_parked(roster: Roster, step: Step, member: Member, error: ErrorCode) -> None:
    """Answer this member's parked requests with an error."""
    token = roster.take_join_token(member)
    if token is not None:
        step.reply(token, refused_join(member, error))
    token = roster.take_sync_token(member)
    if token is not None:
        step.reply(token, SyncAnswer(error=error))


def refused_join(member: Member, error: ErrorCode) -> JoinAnswer:
    """A removed member must forget its id; in all other cases it keeps it."""
    member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
    return JoinAnswer(error=error, membership=Membership(member_id))


def member_gone(roster: Roster, step: Step, *, cause: str, culprit: str) -> None:
    """After a removal: start a new round, or wait for one member less."""
    if roster.state in (State.STABLE, State.COMPLETING):
        start_round(roster, step, cause=cause, culprit=culprit)
    maybe_complete_join(roster, step)


def park(roster: Roster, step: Step, member: Member, token: Token) -> None:
    """Let a client wait in the join barrier. One per member: an earlier one is told to try again."""
    answer_parked(roster, step, member, ErrorCode.REBALANCE_IN_PROGRESS)
    roster.park_join(member, token)
    roster.watch(member, step.now)


def in_order(roster: Roster) -> list[Member]:
    return [roster.members[member_id] for member_id in sorted(roster.members)]
