"""Who leads: the highest version of a program's own assignor (KIP-429's future work), else whoever led before."""

from __future__ import annotations

import pytest
from coordinator_world import World, subscription

from holdfast.group.user_data import MemberNote, attach_note

MINE = "mine"


def listing(version: int, own: bytes = b"weight 1") -> tuple[tuple[str, bytes], ...]:
    return ((MINE, subscription(user_data=attach_note(own, MemberNote(version=version, assignors=(MINE,))))),)


def leader_after(world: World, old: tuple[tuple[str, bytes], ...], new: tuple[tuple[str, bytes], ...]) -> str:
    """A leads alone; b joins, and a joins again."""
    first = world.joined(world.join(client_id="a", protocols=old))
    world.join(client_id="b", protocols=new)
    return world.joined(world.join(first.membership.member_id, client_id="a", protocols=old)).leader


@pytest.mark.parametrize(
    ("old", "new", "leads"),
    [
        (listing(1), listing(2), "b-2"),
        (listing(2), listing(1), "a-1"),
        (listing(2), listing(2), "a-1"),
        (listing(0), listing(1), "b-2"),
        (((MINE, subscription()),), listing(1), "b-2"),
        (((MINE, subscription()),), ((MINE, subscription(user_data=b'no note, but "av":9')),), "a-1"),
        (((MINE, subscription()),), ((MINE, b'not even a subscription "av":9'),), "a-1"),
    ],
)
def test_the_newest_version_leads_and_nobody_else_takes_the_lead(
    old: tuple[tuple[str, bytes], ...], new: tuple[tuple[str, bytes], ...], leads: str
) -> None:
    assert leader_after(World(), old, new) == leads


def test_the_version_of_an_assignor_that_the_group_did_not_choose_does_not_count() -> None:
    both = (("range", subscription()), *listing(9))
    assert leader_after(World(), (("range", subscription()),), both) == "a-1"
