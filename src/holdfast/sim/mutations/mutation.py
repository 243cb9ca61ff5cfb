"""What a mutation is, and how it reaches the machines of a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.group.member import Effect as MemberEffect
from holdfast.group.member import Event as MemberEvent
from holdfast.group.member import MemberState, Send
from holdfast.group.messages import JoinRequest
from holdfast.model import Subscription
from holdfast.model.consumer_protocol import decode_subscription, encode_subscription
from holdfast.sim.config import WorldConfig
from holdfast.sim.grounds import PROVING_GROUND
from holdfast.sim.member import SimMember
from holdfast.sim.world import World

Break = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fault, and which invariants may be the first to show it."""

    name: str
    edge: str
    """Its line in docs/edge-cases.md and the ticket it comes from; "rule" where the rule is our own."""
    caught_by: tuple[str, ...]
    break_it: Break
    world: WorldConfig = PROVING_GROUND

    @property
    def story(self) -> str:
        return (self.break_it.__doc__ or "").strip()


def every_member(damage: Callable[[SimMember], None]) -> Break:
    """Damage each process before it starts."""

    def break_it(world: World) -> None:
        world.on_start = damage

    break_it.__doc__ = damage.__doc__
    return break_it


def before_each_step(member: SimMember, change: Callable[[MemberState, MemberEvent], MemberState]) -> None:
    """Keep the machine sound, but change its state before each event."""
    sound = member.step

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        return sound(change(state, event), event, now)

    member.step = step


def change_joins(member: SimMember, change: Callable[[Subscription], Subscription]) -> None:
    """Keep the machine sound, but change the subscriptions in its joins."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if not isinstance(effect, Send) or not isinstance(effect.request, JoinRequest):
            return effect
        protocols = tuple(
            (name, encode_subscription(change(decode_subscription(data)))) for name, data in effect.request.protocols
        )
        return replace(effect, request=replace(effect.request, protocols=protocols))

    change_effects(member, effects)


def change_effects(member: SimMember, change: Callable[[MemberEffect], MemberEffect]) -> None:
    """Keep the machine sound, but change its effects on the way to the driver."""

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        after, effects = sound(state, event, now)
        return after, tuple(change(effect) for effect in effects)

    sound = member.step
    member.step = step
