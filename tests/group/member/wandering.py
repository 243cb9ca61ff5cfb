"""Members explored through everything that can happen to them, to learn which transitions there are.

    taken = explore(steps=60_000, seed=1)       # {(phase, event type, next phase): how often}

The driver is lawful: it answers only what was asked for, and each thing once. The coordinator, the leader and the
application are not: they answer anything at any time, hang, leave and come back. A state is a value, so the search can
go on from any situation that it has seen: it prefers those it has tried least, and in the end has been everywhere.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

from driven import PlainAssignor, tps

from holdfast.group import member as mb
from holdfast.group.member import table
from holdfast.group.member.adapting import UPGRADE_REASON
from holdfast.group.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    OffsetEntry,
    SyncAnswer,
    SyncRequest,
)
from holdfast.group.user_data import Endpoint, LeaderNote, encode_leader_note
from holdfast.model import (
    Assignment,
    ClusterView,
    ErrorCode,
    HoldfastError,
    JoinedMember,
    Membership,
    RebalanceProtocol,
    TopicView,
)
from holdfast.model.consumer_protocol import encode_assignment

Transition = tuple[mb.Phase, type, mb.Phase]
Situation = tuple[object, ...]

TOPICS = ("orders", "clicks")
REFUSALS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
PAUSES_MS = (0.0, 0.0, 1.0, 10.0, 50.0, 300.0, 1_200.0, 5_000.0, 20_000.0)
CALM = 0.7
"""How likely it is that a request is answered well."""

BROKEN = HoldfastError("BROKEN", "it does not work.", "Nothing.")


def explore(*, steps: int, seed: int) -> Counter[Transition]:
    """How often each transition was taken; staying where one is does not count."""
    chance = random.Random(seed)
    taken: Counter[Transition] = Counter()
    begun = [Life(chance, config) for config in configs()]
    known: dict[Situation, Life] = {life.situation: life for life in begun}
    by_phase: dict[mb.Phase, list[Situation]] = {mb.Phase.UNSUBSCRIBED: list(known)}
    tried: Counter[Situation] = Counter()
    for _ in range(steps // STRETCH):
        places = by_phase[chance.choice(list(by_phase))]
        place = min(chance.choices(places, k=4), key=tried.__getitem__)
        tried[place] += 1
        life = copy(known[place])
        life.asked = dict(life.asked)
        for _ in range(STRETCH):
            transition = life.live()
            if transition is not None:
                taken[transition] += 1
            if life.situation not in known and life.state.phase is not mb.Phase.CLOSED:
                known[life.situation] = copy(life)
                known[life.situation].asked = dict(life.asked)
                by_phase.setdefault(life.state.phase, []).append(life.situation)
    return taken


STRETCH = 4
"""How many things happen in a row before the search goes on from somewhere else."""


def configs() -> list[mb.MemberConfig]:
    """The differences between members that matter to their machine."""
    return [
        mb.MemberConfig(
            group="g",
            assignors=(PlainAssignor(),),
            eager_assignors=(PlainAssignor("range", (RebalanceProtocol.EAGER,)), PlainAssignor()) if adapts else (),
            protocol=protocol,
            cooperative_after_ms=1_000.0,
            name="m",
            instance_id=instance_id,
            max_poll_interval_ms=20_000,
            responsive_ms=responsive_ms,
            endpoint=Endpoint("127.0.0.1", 1),
        )
        for protocol, adapts in (
            (RebalanceProtocol.COOPERATIVE, False),
            (RebalanceProtocol.COOPERATIVE, True),
            (RebalanceProtocol.EAGER, False),
        )
        for instance_id in (None, "static")
        for responsive_ms in (None, 1_000.0)
    ]


class Life:
    """One member, and what its driver owes it."""

    def __init__(self, chance: random.Random, config: mb.MemberConfig) -> None:
        self.chance = chance
        self.now = 0.0
        self.generation = self.ids = 0
        self.asked: dict[int, Any] = {}
        """Requests, plans and notifications that nobody has answered yet, by serial."""
        self.state = mb.MemberState(config=config)
        self.taken: Transition | None = None

    @property
    def situation(self) -> Situation:
        """What tells one state from another, as far as it matters for where it can lead."""
        state = self.state
        return (
            state.config.instance_id,
            state.config.protocol,
            state.phase,
            state.membership.known,
            state.membership.joined,
            bool(state.owned),
            state.lost,
            state.requests.pending is not None,
            state.rejoin is not None,
            state.trouble.tries > 1,
            bool(state.planning.failed),
            state.leaving.failed,
            state.leaving.after_round,
            bool(state.topics),
            state.draining is not None,
            state.round.drains,
            state.leaving.closing is not None,
            state.drain.aside,
            state.adapting.eager,
            state.round.reason == UPGRADE_REASON,
            state.adapting.upgrade_at is not None and state.round.leads,
        )

    def live(self) -> Transition | None:
        """One thing happens."""
        self.taken = None
        self.now += self.chance.choice(PAUSES_MS)
        if self.chance.random() < 0.5 and self.asked:
            self.answer(self.chance.choice(list(self.asked)))
        else:
            self.happen()
        return self.taken

    def feed(self, event: mb.Event) -> None:
        before = self.state.phase
        kind = table.kind_of(self.state, event)
        self.state, effects = mb.step(self.state, event, self.now)
        if self.state.phase is not before:
            self.taken = (before, kind, self.state.phase)
        for effect in effects:
            if isinstance(effect, mb.Send | mb.Plan | mb.Notify):
                self.asked[effect.serial] = effect

    # What the driver answers

    def answer(self, serial: int) -> None:
        effect = self.asked.pop(serial)
        match effect:
            case mb.Plan():
                self.feed(self.plan(effect))
            case mb.Notify():
                owned = self.state.owned
                self.feed(mb.Notified(serial, {p: OffsetEntry(7) for p in owned if self.chance.random() < 0.5}))
            case mb.Send() if self.chance.random() < 0.1:
                code = self.chance.choice((None, *REFUSALS))
                self.feed(mb.RequestFailed(serial, "cut", code, self.chance.choice((None, BROKEN))))
            case mb.Send():
                self.feed(self.reply(serial, effect.request))

    def plan(self, effect: mb.Plan) -> mb.Event:
        if self.chance.random() < 0.3:
            kept = {each.member_id: b"" for each in effect.members}
            if self.chance.random() < 0.5:  # then the driver goes on trying, under the same serial
                self.asked[effect.serial] = effect
                return mb.PlanFailed(effect.serial, BROKEN)
            return mb.PlanFailed(effect.serial, BROKEN, kept)
        return mb.Planned(
            effect.serial,
            {each.member_id: b"" for each in effect.members},
            {"orders": 2},
            self.chance.choice((frozenset(), frozenset({"cooperative-sticky"}))),
            withheld=self.chance.random() < 0.3,
        )

    def reply(self, serial: int, request: object) -> mb.Event:
        error = ErrorCode.NONE if self.chance.random() < CALM else self.chance.choice(REFUSALS)
        match request:
            case JoinRequest():
                return mb.JoinAnswered(serial, self.join_answer(request, error))
            case SyncRequest():
                return mb.SyncAnswered(serial, SyncAnswer(error=error, assignment=self.assignment()))
            case HeartbeatRequest():
                return mb.HeartbeatAnswered(serial, HeartbeatAnswer(error=self.heartbeat_error(error)))
            case LeaveRequest():
                return mb.LeaveAnswered(serial, LeaveAnswer(error=error))
        raise AssertionError(request)

    def heartbeat_error(self, error: ErrorCode) -> ErrorCode:
        return ErrorCode.REBALANCE_IN_PROGRESS if self.chance.random() < 0.2 else error

    def join_answer(self, request: JoinRequest, error: ErrorCode) -> JoinAnswer:
        chance = self.chance
        if not request.membership.known and request.instance_id is None and chance.random() < 0.5:
            self.ids += 1
            return JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, membership=Membership(f"m-{self.ids}"))
        if error is not ErrorCode.NONE:
            refused = chance.choice((error, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.MEMBER_ID_REQUIRED))
            return JoinAnswer(error=refused, membership=Membership("m-again"))
        self.generation += chance.choice((1, 1, 1, 2, 3))
        me = request.membership.member_id or "m-0"
        leads = chance.random() < 0.5
        names = [name for name, _ in request.protocols]
        return JoinAnswer(
            membership=Membership(me, self.generation),
            protocol=chance.choice((*names, names[0], "strange") if chance.random() < 0.2 else names),
            leader=me if leads else "other",
            skip_assignment=chance.random() < 0.2,
            members=(JoinedMember(member_id=me), JoinedMember(member_id="other")) if leads else (),
        )

    def assignment(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.05:
            return b"\x00"
        given = frozenset(p for p in tps("orders-0", "orders-1", "clicks-0") if chance.random() < 0.5)
        if chance.random() < 0.2:
            given |= tps("unknown-0")
        note = LeaderNote(
            withheld=chance.random() < 0.3,
            knows_drain=chance.random() < 0.5,
            peers=(Endpoint("127.0.0.1", 2),),
            passed_on=chance.random() < 0.5,
            token="t",
            all_read=chance.random() < 0.5,
            planned_for=chance.choice((None, {"orders": 2}, {"orders": 1})),
        )
        return encode_assignment(
            Assignment(partitions=given, user_data=encode_leader_note(note) if chance.random() < 0.6 else None)
        )

    # What happens by itself

    def happen(self) -> None:
        """Mostly what is usual in a group; now and then that somebody wants something."""
        usual: tuple[Callable[[], None], ...] = (self.tick, self.tick, self.tick, self.poll, self.poll, self.commit)
        wishes: tuple[Callable[[], None], ...] = (
            self.subscribe,
            self.metadata,
            self.poke,
            lambda: self.feed(mb.GroupSized(self.chance.choice((2, 400)))),
            lambda: self.feed(mb.Enforce("wanted")),
            lambda: self.feed(mb.Unsubscribe()),
            lambda: self.feed(mb.Drain("deploy")),
            lambda: self.feed(mb.Close("end")),
        )
        self.chance.choice(wishes if self.chance.random() < 0.3 else usual)()

    def tick(self) -> None:
        deadline = mb.next_deadline(self.state)
        if deadline is not None:
            self.now = max(self.now, deadline)
        self.feed(mb.Tick())

    def poll(self) -> None:
        self.feed(mb.Polled())

    def commit(self) -> None:
        code = ErrorCode.NONE if self.chance.random() < CALM else self.chance.choice(REFUSALS)
        self.feed(mb.CommitAnswered(self.state.membership, code))

    def subscribe(self) -> None:
        runs = self.chance.choice((None, "", "range"))
        if self.state.phase is not mb.Phase.CLOSED:
            self.feed(mb.Subscribe(self.chance.choice((frozenset(TOPICS), frozenset({"orders"}))), runs))

    def metadata(self) -> None:
        counts = {topic: self.chance.choice((0, 1, 2, 3)) for topic in TOPICS}
        views = {topic: TopicView(partitions=count) for topic, count in counts.items() if count}
        self.feed(mb.MetadataChanged(ClusterView(topics=views)))

    def poke(self) -> None:
        self.feed(mb.Poked(self.chance.choice(("t", "t k", "t a", "no"))))
