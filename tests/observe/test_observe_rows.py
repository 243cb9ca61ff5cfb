"""Rows of tables: what Kafka's tool prints, and what we add behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observe_groups import member, places, snapshot

from holdfast.model import TopicPartition
from holdfast.observe.history import name
from holdfast.observe.rows import member_rows, offset_rows, state_row, table
from holdfast.observe.snapshot import PartitionOffsets, can_process, is_cooperative


def test_columns_are_those_of_kafkas_tool_with_ours_behind_them() -> None:
    group = snapshot(member("c0-1", 0, client="c0", instance="pod-0"), offsets={0: (5, 9)})

    (offsets,) = offset_rows(group)
    (members,) = member_rows(group.described)
    assert list(offsets) == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
        "INSTANCE-ID",
    ]
    assert offsets["LAG"] == 4 and offsets["INSTANCE-ID"] == "pod-0"
    assert list(members) == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert list(state_row(group)) == [
        *("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        "CAN-PROCESS",
    ]


def test_what_is_not_known_is_a_dash_so_that_a_table_can_be_split_at_blanks() -> None:
    group = snapshot(state="PreparingRebalance", protocol="", offsets={0: (5, None), 1: (None, 3)})

    header, *rows = (line.split() for line in table(offset_rows(group)))

    assert rows[0] == ["billing", "orders", "0", "5", "-", "-", "-", "-", "-", "-"]
    assert rows[1][3:6] == ["-", "3", "-"]
    assert {len(header), *map(len, rows)} == {10}


def test_a_partition_that_could_not_be_read_costs_its_own_row_only() -> None:
    group = snapshot(member("c0", 0, 1), offsets={0: (5, 9), 1: (5, None)})
    broken = TopicPartition("orders", 1)
    offsets = {**group.offsets, broken: PartitionOffsets(committed=5, problem="LEADER_NOT_AVAILABLE")}

    first, second = offset_rows(replace(group, offsets=offsets))

    assert (first["LAG"], first["PROBLEM"]) == (4, None)
    assert (second["CURRENT-OFFSET"], second["LAG"], second["PROBLEM"]) == (5, None, "LEADER_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("state", "cooperative", "expected"),
    [
        ("Stable", False, "yes"),
        ("PreparingRebalance", False, "no"),
        ("CompletingRebalance", False, "no"),
        ("PreparingRebalance", True, "what-does-not-move"),
        ("Reconciling", True, "what-does-not-move"),
        ("PreparingRebalance", None, None),
        ("Empty", True, "no"),
        ("Dead", False, "no"),
    ],
)
def test_whether_a_group_can_process_depends_on_its_state_and_its_protocol(
    state: str, cooperative: bool | None, expected: str | None
) -> None:
    assert can_process(state, cooperative=cooperative) == expected


def test_in_the_middle_of_a_round_a_claim_gives_a_cooperative_group_away() -> None:
    """The coordinator names no assignor while members join: without it, every group looked like an eager one."""
    unclaimed = member("c0")
    assert unclaimed.subscription is not None
    claiming = replace(unclaimed, subscription=replace(unclaimed.subscription, owned=places(0)))

    assert is_cooperative(snapshot(claiming, state="PreparingRebalance", protocol="").described) is True
    assert is_cooperative(snapshot(unclaimed, state="PreparingRebalance", protocol="").described) is None
    assert state_row(snapshot(unclaimed, state="PreparingRebalance", protocol=""))["CAN-PROCESS"] is None
    assert is_cooperative(snapshot(state="Empty", protocol="").described) is None
    assert is_cooperative(snapshot(unclaimed, protocol="range").described) is False


def test_a_verbose_member_has_its_assignment_as_kafka_writes_it() -> None:
    (row,) = member_rows(snapshot(member("c0", 2, 0, rack="a")).described, verbose=True)

    assert (row["CURRENT-ASSIGNMENT"], row["TARGET-ASSIGNMENT"], row["RACK"]) == ("orders:0,2", None, "a")


def test_the_generation_is_the_one_after_the_newest_claim_and_the_epoch_in_the_new_protocol() -> None:
    assert snapshot(member("a", held_in=6), member("b", held_in=4)).described.generation == 7
    assert snapshot(member("a")).described.generation == -1
    assert snapshot(member("a"), kind="consumer", epoch=3).described.generation == 3


def test_a_name_that_a_stranger_chose_does_not_steer_the_terminal() -> None:
    """A client id with an escape sequence would clear an operator's screen; one with a line feed, add a row."""
    hostile = member("\x1b[2Jc0\nbilling  orders  1", 0, client="\x9b31m\r", host="/10.0.0.1\u2028")
    lines = table(offset_rows(snapshot(hostile, offsets={0: (5, 9)})))
    assert len(lines) == 2
    assert all(line.isprintable() for line in (*lines, name(hostile)))
