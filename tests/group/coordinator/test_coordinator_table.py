"""The table has no holes, its page does not drift, and the machine's one timer keeps its promises."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.group.coordinator import CoordinatorSettings, Group, State
from holdfast.group.coordinator.deadlines import SPARE_ENTRIES, Deadlines
from holdfast.group.coordinator.events import EVENTS, JoinDue, SessionExpired
from holdfast.group.coordinator.table import TABLE
from holdfast.group.table import Handled, Ignored, Illegal, holes
from holdfast.model import HoldfastError

REPOSITORY = Path(__file__).parents[3]
sys.path.insert(0, str(REPOSITORY / "tools"))

import diagrams  # noqa: E402  (a tool, not a package: its folder must be on the path first)

MACHINES = {machine.page: machine for machine in diagrams.machines()}


def test_every_pair_of_state_and_event_has_an_entry() -> None:
    assert holes(TABLE, State, EVENTS) == []
    assert len(TABLE) == len(State) * len(EVENTS)


def test_a_forgotten_pair_is_found() -> None:
    without = {pair: entry for pair, entry in TABLE.items() if pair != (State.STABLE, JoinDue)}
    assert holes(without, State, EVENTS) == ["STABLE × JoinDue"]


def test_every_entry_says_why_or_what() -> None:
    for (state, event), entry in TABLE.items():
        words = entry.note if isinstance(entry, Handled) else entry.reason
        assert words, (state, event)


def test_every_state_lists_its_replies_and_transitions() -> None:
    abouts = diagrams.abouts(State)
    assert set(abouts) == set(State)
    for state, about in abouts.items():
        assert "\nReplies: " in about, state
        assert "\nTransitions: " in about, state


def test_nothing_leads_out_of_dead() -> None:
    assert all(not (isinstance(entry := TABLE[State.DEAD, event], Handled) and entry.to) for event in EVENTS)


def test_an_illegal_event_is_the_drivers_fault_and_says_so() -> None:
    group = Group("g", CoordinatorSettings(), lambda name: name, 0.0)
    with pytest.raises(HoldfastError, match=r"ILLEGAL_GROUP_EVENT.*Empty.*no members"):
        group.happen(SessionExpired("nobody"), 0.0)


@pytest.mark.parametrize("page", sorted(MACHINES))
def test_the_page_is_what_the_table_says(page: str) -> None:
    """Fails when a table changed and its page did not: run `python tools/diagrams.py`."""
    assert (REPOSITORY / "docs" / page).read_text() == diagrams.render(MACHINES[page])


def test_the_drawing_takes_any_table(tmp_path: Path) -> None:
    class Lamp(Enum):
        OFF = "off"
        """Dark.

        Replies: none.
        Transitions: pressed -> ON.
        """
        ON = "on"

    class Pressed:
        """A finger."""

    def light(lamp: object) -> None:
        """Gives | light."""

    table = {Lamp.OFF: Handled(light, (Lamp.ON,)), Lamp.ON: Ignored("it is bright enough")}
    machine = diagrams.Machine(
        page="lamp.md",
        title="A lamp",
        opening="It shines.",
        source="lamp.py",
        states=Lamp,
        events=(Pressed,),
        entry=lambda state, event: table[state],
    )
    text = diagrams.render(machine)
    assert "    OFF --> ON: Pressed\n" in text
    assert "| off | Gives \\| light. | on |" in text
    assert "| on | *ignored*: it is bright enough |  |" in text
    assert "*illegal*: no" in diagrams.event_table(
        diagrams.Machine(
            page="", title="", opening="", source="", states=Lamp, events=(), entry=lambda *_: Illegal("no")
        ),
        Pressed,
    )


class TestDeadlines:
    def test_moving_a_deadline_later_leaves_the_next_one_exact(self) -> None:
        deadlines: Deadlines[str] = Deadlines()
        deadlines.set("a", 10.0)
        deadlines.set("b", 20.0)
        deadlines.set("a", 30.0)
        assert deadlines.next() == 20.0
        assert deadlines.pop_due(19.9) is None
        assert deadlines.pop_due(20.0) == "b"
        assert deadlines.next() == 30.0

    def test_equal_deadlines_come_up_in_the_order_of_their_keys(self) -> None:
        deadlines: Deadlines[str] = Deadlines()
        for key in ("c", "a", "b"):
            deadlines.set(key, 5.0)
        assert [deadlines.pop_due(5.0) for _ in range(4)] == ["a", "b", "c", None]

    def test_entries_of_those_gone_do_not_pile_up(self) -> None:
        """edge C66 K-8896: a crash loop sets and clears deadlines for ever; the heap stays small."""
        deadlines: Deadlines[str] = Deadlines()
        deadlines.set("stays", 1e9)
        for number in range(10_000):
            deadlines.set(f"m{number}", 1e6 + number)
            deadlines.clear(f"m{number}")
        assert len(deadlines) == 1
        assert deadlines.entries <= 2 + SPARE_ENTRIES + 1

    @given(
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 50)), st.booleans()), max_size=80
        )
    )
    def test_it_agrees_with_a_plain_dictionary(self, moves: list[tuple[str, int | None, bool]]) -> None:
        deadlines: Deadlines[str] = Deadlines()
        model: dict[str, float] = {}
        for key, at, pop in moves:
            if at is None:
                deadlines.clear(key)
                model.pop(key, None)
            else:
                deadlines.set(key, float(at))
                model[key] = float(at)
            if pop:
                due = sorted((at, key) for key, at in model.items() if at <= 25)
                expected = due[0][1] if due else None
                assert deadlines.pop_due(25.0) == expected
                model.pop(expected or "", None)
            assert deadlines.next() == (min(model.values()) if model else None)
            assert len(deadlines) == len(model)
