"""Where a handover's milliseconds go, as told by the traces and logs of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.bench.handover_stages import STAGES, Witness, dated, shares, stages
from holdfast.model import TraceRecord
from holdfast.testing.members.log import MemberLog

EVERYTHING = {"begin_ms": 0.0, "end_ms": 1_000.0}


def step(name: str, wall: float | None, generation: int = 7, *, at: float = 0.0, **data: Any) -> TraceRecord:
    return TraceRecord(at=at, source="member", step=name, generation=generation, wall=wall, data=data)


def witness(name: str, log: str, trace: Sequence[TraceRecord] = ()) -> Witness:
    return Witness(MemberLog.of_text(name, log), trace)


OLD = witness(
    "a",
    "3 10 96\n3 11 100\n",
    [
        step("synced", 104, 6, added={}, revoked={"t": [3]}),
        step("callback-revoked", 110, 6, partitions={"t": [3]}, took_ms=4.0, listener_ms=1.0),
        step("join-sent", 112, 6),
        step("joined", 121, leads=False),
    ],
)
LEADER = witness(
    "b", "", [step("joined", 90, 6, leads=True), step("joined", 120, leads=True), step("sync-sent", 123, planned=4)]
)
NEW = witness(
    "c",
    "3 12 140\n3 13 141\n",
    [
        step("joined", 122, leads=False),
        step("synced", 128, added={"t": [3, 5]}),
        step("callback-assigned", 132, partitions={"t": [3, 5]}, took_ms=1.0),
    ],
)


def test_a_handover_is_cut_at_what_its_members_wrote_down() -> None:
    """Every stage has its own length, and together they are the silence: from the old owner's last record, at 100, to
    the new owner's first, at 140. The leader's round is the one in which the partition was given."""
    found = stages(3, old=OLD, new=NEW, everybody=[OLD, LEADER, NEW], **EVERYTHING)

    assert found == {
        "waits": 6,
        "listener": 1,
        "commit": 3,
        "rejoin": 2,
        "barrier": 8,
        "plan": 3,
        "sync": 5,
        "assign": 4,
        "first fetch": 8,
    }
    assert list(found) == list(STAGES)
    assert sum(found.values()) == 140 - 100


def test_under_a_strangers_lead_the_plan_belongs_to_the_sync() -> None:
    """A Java leader writes no trace. Its barrier is where the new owner's join was answered, at 122, and what it took
    to plan can't be told from what it took to sync."""
    found = stages(3, old=OLD, new=NEW, everybody=[OLD, witness("java", ""), NEW], **EVERYTHING)

    assert "plan" not in found
    assert (found["barrier"], found["sync"]) == (10, 6)
    assert sum(found.values()) == 40


def test_a_killed_owner_says_nothing_and_its_time_is_what_it_took_to_notice() -> None:
    killed = witness("a", "3 11 100\n")
    noticed = Witness(LEADER.log, [*LEADER.trace[:1], step("join-sent", 117, 6), *LEADER.trace[1:]])

    found = stages(3, old=killed, new=NEW, everybody=[killed, noticed, NEW], **EVERYTHING)

    assert (found["rejoin"], found["barrier"]) == (17, 3)
    assert not {"waits", "listener", "commit"} & found.keys()
    assert sum(found.values()) == 40


def test_an_older_holdfast_does_not_tell_the_listener_from_the_commit() -> None:
    trace = [r if r.step != "callback-revoked" else step(r.step, r.wall, 6, **_without(r)) for r in OLD.trace]

    found = stages(3, old=Witness(OLD.log, trace), new=NEW, everybody=[LEADER, NEW], **EVERYTHING)

    assert "listener" not in found
    assert found["commit"] == 4


def _without(record: TraceRecord) -> dict[str, Any]:
    return {key: value for key, value in record.data.items() if key != "listener_ms"}


@pytest.mark.parametrize(
    "new", [witness("c", "3 12 140\n"), Witness(NEW.log, NEW.trace[:2]), witness("c", "", NEW.trace)]
)
def test_without_the_new_owners_side_nothing_is_told(new: Witness) -> None:
    assert stages(3, old=OLD, new=new, everybody=[OLD, LEADER, new], **EVERYTHING) == {}


def test_records_without_a_calendar_are_dated_by_the_machines_clock() -> None:
    """An older holdfast writes no `wall`. A callback's `at` is when it began, and `wall` is when it had ended."""
    records = [step("synced", None, at=5.0), step("callback-assigned", None, at=6.0, took_ms=2.0), step("joined", 9.0)]

    assert [record.wall for record in dated(records, 1_000.0)] == [1_005.0, 1_008.0, 9.0]


def test_shares_are_of_all_the_time_and_medians_of_each_stage() -> None:
    told = shares([{"waits": 10.0, "barrier": 30.0}, {"barrier": 50.0}, {"waits": 0.0, "barrier": 10.0}])

    assert told == {
        "waits": {"median_ms": 5.0, "share": 0.1},
        "barrier": {"median_ms": 30.0, "share": 0.9},
    }
    assert shares([]) == {}
