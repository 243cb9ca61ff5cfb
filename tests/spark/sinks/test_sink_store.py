"""The local store keeps what `Store` promises."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.model import HoldfastError
from holdfast.spark.files.store import LocalStore, open_store


def test_of_many_that_create_one_name_exactly_one_does(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda n: (store.create("a/b/c.json", b"%d" % n), n), range(64)))
    winners = [number for made, number in told if made]
    assert len(winners) == 1
    assert store.read("a/b/c.json") == b"%d" % winners[0]
    assert store.names("a/b") == ["c.json"]
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c.json"]


def test_a_repeated_link_whose_first_answer_was_lost_counts_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS: the server links, the answer is lost, the client sends the call again and hears "exists"."""
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    store = LocalStore(tmp_path)
    assert store.create("x.json", b"1") is True
    assert store.create("x.json", b"2") is False
    assert store.read("x.json") == b"1"


def test_a_crash_before_the_link_leaves_nothing_that_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "link", killed)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # a dead process tidies nothing up
    with pytest.raises(Killed):
        store.create("f/x.json", b"1")
    assert store.names("f") == []
    assert store.read("f/x.json") is None
    assert len(store.leftovers("f")) == 1


def test_a_file_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(RuntimeError), store.writing("d/x.parquet") as file:
        file.write(b"half")
        raise RuntimeError
    assert store.names("d") == []
    with store.writing("d/x.parquet") as file:
        file.write(b"whole")
        assert not store.exists("d/x.parquet")
    assert store.read("d/x.parquet") == b"whole"


def test_a_file_system_without_links_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unable)
    with pytest.raises(HoldfastError, match="NO_HARD_LINKS"):
        LocalStore(tmp_path).create("x", b"")


@pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs://node/x", "file://other-host/x"])
def test_a_place_that_can_not_create_exclusively_is_refused(path: str) -> None:
    with pytest.raises(HoldfastError, match="STORE_UNSUPPORTED"):
        open_store(path)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/a%20b").create("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
