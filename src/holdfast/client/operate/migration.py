"""Moving a live group from one assignor to another: how far it is, which members block it, what may be done next.

A group changes over in two rolling bounces (KIP-429). In the first every member lists both assignors, and so speaks the
eager protocol; in the second the old one is dropped. The way back is the same with the roles exchanged. A member that
skips the first bounce is refused by the coordinator, which does not say why; this module does.

What can be known. Holdfast members say in their subscription which assignors they list. Other clients don't, and the
coordinator shows a member's metadata only for the assignor in force. But it can be asked whether *all* members list an
assignor: a join that offers nothing else is refused at once, or answered with a member id, which is given back before
anything happens. A subscription that claims partitions shows that its member keeps them while it joins.

`assess` is pure; `look` asks a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.group.messages import JoinAnswer, JoinRequest, Leaver, LeaveRequest
from holdfast.group.user_data import read_member_note
from holdfast.model import NOBODY, ErrorCode, HoldfastError, Subscription
from holdfast.model.consumer_protocol import encode_subscription
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.errors import NetError
from holdfast.observe.snapshot import DescribedGroup, DescribedMember
from holdfast.wire.api import Api

EAGER = ("range", "roundrobin", "sticky")
COOPERATIVE = "cooperative-sticky"
BUILT_IN = (COOPERATIVE, *EAGER)
KEY = "partition.assignment.strategy"

EXPLAIN_S = 2.0
"""How long a refused member may look for the reason: the error must not be delayed for long."""

SETTLE_S = 10.0
LOOK_EVERY_S = 0.1
"""A group in the middle of a round shows no metadata; it is looked at again until it is through."""

PROBE_SESSION_MS = 6_000
"""The shortest session timeout that brokers accept. The id lives for milliseconds; this bounds it if we die
meanwhile."""

FIRST_VERSION_WITH_IDS = 4
"""The first version of JoinGroup that only gives a new member an id (KIP-394). An older one would really join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known about one member."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    lists: tuple[str, ...] | None = None
    """The assignors it lists, in its order; None if it does not say."""
    claims: bool = False
    """Whether it joined with partitions in hand, as only cooperative members do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    member: Standing
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Where a group stands on its way to an assignor."""

    group: str
    to: str
    state: str
    in_force: str
    stage: str
    """"empty", "before-first", "in-first", "after-first", "in-second" or "done"."""
    bounce: int
    """The bounce that was begun last: 0, 1 or 2."""
    next_bounce: int | None
    """The one that comes next; None when nothing is left to begin."""
    safe: bool
    """Whether it may begin, or, when nothing is left to begin, whether all is well."""
    do: str
    blocking: tuple[Blocking, ...] = ()
    members: tuple[Standing, ...] = ()
    unsaid: tuple[str, ...] = ()
    """Members that don't say what they list."""


def standing(member: DescribedMember) -> Standing:
    subscription = member.subscription
    note = None if subscription is None else read_member_note(subscription.user_data)
    return Standing(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.host,
        instance_id=member.instance_id,
        lists=None if note is None or not note.assignors else note.assignors,
        claims=subscription is not None and bool(subscription.owned),
    )


def assess(
    described: DescribedGroup, to: str, everybody_lists: Mapping[str, bool], *, bounce: int | None = None
) -> Assessment:
    """How far the group is. `everybody_lists` has the coordinator's answers; `bounce` asks about that one alone."""
    members = tuple(standing(member) for member in described.members)
    group = _Group(described=described, to=to, members=members, asked=everybody_lists)
    stage = group.stage()
    begun = {"empty": 0, "before-first": 0, "in-first": 1, "after-first": 1, "in-second": 2, "done": 2}[stage]
    following = bounce or {"empty": None, "before-first": 1, "in-first": 2, "after-first": 2}.get(stage)
    blocking = group.in_danger() or (group.blocking_second() if following == 2 else ())
    return Assessment(
        group=described.group,
        to=to,
        state=described.state,
        in_force=described.protocol,
        stage=stage,
        bounce=begun,
        next_bounce=following,
        safe=not blocking and not (following == 2 and stage == "in-first"),
        do=group.advice(stage, following),
        blocking=blocking,
        members=members,
        unsaid=tuple(member.member_id for member in members if member.lists is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    described: DescribedGroup
    to: str
    members: tuple[Standing, ...]
    asked: Mapping[str, bool] = field(default_factory=dict)

    def everybody(self, name: str) -> bool | None:
        """Whether all members list this assignor; None if that is not known."""
        if not self.members or name == self.described.protocol:
            return True
        if any(member.lists is not None and name not in member.lists for member in self.members):
            return False
        if name in self.asked:
            return self.asked[name]
        return True if all(member.lists is not None for member in self.members) else None

    def others(self) -> list[str]:
        """Assignors other than the target, that members list or may list."""
        named = {name for member in self.members for name in member.lists or ()}
        return sorted((named | set(BUILT_IN)) - {self.to})

    def stage(self) -> str:
        if not self.members:
            return "empty"
        if not self.everybody(self.to):
            return "in-first" if any(self.to in (member.lists or ()) for member in self.members) else "before-first"
        if any(self.everybody(name) for name in self.others()):
            return "after-first"
        return "in-second" if any(set(member.lists or ()) - {self.to} for member in self.members) else "done"

    def in_danger(self) -> tuple[Blocking, ...]:
        """Members that keep their partitions while they join, although the assignor treats these as free."""
        if self.described.protocol not in EAGER:
            return ()
        why = (
            f"joins with its partitions in hand, while {self.described.protocol} gives them to others: two members may "
            f"process one partition. Stop it, and start it with {KEY}={self.both()}"
        )
        return tuple(Blocking(member=member, why=why) for member in self.members if member.claims)

    def blocking_second(self) -> tuple[Blocking, ...]:
        """Members that have not done the first bounce."""
        if self.everybody(self.to):
            return ()
        lacking = [m for m in self.members if m.lists is not None and self.to not in m.lists]
        if lacking:
            return tuple(Blocking(member=m, why=f"lists {', '.join(m.lists or ())} and not {self.to}") for m in lacking)
        why = f"does not say what it lists; at least one member does not list {self.to}"
        return tuple(Blocking(member=m, why=why) for m in self.members if m.lists is None)

    def both(self) -> str:
        """What the first bounce sets."""
        old = self.described.protocol if self.described.protocol != self.to else ""
        if not old:
            listed = {name for member in self.members for name in member.lists or ()} - {self.to}
            old = min(listed, default="range" if self.to == COOPERATIVE else COOPERATIVE)
        # The cooperative one first, in both directions: it is chosen as long as all list it.
        return ",".join(sorted((self.to, old), key=lambda name: (name != COOPERATIVE, name)))

    def advice(self, stage: str, following: int | None) -> str:
        first = f"set {KEY}={self.both()} and restart the members one by one"
        second = f"set {KEY}={self.to} and restart the members one by one"
        by_themselves = ""
        if self.to == COOPERATIVE:
            by_themselves = (
                f" holdfast members without {KEY} need no second bounce: they become cooperative by themselves, "
                "holdfast.cooperative.after.ms (10 min) after all members can."
            )
        if stage == "empty":
            return f"Nobody is in the group: start the members with {KEY}={self.to}."
        if following == 1 or stage == "before-first":
            text = f"The first bounce may begin: {first}."
            if any(member.lists is None for member in self.members):
                text += (
                    " If it has begun already, it is not finished: some member does not list "
                    f"{self.to}. librdkafka's own members can't list both; replace them with holdfast's."
                )
            return text
        return {
            "in-first": f"The second bounce must wait: finish the first one. Where it is still to come, {first}.",
            "after-first": f"Everybody lists both. The second bounce may begin: {second}.{by_themselves}",
            "in-second": f"The second bounce is under way; where it is still to come, {second}.",
            "done": f"Nothing: the group runs {self.to}.",
        }[stage]


# -- asking a cluster


async def look(cluster: Cluster, group: str, to: str, *, probe: bool = True, bounce: int | None = None) -> Assessment:
    """Read a live group and judge it."""
    described = await settled(GroupAdmin(cluster), group)
    asked: dict[str, bool] = {}
    unsaid = any(standing(member).lists is None for member in described.members)
    if probe and described.members and unsaid:
        for name in [to, *(other for other in BUILT_IN if other != to)]:
            if name != described.protocol:
                answer = await everybody_lists(cluster, group, name)
                if answer is not None:
                    asked[name] = answer
    return assess(described, to, asked, bounce=bounce)


async def settled(admin: GroupAdmin, group: str) -> DescribedGroup:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        described = await admin.describe_group(group)
        if described.kind != "classic":
            raise HoldfastError(
                "GROUP_NEEDS_NO_MIGRATION",
                f"the group {group} speaks the new protocol (KIP-848), where the broker assigns.",
                "There is nothing to migrate.",
            )
        if described.members and described.protocol_type != "consumer":
            raise HoldfastError(
                "GROUP_IS_NO_CONSUMER_GROUP",
                f"the group {group} is of type {described.protocol_type!r}.",
                "Only consumer groups have assignors.",
            )
        if described.state in ("Stable", "Empty"):
            return described
        if loop.time() > deadline:
            raise HoldfastError(
                "GROUP_DOES_NOT_SETTLE",
                f"the group {group} has been rebalancing for {SETTLE_S:g} s (it is {described.state}).",
                "A migration begins in a quiet group: find out who does not join, then ask again.",
            )
        await asyncio.sleep(LOOK_EVERY_S)


async def everybody_lists(cluster: Cluster, group: str, name: str) -> bool | None:
    """Ask the coordinator whether all members list this assignor. No member notices. None if it can't be asked."""
    connection = await cluster.connection(await cluster.coordinator(group))
    if connection.version(Api.JOIN_GROUP) < FIRST_VERSION_WITH_IDS:
        return None
    timeout_s = cluster.config.request_timeout_s
    join = JoinRequest(
        group=group,
        membership=NOBODY,
        session_timeout_ms=PROBE_SESSION_MS,
        rebalance_timeout_ms=PROBE_SESSION_MS,
        protocols=((name, encode_subscription(Subscription(topics=()))),),
        reason="a question from holdfast preflight, not a member",
        client_id="holdfast-preflight",
    )
    answer = await connection.ask_coordinator(join, timeout_s=timeout_s)
    assert isinstance(answer, JoinAnswer)
    if answer.membership.known:  # give the id back: a round that starts meanwhile would wait for it
        leaver = Leaver(member_id=answer.membership.member_id, reason="a question from holdfast preflight")
        await connection.ask_coordinator(LeaveRequest(group=group, members=(leaver,)), timeout_s=timeout_s)
    return {ErrorCode.MEMBER_ID_REQUIRED: True, ErrorCode.INCONSISTENT_GROUP_PROTOCOL: False}.get(answer.error)


# -- why a member was refused


async def explained(error: HoldfastError, cluster: Cluster, group: str, names: Sequence[str]) -> HoldfastError:
    """The coordinator's refusal with the step that was missed; unchanged if the group can't be read."""
    try:
        async with asyncio.timeout(EXPLAIN_S):
            described = await GroupAdmin(cluster).describe_group(group)
    except (TimeoutError, NetError):
        return error
    return missed_step(error, described, names)


def missed_step(error: HoldfastError, described: DescribedGroup, names: Sequence[str]) -> HoldfastError:
    """What should have been done before a member that lists these assignors joined this group."""
    runs = described.protocol
    if not runs or runs in names or not described.members:
        return error
    theirs = _named(member.client_id or member.member_id for member in described.members)
    ours = ", ".join(names)
    what = f"the group runs {runs} ({theirs}), and this member lists only {ours}: "
    target = names[0]
    both = ",".join(sorted((runs, target), key=lambda name: (name != COOPERATIVE, name)))
    do = (
        f"Start every member with {KEY}={both} first, one by one; `holdfast preflight {described.group} --to {target}` "
        f"says when {runs} may be dropped."
    )
    if runs in EAGER and target == COOPERATIVE:
        what += "the first bounce of the migration was missed, or is not through."
    elif runs == COOPERATIVE and target in EAGER:
        what += "it is from before the migration, or on the way back the first bounce was missed."
    else:
        what += "the first bounce, in which everybody lists both, was missed."
    return HoldfastError(error.code, what, do)


def _named(names: Iterable[str], most: int = 5) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
