"""What a standby has at hand and reads next, what its member says of it, and what its executors do. No Spark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.assign.following import ALL, Followed, decode_says, encode_told
from holdfast.assign.standby import NAME
from holdfast.group.member import OnAssignment
from holdfast.model import Assignment, HoldfastError, Membership, TopicPartition
from holdfast.spark.files.store import LocalStore
from holdfast.spark.options import parse
from holdfast.spark.standby import STALE_MS, Standby, followed_in, question
from holdfast.spark.state import standing_by
from holdfast.spark.state.chain import Chain, Entry, RunRef, beginning
from holdfast.spark.state.following import KEPT_NAMES, PIECE_BYTES, SMALL_BYTES, Book, Piece
from holdfast.spark.state.runs import NEVER, Layout
from holdfast.spark.state.storing import is_open, open_run, write_run
from holdfast.spark.state.warming import Warm

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS: list[tuple[str, pa.DataType]] = [("k", pa.string()), ("n", pa.int64())]
LAYOUT = Layout(pa.schema(COLUMNS), ("k",), ("k",))


def run(name: str, size: int = 2 * SMALL_BYTES) -> RunRef:
    return RunRef(name=name, rows=1, bytes=size, crc=0)


def tip(end: int, *runs: RunRef) -> Entry:
    return replace(beginning(0), number=end, end=end, runs=runs)


def read(pieces: list[Piece]) -> list[str]:
    return [piece.run.name for piece in pieces]


# -- KIP-429's three cases of a standby that is assigned


def test_without_any_state_of_the_partition_it_begins_from_scratch() -> None:
    book = Book()
    book.saw(P0, tip(100, run("a"), run("b")))
    assert book.followed([P0]) == {P0: Followed(100, 0)}
    pieces = book.next([P0])
    assert read(pieces) == ["a", "b"]
    book.done(pieces)
    assert book.followed([P0]) == {P0: Followed(100, ALL)}
    assert book.next([P0]) == []


def test_with_the_state_and_following_it_before_it_goes_on() -> None:
    """A round that leaves it its standby costs nothing, and what is new is all that is read."""
    book = Book()
    book.saw(P0, tip(100, run("a"), run("b")))
    book.done(book.next([P0]))
    book.saw(P0, tip(100, run("a"), run("b")))
    assert book.next([P0]) == []
    book.saw(P0, tip(180, run("a"), run("b"), run("c")))
    assert read(book.next([P0])) == ["c"]
    assert book.followed([P0]) == {P0: Followed(180, ALL * 2 // 3)}


def test_with_an_older_copy_that_was_not_followed_in_between_it_resumes_where_that_stands() -> None:
    book = Book()
    book.saw(P0, tip(100, run("a"), run("b")))
    book.done(book.next([P0]))
    book.saw(P1, tip(7, run("x")))
    book.done(book.next([P1]))  # generations go by in which it follows another partition
    assert book.followed([P1]) == {P1: Followed(7, ALL)}, "of what it does not follow it says nothing"
    book.saw(P0, tip(900, run("a"), run("merged"), run("d")))
    assert read(book.next([P0])) == ["merged", "d"]


# -- what it costs


def test_a_look_reads_so_many_bytes_and_a_large_run_piece_by_piece() -> None:
    book = Book()
    size = 2 * PIECE_BYTES + 5
    book.saw(P0, tip(100, run("large", size)))
    seen = []
    while pieces := book.next([P0]):
        assert sum(piece.end - piece.start for piece in pieces) <= PIECE_BYTES
        seen += [(piece.start, piece.end, piece.last) for piece in pieces]
        assert not book.open([P0])[P0]
        book.done(pieces)
    assert seen == [(0, PIECE_BYTES, False), (PIECE_BYTES, 2 * PIECE_BYTES, False), (2 * PIECE_BYTES, size, True)]
    assert [one.name for one in book.open([P0])[P0]] == ["large"]


def test_what_lacks_least_is_read_first_and_small_news_wait() -> None:
    book = Book()
    book.saw(P0, tip(1, run("large", PIECE_BYTES)))
    book.saw(P1, tip(1, run("small", 100)))
    pieces = book.next([P0, P1])
    assert read(pieces) == ["small", "large"]
    assert book.worth_it(pieces)
    assert not book.worth_it(pieces[:1])


def test_a_run_that_could_not_be_read_is_not_at_hand_and_names_are_forgotten_in_the_end() -> None:
    book = Book()
    book.saw(P0, tip(1, run("a")))
    book.done(book.next([P0]))
    book.lost(["a", "unknown"])
    assert book.followed([P0]) == {P0: Followed(1, 0)}
    for number in range(KEPT_NAMES + 10):
        book.done([Piece(P1, run(f"old-{number}"), 0, 9)])
    assert len(book.read_upto) <= KEPT_NAMES + 1


def test_a_state_without_rows_is_at_hand() -> None:
    book = Book()
    book.saw(P0, tip(5))
    assert book.followed([P0, P1]) == {P0: Followed(5, ALL)}


# -- the member


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def told(standby: Standby, partitions: list[TopicPartition], protocol: str = NAME) -> object:
    user_data = encode_told(partitions) if protocol == NAME else None
    return standby.round(OnAssignment(protocol, Assignment(user_data=user_data), Membership("m", 4)))


def test_what_the_leader_tells_reaches_the_driver_and_what_the_driver_has_reaches_the_leader() -> None:
    standby = Standby("g", 1, Clock())
    assert told(standby, [P0, P1]) is not None
    assert told(standby, [P0, P1]) is None, "nothing new, no record"
    assert followed_in(standby.answer(question("s", {}, None))) == {P0, P1}
    standby.answer(question("s", {P0: Followed(90, 700)}, None))
    (assignor,) = standby.assignors()
    said = decode_says(assignor.subscription_user_data(frozenset(), frozenset(), 4))
    assert said.standby == 1
    assert said.followed == {P0: Followed(90, 700), P1: Followed(-1, 0)}


def test_a_query_with_two_states_has_a_partition_at_hand_when_it_has_both() -> None:
    standby = Standby("g", 1, Clock())
    told(standby, [P0])
    standby.answer(question("counts", {P0: Followed(90, ALL)}, None))
    standby.answer(question("ids", {P0: Followed(90, 300)}, None))
    assert standby.says().followed == {P0: Followed(90, 300)}


def test_a_follower_that_says_no_more_is_not_counted() -> None:
    """Symptom it prevents: the partitions of a dead owner go to an application whose follower hung hours ago."""
    clock = Clock()
    standby = Standby("g", 1, clock)
    told(standby, [P0])
    standby.answer(question("s", {P0: Followed(90, ALL)}, None))
    clock.now += STALE_MS
    assert standby.says().followed[P0].held == ALL
    clock.now += 1
    assert standby.says().followed == {P0: Followed(-1, 0)}


def test_in_the_second_round_of_a_handover_the_new_owner_still_says_what_it_has() -> None:
    """A handover takes two rounds. With the first the follower becomes the owner to be and follows no more; if it said
    nothing in the second, the partition could go to somebody else."""
    clock = Clock()
    standby = Standby("g", 1, clock)
    told(standby, [P0])
    standby.answer(question("s", {P0: Followed(90, ALL)}, None))
    told(standby, [P1])
    standby.answer(question("s", {P1: Followed(5, 0)}, None))
    assert standby.says().followed == {P0: Followed(90, ALL), P1: Followed(5, 0)}


def test_in_a_group_with_a_member_that_has_none_it_rests_and_says_so() -> None:
    """Cooperative-sticky is listed behind it, so an application without standby is let in, and nobody follows until all
    have it."""
    standby = Standby("g", 1, Clock())
    told(standby, [P0])
    record = told(standby, [], protocol="cooperative-sticky")
    assert record is not None
    assert record.step == "standby-rests"  # type: ignore[attr-defined]
    assert followed_in(standby.answer(question("s", {}, None))) == frozenset()
    assert "rests" in str(standby.report())
    told(standby, [P0])
    standby.answer(question("s", {P0: Followed(90, 500)}, "OSError: no"))
    assert standby.report() == {"standby": {"follows": {"orders-0": 0.5}, "trouble": "OSError: no"}}
    assert Standby("g", 0, Clock()).report() == {}
    assert Standby("g", 0, Clock()).assignors() == ()


# -- options


BASE = {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "orders"}


def test_the_option_is_read_and_kept_from_the_consumer() -> None:
    found = parse(BASE | {"kafka.holdfast.standby": "2"}, streaming=True)
    assert found.sharing.standby == 2
    assert "holdfast.standby" not in found.kafka
    assert parse(BASE, streaming=True).sharing.standby == 0


@pytest.mark.parametrize(
    "more",
    [
        {"kafka.holdfast.standby": "4"},
        {"kafka.holdfast.standby": "yes"},
        {"kafka.holdfast.standby": "1", "kafka.holdfast.stateful": "alone"},
        {"kafka.holdfast.standby": "1", "kafka.partition.assignment.strategy": "range"},
        {"kafka.holdfast.standby": "1", "subscribe": "", "assign": '{"orders": [0]}'},
    ],
)
def test_what_can_have_no_followers_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(HoldfastError, match=r"kafka\.holdfast\.standby") as refused:
        parse(BASE | more, streaming=True)
    assert refused.value.code == "INVALID_OPTION"


# -- the driver's thread


class Reader:
    """The reader's end of the door: the member is told to follow orders-0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: int = 1) -> None:
        self.standby = Standby("g", wanted, Clock())
        if wanted:
            told(self.standby, [P0])
        monkeypatch.setattr(standing_by, "jvm_pid", lambda: 1)
        monkeypatch.setattr(standing_by.door, "readers", lambda _driver: [7])
        monkeypatch.setattr(standing_by.door, "ask", lambda _d, _r, asked, timeout_s: self.standby.answer(asked))


class Query:
    """The JVM's side of a query without progress."""

    def isActive(self) -> bool:
        return True

    def lastProgress(self) -> None:
        return None


class Worked(standing_by.Follower):
    """Does its executors' work in this process."""

    error: Exception | None = None
    works = 0
    settle_s = 0.0

    def _work(self, pieces: list[Piece]) -> None:
        self.works += 1
        if self.error is not None:
            raise self.error
        assert list(Warm(self._state, LAYOUT, pieces, {}).warm(LocalStore(self._state))) == []
        self.book.done(pieces)


def follower(path: Path, standby: int = 1) -> Worked:
    return Worked(Query(), None, str(path), {}, LAYOUT, standby)  # type: ignore[arg-type]


def test_the_thread_asks_looks_reads_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, thread = Reader(monkeypatch), follower(tmp_path)
    thread.try_to_look()
    assert reader.standby.says().followed == {P0: Followed(-1, 0)}
    assert thread.works == 0, "there is no state yet"
    store = LocalStore(tmp_path)
    ref = written(store, 10)
    assert Chain(store, P0).append(replace(beginning(0).next(80), runs=(ref,)))
    thread.try_to_look()
    thread.try_to_look()
    assert reader.standby.says().followed == {P0: Followed(80, ALL)}
    assert is_open(store, ref)


def test_what_has_just_moved_is_worked_on_before_anything_is_read_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer's first batch was late once; its follower's first job is suspected, which began in the same moment.
    Rule: a change of what is followed means that partitions move, and their batches come first. It looks and tells
    meanwhile."""
    reader, thread = Reader(monkeypatch), follower(tmp_path)
    thread.settle_s = 1e9
    store = LocalStore(tmp_path)
    assert Chain(store, P0).append(replace(beginning(0).next(80), runs=(written(store, 10),)))
    thread.try_to_look()
    thread.try_to_look()
    assert thread.works == 0
    assert reader.standby.says().followed == {P0: Followed(80, 0)}
    thread.settle_s = 0.0
    thread.try_to_look()
    assert thread.works == 1


def test_what_goes_wrong_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that dies in silence would look like one that has nothing to do."""
    reader, thread = Reader(monkeypatch), follower(tmp_path)
    store = LocalStore(tmp_path)
    assert Chain(store, P0).append(replace(beginning(0).next(80), runs=(written(store, 10),)))
    thread.error = OSError("disk on fire")
    thread.try_to_look()
    thread.try_to_look()
    assert reader.standby.report()["standby"]["trouble"] == "OSError: disk on fire"
    assert reader.standby.says().followed[P0].held == 0
    thread.error = None
    thread.try_to_look()
    thread.try_to_look()
    assert reader.standby.report()["standby"] == {"follows": {"orders-0": 1.0}}


def test_a_stream_loaded_without_it_fails_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside foreachBatch nobody sees the stream's options. The reader knows them."""
    Reader(monkeypatch, wanted=0)
    thread = follower(tmp_path)
    thread.try_to_look()
    assert thread.failure is not None
    assert thread.failure.code == "STANDBY_DIFFERS"


# -- executors


def written(store: LocalStore, keys: int, name: str | None = None) -> RunRef:
    chain = Chain(store, P0)
    rows = pa.table({"k": [f"k{n}" for n in range(keys)], "n": list(range(keys))})
    return write_run(store, name or chain.new_run_name(), LAYOUT.seal(rows, np.full(keys, NEVER)))


def whole(ref: RunRef) -> Piece:
    return Piece(P0, ref, 0, ref.bytes)


def test_a_run_that_was_warmed_is_opened_without_reading_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's first batch finds it mapped and checked: nothing of the file is asked for any more."""
    store = LocalStore(tmp_path)
    ref = written(store, 1_000)
    assert list(Warm(str(tmp_path), LAYOUT, [whole(ref)], {P0: ()}).warm(store)) == []
    monkeypatch.setattr(pa, "memory_map", lambda *_: pytest.fail("it was read again"))
    assert open_run(LocalStore(tmp_path), ref, LAYOUT, Chain(store, P0)).num_rows == 1_000


def test_a_worker_that_has_just_begun_opens_what_others_have_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = written(store, 10)
    assert not is_open(store, ref)
    assert list(Warm(str(tmp_path), LAYOUT, [], {P0: (ref,)}).warm(store)) == []
    assert is_open(store, ref)


def test_runs_that_no_entry_names_any_more_are_let_go(tmp_path: Path) -> None:
    """A map of a removed file keeps its disk space. A standby would fill the disk with what owners have merged."""
    store = LocalStore(tmp_path)
    old, new = written(store, 10), written(store, 20)
    list(Warm(str(tmp_path), LAYOUT, [whole(old)], {P0: ()}).warm(store))
    assert is_open(store, old)
    list(Warm(str(tmp_path), LAYOUT, [whole(new)], {P0: ()}).warm(store))
    assert not is_open(store, old)
    assert is_open(store, new)


def test_what_is_gone_or_damaged_is_told_and_never_at_hand(tmp_path: Path) -> None:
    """An owner may have merged and removed it meanwhile, by right; if it is damaged, the owner's batch says so."""
    store = LocalStore(tmp_path)
    gone, damaged, sound = written(store, 10), written(store, 20), written(store, 30)
    store.remove(gone.name)
    path = tmp_path / damaged.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    pieces = [whole(gone), whole(damaged), whole(sound)]
    (answer,) = Warm(str(tmp_path), LAYOUT, pieces, {P0: ()})([])
    assert answer.to_pydict() == {"worker": [os.getpid()], "failed": [sorted([gone.name, damaged.name])]}
    assert is_open(store, sound)
    assert not is_open(store, damaged)
