"""A program's own assignor beside our notes, and groups in which its versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.assign.filled import filled
from holdfast.group.leader import LeaderPlan, plan
from holdfast.group.short_notes import read_leader_note, without_note
from holdfast.group.user_data import MemberNote, attach_note, read_member_note
from holdfast.model import (
    Assignment,
    ClusterView,
    HoldfastError,
    JoinedMember,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    TopicView,
)
from holdfast.model.consumer_protocol import decode_assignment, encode_subscription

FOUR = ClusterView({"orders": TopicView(4)})


@dataclass
class Dealer:
    """Deals partitions out in turn, and remembers what it was shown."""

    version: int = 0
    says: bytes | None = None
    name: str = "dealer"
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.COOPERATIVE,)
    shown: dict[str, bytes | None] = field(default_factory=dict)
    asked_for: list[int] = field(default_factory=list)

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        self.shown = {name: one.user_data for name, one in members.items()}
        names = sorted(members)
        return {
            name: Assignment(
                partitions=frozenset(TopicPartition("orders", p) for p in range(4) if p % len(names) == at),
                user_data=self.says,
            )
            for at, name in enumerate(names)
        }


class Remembers(Dealer):
    """One that has kept its older rules."""

    def at_version(self, version: int) -> Dealer:
        self.asked_for.append(version)
        return Dealer(version, self.says)


def joined(name: str, own: bytes | None, version: int = 0) -> JoinedMember:
    note = MemberNote(version=version, assignors=("dealer",))
    subscription = Subscription(topics=("orders",), user_data=attach_note(own, note))
    return JoinedMember(member_id=name, metadata=encode_subscription(subscription))


def said_to(planned: LeaderPlan, member: str) -> bytes | None:
    return decode_assignment(planned.assignments[member]).user_data


@pytest.mark.parametrize("own", [None, b"", b"1000", b"50", b"ends like ours hdft"])
def test_an_assignor_is_shown_what_it_said_and_nothing_of_ours(own: bytes | None) -> None:
    """Symptom: an assignor whose user data had four bytes was shown them with our note behind, and one without user
    data was shown a note. `int(user_data)` raised, and the group had no plan. Cause: four bytes were taken for
    cooperative-sticky's generation. Rule: an assignor's bytes come back as they were."""
    dealer = Dealer()
    plan(filled(dealer), FOUR, [joined("a", own), joined("b", own)])
    assert dealer.shown == {"a": own, "b": own}


@pytest.mark.parametrize("says", [None, b"", b"standby: 3"])
def test_what_an_assignor_says_to_a_member_and_our_note_both_arrive(says: bytes | None) -> None:
    """Symptom: `Assignment.user_data` never reached `on_assignment`. Cause: our note took its place."""
    planned = plan(filled(Dealer(says=says)), FOUR, [joined("a", b"x"), joined("b", None)], token="t")
    for member in "ab":
        note = read_leader_note(said_to(planned, member))
        assert note is not None and note.token == "t" and note.all_read
        assert without_note(said_to(planned, member)) == says


def test_user_data_of_its_own_costs_a_group_no_note() -> None:
    """Members of such a group were not poked, handed over no positions and drained by leaving."""
    note = MemberNote(draining=True, version=3)
    assert read_member_note(attach_note(b"weight 7", note)) == note


def test_the_leader_plans_by_the_oldest_version_that_all_have() -> None:
    dealer = Remembers(version=3)
    planned = plan(filled(dealer), FOUR, [joined("a", None, 3), joined("b", None, 2), joined("c", None, 3)])
    assert dealer.asked_for == [2]
    assert planned.newer == {}


def test_an_assignor_that_kept_no_older_rules_plans_by_its_own() -> None:
    dealer = Dealer(version=3)
    plan(filled(dealer), FOUR, [joined("a", None, 3), joined("b", None, 2)])
    assert set(dealer.shown) == {"a", "b"}


def test_a_leader_of_an_older_version_says_who_is_newer() -> None:
    planned = plan(filled(Dealer(version=1)), FOUR, [joined("a", None, 1), joined("b", None, 2)])
    assert planned.newer == {"b": 2}


@pytest.mark.parametrize("version", ["2", -1, 2**31, True, 1.5])
def test_a_version_that_is_no_number_is_refused(version: Any) -> None:
    with pytest.raises(HoldfastError, match="INVALID_ASSIGNOR"):
        filled(Dealer(version=version))
