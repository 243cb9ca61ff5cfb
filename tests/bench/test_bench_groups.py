"""`holdfast bench groups`: how it counts; and, at night, groups of 400 and of 1,000 members on both brokers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
import typer

from holdfast.bench import groups_members
from holdfast.bench.groups import BROKERS, PER_MEMBER, groups, judged, measure, verdict
from holdfast.bench.groups_members import Members, NotSettled
from patience import PATIENCE_S

LIMIT_S = 600.0
"""For a group to settle on a machine that does other things too; it takes ten to forty seconds."""


def members(partitions: int = 2) -> Members:
    return Members("holdfast", "", "g", "t", partitions)


def said(who: str, what: str, *partitions: int, at: float) -> dict[str, object]:
    return {"t": at, "m": who, "e": what, "p": list(partitions)}


def test_a_group_is_whole_when_every_partition_has_one_owner() -> None:
    group = members()
    group.take(said("a", "assigned", 0, at=1.0))
    assert not group.whole
    group.take(said("b", "assigned", 1, at=2.0))
    assert group.whole
    group.take(said("b", "assigned", 0, at=3.0))
    assert not group.whole, "two owners are one too many"
    group.take(said("a", "lost", 0, at=4.0))
    assert group.whole
    assert group.last_change == 4.0
    assert group.sharers == 1


def test_a_pause_is_from_the_revoke_to_the_next_assign() -> None:
    group = members()
    group.take(said("a", "assigned", 0, 1, at=1.0))
    group.take(said("a", "revoked", 1, at=100.0))
    group.take(said("b", "assigned", 1, at=130.5))
    assert group.pauses == {1: 30.5}


def test_our_rows_are_judged_beside_the_peers_of_the_same_broker() -> None:
    rows = [
        {"broker": "kafka", "kind": "confluent", "settled_s": 10.0, "pause_median_ms": 3_000.0},
        {"broker": "kafka", "kind": "holdfast", "settled_s": 9.0, "pause_median_ms": 200.0},
        {"broker": "embedded", "kind": "confluent", "settled_s": 10.0, "pause_median_ms": 3_000.0},
        {"broker": "embedded", "kind": "holdfast", "settled_s": 12.0, "pause_median_ms": 400.0},
    ]
    _, good, _, bad = judged(rows)
    assert good["missed"] == []
    assert (good["settled_ratio"], good["pause_ratio"]) == (0.9, 0.067)
    assert len(bad["missed"]) == 2


def test_who_has_nobody_beside_him_has_reached_nothing() -> None:
    """`--kinds holdfast` alone said "reached", though nothing was compared."""
    (alone,) = judged([{"broker": "kafka", "kind": "holdfast", "settled_s": 9.0, "pause_median_ms": None}])
    assert verdict(alone) == ""
    kinds = ("holdfast", "confluent")
    both = [{"broker": "kafka", "kind": kind, "settled_s": 9.0, "pause_median_ms": None} for kind in kinds]
    assert [verdict(row) for row in judged(both)] == ["reached", ""]
    (failed,) = judged([{"broker": "kafka", "kind": "holdfast", "failed": "too slow"}])
    assert verdict(failed) == "too slow"


def test_of_several_peers_the_quickest_counts() -> None:
    rows = [
        {"broker": "kafka", "kind": "confluent", "settled_s": 10.0, "pause_median_ms": 3_000.0},
        {"broker": "kafka", "kind": "java", "settled_s": 20.0, "pause_median_ms": 2_000.0},
        {"broker": "kafka", "kind": "holdfast", "settled_s": 9.0, "pause_median_ms": 180.0},
    ]
    ours = judged(rows)[-1]
    assert (ours["settled_ratio"], ours["pause_ratio"]) == (0.9, 0.09)


def test_who_settles_where_no_peer_does_has_not_missed_anything() -> None:
    """Symptom: 1,000 of librdkafka's members did not settle in time, and the row of ours that did said nothing."""
    rows: list[dict[str, Any]] = [
        {"broker": "kafka", "kind": "confluent", "failed": "after 150 s 1996 of 2000 partitions were owned"},
        {"broker": "kafka", "kind": "holdfast", "settled_s": 21.0, "pause_median_ms": 180.0},
    ]
    ours = judged(rows)[-1]
    assert ours["missed"] == []
    assert verdict(ours) == "settled, and no peer did"


def worker(kind: str) -> subprocess.Popen[str]:
    options = {"kind": kind, "bootstrap": "127.0.0.1:1", "group": "g", "topic": "t", "count": 1, "name": "p0"}
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.bench.groups_worker", json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["holdfast", "confluent"])
def test_a_process_of_members_ends_with_its_input(kind: str) -> None:
    """Symptom: a bench that was killed left hundreds of members behind. Rule: they end when nobody can tell them to."""
    with worker(kind) as process:
        assert process.stdin is not None and process.stdout is not None
        assert json.loads(process.stdout.readline())["e"] == "ready"
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_process_that_ended_is_noticed_before_the_limit_and_its_complaint_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: whoever lost a process of members waited for the whole limit and heard that partitions were missing."""
    group = members()
    dies = "import sys; print('{}', flush=True); sys.stderr.write('no room\\n'); sys.exit(3)"
    monkeypatch.setattr(Members, "command", lambda *_: [sys.executable, "-c", dies])
    group.start(1, 1)
    try:
        wait_for_line(group)
        with pytest.raises(NotSettled, match="1 processes ended, the first with 3; in the members' logs: no room"):
            group.settle(PATIENCE_S)
    finally:
        group.stop()


def wait_for_line(group: Members) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not group.log_lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_how_far_a_group_is_gets_told_while_it_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    group = members()
    group.progress = told.append
    group.take(said("a", "assigned", 0, at=1.0))
    group.take(said("b", "assigned", 0, at=1.0))
    monkeypatch.setattr(groups_members, "TELL_EVERY_S", 0.0)
    with pytest.raises(NotSettled, match="1 of 2 partitions were owned, 1 of them more than once"):
        group.settle(0.3)
    assert told[0] == "0 s: 1 of 2 partitions were owned, 1 of them more than once"


def test_a_form_of_output_that_it_has_not_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(typer.BadParameter, match="neither table nor json"):
        groups(output="yaml")


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.parametrize("size", [400, 1_000])
@pytest.mark.parametrize("broker", sorted(BROKERS))
def test_a_large_group_settles_and_every_partition_is_owned_once(broker: str, size: int) -> None:
    """Symptom: 400 AsyncConsumers on a real Kafka ended with an empty group and 400 errors, because its record had
    become larger than Kafka takes. Rule: a group settles whatever its size, and a join moves little and quickly."""
    row = measure(BROKERS[broker], "holdfast", members=size, processes=4, joins=1, limit_s=LIMIT_S)
    print(row)
    assert row["owned_once"]
    assert row["owners"] == size, f"{PER_MEMBER} partitions for each"
    assert row["moved"] >= 1
