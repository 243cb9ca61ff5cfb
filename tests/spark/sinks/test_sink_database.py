"""The ledger table: offsets and output in one transaction, of two writers one loses. SQLite and a real PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import Postgres

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.exactly_once import (
    LedgerTable,
    all_or_nothing,
    apply_once,
    exactly_once,
    number_as_range,
    still_new,
)
from patience import PATIENCE_S

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
Connect = Callable[[], Any]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    if request.param == "sqlite":
        yield lambda: sqlite3.connect(tmp_path / "db", timeout=30)
        return
    dsn = request.getfixturevalue("postgres").dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall():
            connection.execute(f"drop table {name}")
    yield lambda: psycopg.connect(dsn)


def mark(connection: Any) -> str:
    return "?" if isinstance(connection, sqlite3.Connection) else "%s"


def make_output(connect: Connect) -> None:
    connection = connect()
    connection.cursor().execute("create table output (topic text, partition_id integer, offset_id integer)")
    connection.commit()
    connection.close()


def add(connection: Any, new: Any) -> None:
    sql = f"insert into output values ({mark(connection)}, {mark(connection)}, {mark(connection)})"
    for p, part in new.items():
        for offset in range(part.start, part.end):
            connection.cursor().execute(sql, (p.topic, p.partition, offset))


def output(connect: Connect) -> list[tuple[int, int]]:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("select partition_id, offset_id from output order by partition_id, offset_id")
    found = [tuple(row) for row in cursor.fetchall()]
    connection.close()
    return found


def positions(connect: Connect, *wanted: TopicPartition) -> dict[TopicPartition, int]:
    connection = connect()
    found = LedgerTable(connection, "holdfast_ledger", "s").positions(wanted)
    connection.close()
    return found


def test_what_is_new_of_a_range_lies_behind_the_ledger() -> None:
    new = still_new({P0: (0, 10), P1: (0, 10)}, {P0: 4, P1: 10})
    assert {p: (part.start, part.end) for p, part in new.items()} == {P0: (4, 10)}


def test_a_batch_goes_in_once_also_when_it_is_cut_differently(connect: Connect) -> None:
    make_output(connect)
    for ranges in ({P0: (0, 5), P1: (0, 3)}, {P0: (0, 5), P1: (0, 3)}, {P0: (0, 8)}, {P1: (2, 4)}, {P0: (3, 6)}):
        apply_once(connect, "s", "holdfast_ledger", ranges, add)
    assert output(connect) == [(0, n) for n in range(8)] + [(1, n) for n in range(4)]
    assert positions(connect, P0, P1) == {P0: 8, P1: 4}


def test_output_that_fails_leaves_the_ledger_where_it_was(connect: Connect) -> None:
    make_output(connect)
    apply_once(connect, "s", "holdfast_ledger", {P0: (0, 2)}, add)

    def failing(connection: Any, new: Any) -> None:
        add(connection, new)
        raise RuntimeError("the output fails")

    with pytest.raises(RuntimeError, match="the output fails"):
        apply_once(connect, "s", "holdfast_ledger", {P0: (2, 4), P1: (0, 1)}, failing)
    assert output(connect) == [(0, 0), (0, 1)]
    assert positions(connect, P0, P1) == {P0: 2}


def test_two_sinks_in_one_database_have_a_ledger_each(connect: Connect) -> None:
    make_output(connect)
    for sink in ("a", "b"):
        apply_once(connect, sink, "holdfast_ledger", {P0: (0, 2)}, add)
    assert output(connect) == [(0, 0), (0, 0), (0, 1), (0, 1)]


def test_a_zombie_in_the_middle_of_its_transaction_makes_the_other_wait_and_then_find_its_rows(
    connect: Connect,
) -> None:
    """A holds the ledger's row and has not committed; B wants an overlapping range, waits, and adds what is left."""
    make_output(connect)
    apply_once(connect, "s", "holdfast_ledger", {P0: (0, 1)}, add)
    holds, go_on = threading.Event(), threading.Event()

    def slowly(connection: Any, new: Any) -> None:
        add(connection, new)
        holds.set()
        assert go_on.wait(30)

    with ThreadPoolExecutor(2) as pool:
        a = pool.submit(apply_once, connect, "s", "holdfast_ledger", {P0: (1, 5)}, slowly)
        assert holds.wait(30)
        b = pool.submit(apply_once, connect, "s", "holdfast_ledger", {P0: (1, 9)}, add)
        go_on.set()
        a.result(PATIENCE_S)
        b.result(PATIENCE_S)
    assert output(connect) == [(0, n) for n in range(9)]


def test_many_writers_of_the_same_ranges_leave_each_row_once(connect: Connect) -> None:
    make_output(connect)
    ranges = [{P0: (0, end), P1: (0, 21 - end)} for end in range(1, 21)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda wanted: apply_once(connect, "s", "holdfast_ledger", wanted, add), ranges))
    assert output(connect) == [(0, n) for n in range(20)] + [(1, n) for n in range(20)]


def apply_whole(connect: Connect, query: str, batch_id: int, ranges: Any, write: Any) -> bool:
    """As `by="batch"` does it."""
    key = number_as_range(query, batch_id)
    return apply_once(
        connect,
        "s",
        "holdfast_ledger",
        {**ranges, **key},
        lambda c, _: write(c),
        choose=lambda _, positions: all_or_nothing(ranges, key, positions),
    )


def test_a_batch_without_data_is_applied_once_by_query_and_batch(connect: Connect) -> None:
    """Symptom: ten windows that a watermark closed were never written, and their state was gone. Cause: Spark closes
    them in a batch that reads nothing, and a batch without ranges was taken for one that is in already. Rule: where
    nothing is read, the query's own count of its batches says what is in."""
    written: list[str] = []
    data = {P0: (0, 5)}
    assert apply_whole(connect, "q", 0, data, lambda _: written.append("0"))
    assert apply_whole(connect, "q", 1, {}, lambda _: written.append("1"))
    assert not apply_whole(connect, "q", 1, {}, lambda _: written.append("1 again"))
    assert not apply_whole(connect, "q", 0, data, lambda _: written.append("0 again"))
    assert apply_whole(connect, "another", 1, {}, lambda _: written.append("another's 1"))
    assert apply_whole(connect, "q", 2, {P0: (5, 6)}, lambda _: written.append("2"))
    assert written == ["0", "1", "another's 1", "2"]


def test_a_batch_that_was_written_with_data_is_not_written_again_without_it(connect: Connect) -> None:
    """A replayed batch may have lost its ranges to others: then it reads nothing, and is still the same batch."""
    assert apply_whole(connect, "q", 3, {P0: (0, 5)}, lambda _: None)
    assert not apply_whole(connect, "q", 3, {}, lambda _: pytest.fail("written twice"))


def test_output_of_a_batch_without_data_that_fails_is_not_counted(connect: Connect) -> None:
    def failing(_: Any) -> None:
        raise RuntimeError("the output fails")

    with pytest.raises(RuntimeError, match="the output fails"):
        apply_whole(connect, "q", 1, {}, failing)
    written: list[int] = []
    assert apply_whole(connect, "q", 1, {}, lambda _: written.append(1))
    assert written == [1]


def test_of_a_batch_that_can_not_be_taken_apart_new_ranges_decide_whatever_its_number(connect: Connect) -> None:
    """An older checkpoint was put back: its batches have numbers that are in, and read what is not."""
    assert apply_whole(connect, "q", 7, {P0: (0, 5)}, lambda _: None)
    assert apply_whole(connect, "q", 4, {P0: (5, 9)}, lambda _: None)
    assert not apply_whole(connect, "q", 7, {}, lambda _: pytest.fail("its number went back"))
    with pytest.raises(HoldfastError, match="BATCH_PARTLY_WRITTEN"):
        apply_whole(connect, "q", 8, {P0: (5, 9), P1: (0, 1)}, lambda _: None)


def test_of_a_batch_that_is_partly_written_each_part_is_told_and_how_to_get_out(connect: Connect) -> None:
    """Symptom: "Another application has written orders-0 of this batch meanwhile. Restart the query". It had written a
    part of orders-0, and where it had died before it told the group, each restart ended in the same way."""
    assert apply_whole(connect, "other", 1, {P0: (0, 3)}, lambda _: None)
    with pytest.raises(HoldfastError) as raised:
        apply_whole(connect, "q", 8, {P0: (0, 9), P1: (0, 1)}, lambda _: None)
    assert raised.value.what == (
        "The sink has a part of this batch, written in other batches: orders-0 before 3. It lacks orders-0 [3, 9), "
        "orders-1 [0, 1); nothing was written now."
    )
    assert "`holdfast groups reset-offsets GROUP --topic orders:0 --to-offset 3 --execute`" in raised.value.do
    assert positions(connect, P0, P1) == {P0: 3}


def test_a_connection_that_commits_by_itself_is_refused(connect: Connect, tmp_path: Path) -> None:
    connection = connect()
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    else:
        connection.autocommit = True
    with pytest.raises(HoldfastError, match="CONNECTION_AUTOCOMMITS"):
        apply_once(lambda: connection, "s", "holdfast_ledger", {P0: (0, 2)}, lambda c, new: None)


def test_names_that_can_not_be_meant_are_refused() -> None:
    def nothing(*_: object) -> None: ...

    with pytest.raises(HoldfastError, match="SINK_NAME_MISSING"):
        exactly_once(nothing, nothing, sink="")
    with pytest.raises(HoldfastError, match="TABLE_NAME_INVALID"):
        exactly_once(nothing, nothing, sink="s", table="x; drop table y")
    with pytest.raises(HoldfastError, match="INVALID_OPTION"):
        exactly_once(nothing, nothing, sink="s", by="luck")  # type: ignore[arg-type]
