"""Any interleaving of writers, compaction and cleaning, with crashes and replays: every row is in the ledger once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sink_world import ORDERS, Disk, Topic, Turn, batch, cleaning, compaction, content, offsets_in

from holdfast.spark.files.ledger import Ledger

ACTORS = ("a", "b", "compact", "clean")


def check_prefix(disk: Disk, topic: Topic) -> None:
    """What readers see at any moment: every kept row up to the chain's end, once."""
    taken = content(disk)
    expected = [row for row in topic.rows if taken.end is not None and row < taken.end]
    assert sorted(offsets_in(disk, taken)) == expected
    assert {file.name for file in taken.files} <= disk.data_files


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_two_writers_with_crashes_replays_and_upkeep_leave_every_row_exactly_once(data: st.DataObject) -> None:
    """A few short histories: every step hands over between two threads, which a busy machine makes slow."""
    play(data, most_steps=40)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_same_many_times(data: st.DataObject) -> None:
    play(data, most_steps=120)


def play(data: st.DataObject, *, most_steps: int, disk: Disk | None = None) -> None:
    turns: dict[str, Turn] = {}
    try:
        play_with(turns, data, most_steps, Disk() if disk is None else disk)
    finally:
        for turn in turns.values():  # of a history that was given up half-way: leave no thread waiting
            while not turn.done:
                turn.step("before")


def play_with(turns: dict[str, Turn], data: st.DataObject, most_steps: int, disk: Disk) -> None:
    end = data.draw(st.integers(4, 30), label="end")
    rows = data.draw(st.lists(st.integers(0, end - 1), unique=True, min_size=1).map(sorted), label="rows")
    topic = Topic(rows=rows, end=end)
    for _ in range(data.draw(st.integers(10, most_steps), label="steps")):
        who = data.draw(st.sampled_from(ACTORS))
        if who not in turns:
            turns[who] = Turn(who, action_of(data, topic, who), disk)
        # A run of steps at once: a zombie that stands still while the other goes on is the interesting case.
        for _ in range(data.draw(st.integers(1, 12))):
            if turns[who].done:
                break
            crash = data.draw(st.sampled_from([None] * 20 + ["before", "after"]))
            turns[who].step(crash)
        if turns[who].done:
            turns.pop(who).run()
        check_prefix(disk, topic)
    for who in sorted(turns):
        turns.pop(who).run()
        check_prefix(disk, topic)
    while topic.committed < topic.end:
        Turn("a", batch(topic, "a", 5, 1, replay=False), disk).run()
    Turn("compact", compaction, disk).run()
    Turn("clean", cleaning, disk).run()
    taken = content(disk)
    assert sorted(offsets_in(disk, taken)) == rows
    assert disk.data_files == {file.name for file in taken.files}


def action_of(data: st.DataObject, topic: Topic, who: str):  # type: ignore[no-untyped-def]
    if who == "compact":
        return compaction
    if who == "clean":
        return cleaning
    cut, files = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 2))
    return batch(topic, who, cut, files, replay=data.draw(st.booleans()))


def test_a_zombie_that_slept_through_compaction_and_cleaning_adds_only_what_is_new() -> None:
    """The zombie finds the number it meant to take free again, because cleaning has removed the entry that took it.

    Symptom this keeps out: its entry is created, counts for nobody, and the writer believes its rows are in.
    """
    topic, disk = Topic(rows=list(range(10)), end=10), Disk()
    zombie = Turn("zombie", batch(topic, "zombie", 6, 1, replay=False), disk)
    entry = Ledger(None, ORDERS).entry_name(1)  # type: ignore[arg-type]
    while zombie.waiting_for != ("create", entry):
        zombie.step()
    Turn("b", batch(topic, "b", 4, 1, replay=False), disk).run()
    Turn("compact", compaction, disk).run()
    Turn("clean", cleaning, disk).run()
    assert entry not in disk.files
    zombie.run()
    taken = content(disk)
    assert sorted(offsets_in(disk, taken)) == list(range(6))
    assert taken.end == 6
