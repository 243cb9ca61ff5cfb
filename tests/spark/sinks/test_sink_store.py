"""Every store keeps what `Store` promises; and what only a local one has to do for it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from places import Place, local_place

from holdfast.model import HoldfastError
from holdfast.spark.files.store import LocalStore, open_store


def test_of_many_that_create_one_name_exactly_one_does(place: Place) -> None:
    store = place.store
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda n: (store.create("a/b/c.json", b"%d" % n), n), range(64)))
    winners = [number for made, number in told if made]
    assert len(winners) == 1
    assert store.read("a/b/c.json") == b"%d" % winners[0]
    assert store.names("a/b") == ["c.json"]
    assert store.leftovers("a/b") == []


def test_what_was_written_is_there_for_whoever_asks_next(place: Place) -> None:
    store, other = place.store, place.store
    assert (store.names("d"), store.read("d/x"), store.modified("d/x"), store.size("d/x")) == ([], None, None, None)
    for number in range(12):
        assert store.create(f"d/{number:02d}.json", b"12345")
        assert other.exists(f"d/{number:02d}.json")
        assert len(other.names("d")) == number + 1
    assert (other.size("d/03.json"), other.read("d/03.json")) == (5, b"12345")
    assert abs(time.time() - (other.modified("d/03.json") or 0)) < 60
    store.remove("d/03.json")
    store.remove("d/03.json")
    assert not other.exists("d/03.json")
    assert "03.json" not in other.names("d")
    with pytest.raises(FileNotFoundError, match="No such file"):
        other.open("d/03.json")


@pytest.mark.parametrize("folder", ["country=de", "country=a%2Fb%3Dc", "stadt=Köln am Rhein", "n=1+1&2"])
def test_folders_by_value_keep_their_names(place: Place, folder: str) -> None:
    with place.store.writing(f"data/{folder}/x.parquet") as file:
        file.write(b"whole")
    assert place.store.names("data") == [folder]
    assert place.store.read(f"data/{folder}/x.parquet") == b"whole"


def test_a_file_that_is_not_finished_is_not_there(place: Place) -> None:
    store = place.store
    with pytest.raises(RuntimeError), store.writing("d/x.parquet") as file:
        file.write(b"half")
        raise RuntimeError
    assert store.names("d") == []
    with store.writing("d/x.parquet") as file:
        file.write(b"whole")
        assert not store.exists("d/x.parquet")
    assert store.read("d/x.parquet") == b"whole"


def test_a_file_is_read_at_any_position(place: Place) -> None:
    """Larger than what one request brings, and read as Parquet does: the end first, then pieces."""
    data = os.urandom(9 * 1024 * 1024)
    with place.store.writing("d/x.parquet") as file:
        file.write(data)
        assert file.tell() == len(data)
    with place.store.open("d/x.parquet") as file:
        assert file.seek(-8, os.SEEK_END) == len(data) - 8
        assert file.read(8) == data[-8:]
        for start, count in ((0, 10), (8 * 1024 * 1024 - 5, 10), (3_000_000, 2_000_000), (len(data) - 3, 10)):
            file.seek(start)
            assert file.read(count) == data[start : start + count]
        file.seek(0)
        assert file.read() == data


def test_a_file_that_was_touched_while_it_was_being_removed_stays(place: Place) -> None:
    """Renewing and removing exclude each other: else a file goes between its writer's touch and its ledger entry."""
    store = place.store
    for name in ("f/old", "f/young", "f/touched", "top"):
        with store.writing(name) as file:
            file.write(b"1")
    place.age("f/old", 100)
    place.age("f/touched", 100)
    before = time.time() - 50
    assert store.remove_untouched("f/old", before)
    assert not store.touch("f/old")
    assert not store.remove_untouched("f/old", before)
    assert not store.remove_untouched("f/young", before)
    assert place.store.touch("f/touched")
    assert place.store.touch("top")
    assert not store.remove_untouched("top", before)
    assert store.remove_untouched("top", time.time() + 100)
    assert not store.exists("top")
    assert store.create("top", b"1")
    assert not store.remove_untouched("f/touched", before)
    assert store.names("f") == ["touched", "young"]
    assert store.leftovers("f") == []


# -- local files alone


def test_a_removal_that_a_crash_left_half_done_is_undone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("f/half", b"1")
    (tmp_path / "f/half").rename(tmp_path / "f/.old-half")
    assert store.names("f") == []
    store.put_back("f", lambda name: name == "another")
    assert store.names("f") == []
    store.put_back("f", lambda name: name == "half")
    assert store.names("f") == ["half"]


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


def test_a_file_system_without_links_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unable)
    with pytest.raises(HoldfastError, match="NO_HARD_LINKS"):
        LocalStore(tmp_path).create("x", b"")


@pytest.mark.parametrize("path", ["hdfs://node/x", "file://other-host/x", "ftp://host/x", "s3://"])
def test_a_place_that_can_not_create_exclusively_is_refused(path: str) -> None:
    with pytest.raises(HoldfastError, match="STORE_UNSUPPORTED"):
        open_store(path)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/a%20b").create("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    assert local_place(tmp_path / "a b").store.read("x") == b"1"
