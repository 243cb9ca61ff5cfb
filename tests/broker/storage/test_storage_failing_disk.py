"""A disk that fails half-way through something other than a sync: nothing acknowledged is lost by it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest
from storage_batches import batch, noise
from storage_bench import SMALL, Bench, Clock, fill, read_all, refused
from storage_world import SimFiles

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.store import Store
from holdfast.model import ErrorCode


def test_what_follows_a_segment_that_could_not_be_begun_is_not_hidden_by_it() -> None:
    """Symptom: records that were acknowledged were gone after a restart. Cause: the next segment's file was made, but
    cutting it to nothing failed; a smaller batch then fitted into the old segment, at the offset that names the new
    file. On opening, the empty file was the last one, and the log ended where it begins. Rule: what is begun at a roll
    is finished before anything else is appended.
    """
    bench = Bench(SMALL)
    log = bench.open()
    fill(log, 4)
    bench.files.refuse_to_truncate = True
    assert refused(log, batch(body=noise(1, 900))) == ErrorCode.KAFKA_STORAGE_ERROR
    small = batch(body=noise(2, 10))
    with contextlib.suppress(StorageError):
        log.append(small)
    bench.files.refuse_to_truncate = False
    log.append(small)
    before, end = read_all(log), log.log_end_offset

    bench.files = bench.files.after_kill()
    again = bench.open()
    assert again.log_end_offset == end
    assert read_all(again) == before
    assert bench.reports == []


def bad_sector(monkeypatch: pytest.MonkeyPatch, at: int, *, name: str) -> None:
    """Linux gives what lies before a bad sector as a short read, and the error only to whoever asks for the rest."""
    whole = os.pread

    def pread(fd: int, count: int, position: int) -> bytes:
        if name not in str(Path(f"/proc/self/fd/{fd}").readlink()) or position + count <= at:
            return whole(fd, count, position)
        if position >= at:
            raise OSError(errno.EIO, "Input/output error")
        return whole(fd, at - position, position)

    monkeypatch.setattr(os, "pread", pread)


def killed(store: Store, folder: Path) -> Path:
    """The store's folder as a kill at this moment would leave it; it is closed after that."""
    left = folder.with_name(f"{folder.name}-killed")
    shutil.copytree(folder, left)
    store.close()
    return left


def test_a_bad_sector_is_not_taken_for_the_end_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: one sector that could not be read, for a moment, and all records behind it were cut off at the start of
    the broker. Cause: a read that comes back short was taken for the end of the file. Rule: a short read is continued,
    so that its cause surfaces, and what can't be read is not judged.
    """
    store = Store(tmp_path / "data")
    store.create_topic("orders", 1)
    log = store.log("orders", 0)
    for number in range(50):
        log.append(batch(body=noise(number, 500)))
    left = killed(store, tmp_path / "data")
    with monkeypatch.context() as patch:
        bad_sector(patch, 14 * len(batch(body=noise(0, 500))) + 30, name=".log")  # in the middle of a header
        with Store(left) as failing:
            assert "can't be opened" in failing.recoveries[0].reason
            with pytest.raises(StorageError):
                failing.log("orders", 0)
    with Store(left) as store:
        assert store.log("orders", 0).log_end_offset == 50


def test_a_bad_sector_is_not_taken_for_the_end_of_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for offsets and groups."""
    store = Store(tmp_path / "data")
    journal = store.journal("groups")
    for number in range(50):
        journal.append([(b"%d" % number, noise(number, 500))])
    left = killed(store, tmp_path / "data")
    with monkeypatch.context() as patch:
        bad_sector(patch, 8_192, name="journals/groups")
        with Store(left) as store, pytest.raises(StorageError):
            store.journal("groups").replay()
    with Store(left) as store:
        store.journal("groups").replay()
        assert len(store.journal("groups")) == 50


class LyingRename(SimFiles):
    """A rename that happens, and is answered with an error, as over a network."""

    lying = False

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if self.lying:
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("unlink_fails", [False, True])
def test_a_rewritten_journal_that_was_refused_does_not_come_back(unlink_fails: bool) -> None:
    """Symptom: commits were gone after a restart. Cause: a rewrite whose rename was answered with an error lay there
    under the newer name, while commits went on into the older file. Rule: it is removed, and as long as it can't be,
    nothing is appended to the file before it.
    """
    files = LyingRename()
    store = Store(None, files=files, clock=Clock(), steady=Clock())
    journal = store.journal("groups")
    journal.append([(b"a", b"1")])
    files.lying, files.refuse_to_unlink = True, unlink_fails
    with pytest.raises(StorageError):
        journal.compact()
    acknowledged = {b"a": b"1"}
    for healthy in (False, True):
        if healthy:
            files.lying = files.refuse_to_unlink = False
        with contextlib.suppress(StorageError):
            journal.append([(b"b", b"%d" % healthy)])
            acknowledged[b"b"] = b"%d" % healthy
        seen: dict[bytes, bytes | None] = {}
        Store(None, files=files.after_kill(), clock=Clock(), steady=Clock()).journal("groups").replay(seen.__setitem__)
        assert seen == acknowledged


def test_records_whose_deletion_was_refused_are_there_after_a_restart() -> None:
    """The same answer to the rename of the file that says where a log starts."""
    files = LyingRename()
    store = Store(None, files=files, clock=Clock(), steady=Clock())
    store.create_topic("orders", 1)
    fill(store.log("orders", 0), 3)
    files.lying = True
    with pytest.raises(StorageError):
        store.log("orders", 0).delete_records(4)
    assert store.log("orders", 0).log_start_offset == 0
    again = Store(None, files=files.after_kill(), clock=Clock(), steady=Clock())
    assert again.log("orders", 0).log_start_offset == 0
