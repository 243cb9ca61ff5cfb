"""The three file layers (real, in memory, simulated) behave alike, so that what is shown on one holds on the others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from storage_world import SimFiles

from holdfast.broker.storage.files import File, Files, RealFiles
from holdfast.broker.storage.memory import MemoryFiles
from holdfast.broker.storage.pool import FilePool

PATHS = st.sampled_from(["a", "b", "f/a", "f/b", "f/g/a"])
FOLDERS = st.sampled_from(["", "f", "f/g", "f/g/h"])
NUMBERS = st.integers(0, 50)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, NUMBERS, st.lists(st.binary(max_size=20), min_size=1, max_size=3)),
        st.tuples(st.just("create"), PATHS),
        st.tuples(st.just("read"), PATHS, NUMBERS, NUMBERS),
        st.tuples(st.just("truncate"), PATHS, NUMBERS),
        st.tuples(st.just("size"), PATHS),
        st.tuples(st.just("mkdir"), FOLDERS.filter(bool)),
        st.tuples(st.just("listdir"), FOLDERS),
        st.tuples(st.just("unlink"), PATHS),
        st.tuples(st.just("rename"), PATHS),
        st.tuples(st.just("fsync_dir"), FOLDERS),
    ),
    max_size=40,
)


def write(files: Files, path: str, position: int, pieces: Sequence[bytes]) -> object:
    file = files.open(path)
    file.write([memoryview(piece) for piece in pieces], position)
    file.fsync()
    return file.size()


def truncate(files: Files, path: str, size: int) -> object:
    file = files.open(path)
    file.truncate(size)
    return file.pread(100, 0)


ACTIONS: dict[str, Callable[..., object]] = {
    "write": write,
    "truncate": truncate,
    "create": lambda files, path: files.open(path, create=True).size(),
    "read": lambda files, path, count, position: files.open(path).pread(count, position),
    "size": lambda files, path: files.size(path),
    "mkdir": lambda files, path: files.mkdir(path),
    "listdir": lambda files, path: files.listdir(path),
    "unlink": lambda files, path: files.unlink(path),
    "rename": lambda files, path: files.rename(path, path + ".new"),
    "fsync_dir": lambda files, path: files.fsync_dir(path),
}


def outcome(files: Files, step: tuple[object, ...]) -> object:
    try:
        return ACTIONS[str(step[0])](files, *step[1:])
    except FileNotFoundError:
        return "not found"


@settings(deadline=None)
@example([("create", "a"), ("write", "a", 1, [b""])])  # memory grew by a write of nothing beyond its end
@given(STEPS)
def test_the_same_steps_have_the_same_outcome_on_every_layer(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, memory, simulated = RealFiles(folder), MemoryFiles(), SimFiles()
        for step in steps:
            expected = outcome(real, step)
            if step[0] != "fsync_dir":
                assert outcome(memory, step) == expected
            assert outcome(simulated, step) == expected


def test_a_write_cut_short_by_the_system_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def short(fd: int, buffers: Sequence[memoryview], position: int) -> int:
        return whole(fd, [b"".join(buffers)[:5]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file = RealFiles(tmp_path).open("a", create=True)
    file.write([b"abc", b"defgh", b"ij"], 2)
    assert file.pread(100, 0) == b"\0\0abcdefghij"


class Noting(MemoryFiles):
    """Remembers what was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        self.opened.append(path)
        return super().open(path, create=create)


def test_the_pool_lets_the_least_recently_used_go() -> None:
    files = Noting()
    pool = FilePool(files, limit=2)
    for name in ("a", "b"):
        pool.get(name, create=True)
    pool.get("a")
    pool.get("c", create=True)
    files.opened.clear()
    for name in ("a", "c", "b"):
        pool.get(name)
    assert files.opened == ["b"]
    assert len(pool) == 2


def test_the_lock_is_free_again_when_its_holder_is_gone(tmp_path: Path) -> None:
    files = RealFiles(tmp_path)
    holder = files.lock("lock")
    del holder
    files.lock("lock").release()
