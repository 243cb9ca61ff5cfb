"""The journal of keys and values: atomic appends, ordered replay, compaction that can die anywhere."""

from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_batches import NOW, noise
from storage_world import Crash, SimFiles

from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.frames import Entry
from holdfast.broker.storage.journal import MAX_FRAME_BYTES, Journal
from holdfast.broker.storage.sync import FlushPolicy, Syncer
from holdfast.model import ErrorCode

TEARS = (None, 0.0, 0.5, 1.0)


class Desk:
    """One journal on a simulated disk."""

    def __init__(self, files: SimFiles | None = None, *, flush: FlushPolicy = FlushPolicy.OS) -> None:
        self.files = files or SimFiles()
        self.flush = flush
        self.reports: list[Recovery] = []

    def open(self, compact_min_bytes: int = 1000) -> Journal:
        salts = random.Random(3)
        return Journal(
            name="groups",
            folder="journals/groups",
            files=self.files,
            syncer=Syncer(self.files, policy=self.flush, steady=lambda: NOW),
            report=self.reports.append,
            compact_min_bytes=compact_min_bytes,
            salt=salts.randbytes,
        )

    def history(self) -> list[Entry]:
        entries: list[Entry] = []
        self.open().replay(lambda key, value: entries.append((key, value)))
        return entries

    def values(self) -> dict[bytes, bytes]:
        return {key: value for key, value in dict(self.history()).items() if value is not None}

    @property
    def path(self) -> str:
        (path,) = self.files.paths(".journal")
        return path


def test_everything_is_replayed_in_the_order_it_was_written() -> None:
    desk = Desk()
    journal = desk.open()
    written: list[Entry] = [(b"a", b"1"), (b"b", b""), (b"a", b"2"), (b"never", None), (b"b", None), (b"", b"x")]
    journal.append(written[:3])
    journal.append(written[3:])
    assert desk.history() == written
    assert len(journal) == 2
    assert desk.reports == []


def test_an_append_is_replayed_whole_or_not_at_all() -> None:
    desk = Desk()
    journal = desk.open()
    journal.append([(b"a", b"1")])
    before = journal.size
    journal.append([(b"b", b"2"), (b"c", b"3")])
    whole = bytes(desk.files.now[desk.path].now)
    for length in range(before, len(whole)):
        desk.files.now[desk.path].now[:] = whole[:length]
        desk.reports.clear()
        assert desk.history() == [(b"a", b"1")]
        assert [report.cut_bytes for report in desk.reports] == ([length - before] if length > before else [])


def test_a_flipped_bit_costs_at_most_the_append_it_is_in() -> None:
    desk = Desk()
    journal = desk.open()
    ends = []
    for number in range(6):
        journal.append([(b"key%d" % number, noise(number, 20))])
        ends.append(journal.size)
    whole = bytes(desk.files.now[desk.path].now)
    every = desk.history()
    for bit in range(8 * len(whole)):
        desk.files.now[desk.path].now[:] = whole
        desk.files.flip(desk.path, bit)
        desk.reports.clear()
        hit = next(number for number, end in enumerate(ends) if bit // 8 < end)
        if bit // 8 < 32:
            assert desk.history() == every, "the header is there twice"
            continue
        assert desk.history() == every[:hit] + every[hit + 1 :]
        (report,) = desk.reports
        assert (report.cut_bytes > 0) == (hit == 5)


def test_a_journal_without_a_readable_header_is_kept_aside_and_a_new_one_begun() -> None:
    desk = Desk()
    desk.open().append([(b"a", b"1")])
    path = desk.path
    desk.files.now[path].now[:32] = bytes(32)
    journal = desk.open()
    journal.append([(b"b", b"2")])
    assert desk.values() == {b"b": b"2"}
    assert desk.files.size(path + ".damaged") > 32
    assert "kept with the ending .damaged" in str(desk.reports[0])


def test_a_frame_inside_a_value_is_not_taken_for_one_behind_a_torn_write() -> None:
    """A client chooses the bytes of its metadata. Without a secret in the checksum it could write a whole frame into
    them, and a crash in the middle of that append would make the frame real.
    """
    desk = Desk()
    journal = desk.open()
    journal.append([(b"group/victim", b"offset 7")])
    forged = _frame(b"group/victim", b"offset 0", position=journal.size + 12 + 8 + 6, salt=b"guessed?")
    real = _frame(b"group/victim", b"offset 0", position=journal.size + 12 + 8 + 6, salt=random.Random(3).randbytes(8))
    torn = journal.size
    for planted, expected in ((forged, b"offset 7"), (real, b"offset 0")):
        journal.append([(b"member", planted + bytes(200))])
        del desk.files.now[desk.path].now[-100:]
        assert desk.values() == {b"group/victim": expected}, "the second case proves that the test can tell"
        del desk.files.now[desk.path].now[torn:]
        journal = desk.open()
        journal.replay()


def _frame(key: bytes, value: bytes, *, position: int, salt: bytes) -> bytes:
    body = struct.pack("<Ii", len(key), len(value)) + key + value
    crc = crc32c(body, crc32c(struct.pack("<8sqI", salt, position, len(body))))
    return struct.pack("<4sII", b"\xf5HJ\n", len(body), crc) + body


def test_compaction_keeps_each_keys_last_value_in_the_order_of_writing() -> None:
    desk = Desk()
    journal = desk.open()
    for key, value in [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"d", b"1"), (b"c", None)]:
        journal.append([(key, value)])
    journal.compact()
    assert desk.history() == [(b"b", b"1"), (b"a", b"2"), (b"d", b"1")]
    journal.append([(b"b", b"2")])
    journal.compact()
    assert desk.history() == [(b"a", b"2"), (b"d", b"1"), (b"b", b"2")]
    assert desk.files.listdir("journals/groups") == ["0000000002.journal"]


def test_a_compacted_journal_spans_several_frames_when_it_is_large() -> None:
    desk = Desk()
    journal = desk.open()
    for number in range(30):
        journal.append([(b"%d" % number, noise(number, 100_000))])
    journal.compact()
    assert desk.history() == [(b"%d" % number, noise(number, 100_000)) for number in range(30)]


def test_compaction_is_due_when_half_of_the_file_is_stale_and_not_before() -> None:
    desk = Desk()
    journal = desk.open(compact_min_bytes=1000)
    for number in range(100):
        journal.append([(b"key%d" % number, noise(1, 30))])
    assert not journal.compact_if_due(), "nothing is stale"
    rewrites = 0
    for number in range(1000):
        journal.append([(b"key%d" % (number % 100), noise(1, 30))])
        rewrites += journal.compact_if_due()
    assert 10 <= rewrites <= 13, "one for every 79 appends: 4,400 live bytes, 56 more with each"
    assert journal.size < 4 * 100 * 50
    assert len(desk.values()) == 100


def test_a_full_disk_refuses_an_append_whole_and_puts_compaction_off() -> None:
    desk = Desk()
    journal = desk.open(compact_min_bytes=500)
    for number in range(40):
        journal.append([(b"k", noise(number, 30))])
    desk.files.room = 20
    with pytest.raises(StorageError) as caught:
        journal.append([(b"k", b"new"), (b"l", noise(1, 50))])
    assert caught.value.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.values() == {b"k": noise(39, 30)}
    with pytest.raises(StorageError):
        journal.compact_if_due()
    assert not journal.compact_if_due(), "it does not try again at once"
    desk.files.room = None
    journal.append([(b"l", b"1")])
    assert desk.values() == {b"k": noise(39, 30), b"l": b"1"}
    journal.compact()
    assert desk.values() == {b"k": noise(39, 30), b"l": b"1"}


def test_after_a_failed_fsync_the_journal_moves_to_a_new_file() -> None:
    desk = Desk(flush=FlushPolicy.ALWAYS)
    journal = desk.open()
    journal.append([(b"a", b"1")])
    desk.files.fail_fsync = True
    with pytest.raises(StorageError):
        journal.append([(b"b", b"2")])
    with pytest.raises(StorageError):
        journal.append([(b"b", b"2")])
    desk.files.fail_fsync = False
    journal.append([(b"b", b"3")])
    desk.files = desk.files.after_power_cut(random.Random(5))
    assert desk.values() == {b"a": b"1", b"b": b"3"}


def test_an_entry_beyond_the_limit_is_refused_and_leaves_nothing() -> None:
    desk = Desk()
    journal = desk.open()
    with pytest.raises(StorageError) as caught:
        journal.append([(b"k", bytes(MAX_FRAME_BYTES))])
    assert caught.value.error == ErrorCode.MESSAGE_TOO_LARGE
    assert desk.history() == []


def script(desk: Desk, told: dict[bytes, bytes | None], pending: dict[bytes, bytes | None]) -> None:
    journal = desk.open(compact_min_bytes=10)
    for number in range(12):
        pending.update({b"a%d" % (number % 3): noise(number, 30), b"b%d" % number: b"1"})
        journal.append(list(pending.items()))
        told |= pending
        pending.clear()
        pending[b"b%d" % (number - 1)] = None
        journal.append(list(pending.items()))
        told |= pending
        pending.clear()
        if number % 3 == 2:
            journal.compact()


@pytest.mark.parametrize("flush", [FlushPolicy.OS, FlushPolicy.ALWAYS])
@pytest.mark.parametrize("tear", TEARS)
def test_death_at_any_step_of_appending_and_compacting_loses_nothing(tear: float | None, flush: FlushPolicy) -> None:
    counting = Desk(flush=flush)
    script(counting, {}, {})
    for crash_at in range(len(counting.files.steps)):
        desk = Desk(SimFiles(crash_at=crash_at, tear=tear), flush=flush)
        told: dict[bytes, bytes | None] = {}
        pending: dict[bytes, bytes | None] = {}
        with pytest.raises(Crash):
            script(desk, told, pending)
        worlds = [desk.files.after_kill()]
        if flush is FlushPolicy.ALWAYS:
            worlds += [desk.files.after_power_cut(random.Random(f"{crash_at}/{seed}")) for seed in range(3)]
        expected = [
            {key: value for key, value in outcome.items() if value is not None} for outcome in (told, told | pending)
        ]
        for world in worlds:
            after = Desk(world, flush=flush)
            assert after.values() in expected
            assert len(after.files.paths("")) == 1, "left-overs of an unfinished rewrite are gone"
            after.open().append([(b"afterwards", b"1")])
            assert after.values()[b"afterwards"] == b"1"


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
ENTRIES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=4)
STEPS = st.lists(ENTRIES | st.sampled_from(["compact", "reopen"]), max_size=30)


@settings(deadline=None)
@given(STEPS)
def test_a_journal_behaves_like_a_dictionary_that_keeps_the_order_of_writing(steps: list[list[Entry] | str]) -> None:
    desk = Desk()
    journal = desk.open()
    model: dict[bytes, bytes] = {}
    for step in steps:
        if step == "compact":
            journal.compact()
            assert desk.history() == list(model.items())
        elif step == "reopen":
            journal = desk.open()
        else:
            assert isinstance(step, list)
            journal.append(step)
            for key, value in step:
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        assert len(journal) == len(model) or step == "reopen"
    assert desk.values() == model
