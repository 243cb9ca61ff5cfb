"""One event's changes: to the state itself, to fields of its parts, and of whole parts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from driven import Driven

from holdfast.group.member.parts import Round, Trouble
from holdfast.group.member.state import Parts
from holdfast.group.member.turn import Turn, changed


def test_changes_add_up_and_the_state_before_stays_as_it_was() -> None:
    before = Driven().state
    turn = Turn(before, 0.0)
    turn.set(lost=True)
    turn.set_round(reason="wanted", leads=True)
    turn.set_round(leads=False)
    turn.set_beats(next_at=3.0)
    expected = replace(
        before, lost=True, round=replace(before.round, reason="wanted"), beats=replace(before.beats, next_at=3.0)
    )
    assert turn.state == expected
    assert not before.lost
    assert before.round == Round()


def test_without_a_change_it_is_the_same_state() -> None:
    before = Driven().state
    turn = Turn(before, 0.0)
    assert turn.state is before


def test_a_part_that_is_replaced_keeps_nothing_of_what_was_changed_in_it_before() -> None:
    turn = Turn(Driven().state, 0.0)
    turn.set_trouble(tries=3, told="X")
    turn.replace(trouble=Trouble())
    turn.set_trouble(tries=1)
    assert turn.state.trouble == Trouble(tries=1)


def test_a_quick_copy_is_what_the_usual_one_would_be() -> None:
    state = Driven().stable_with("orders-0").state
    for part in fields(Parts):
        value = getattr(state, part.name)
        name = fields(value)[0].name
        quick = changed(value, {name: "changed"})
        assert quick == replace(value, **{name: "changed"})
        with pytest.raises(FrozenInstanceError):
            setattr(quick, name, "again")
    assert changed(state, {"lost": True}) == replace(state, lost=True)
