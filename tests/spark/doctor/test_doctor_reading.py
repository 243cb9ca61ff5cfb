"""What an executor reads: pieces of files, compressed ones, damaged ones and ones that are no logs. Without Spark."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from holdfast.doctor.events import Event
from holdfast.model import HoldfastError
from holdfast.spark.doctor import reading
from holdfast.spark.doctor.pieces import found_under, pieces_of
from holdfast.spark.doctor.reading import CHUNK_BYTES, READ, Piece, chunks, events_of, read_pieces

LINES = [
    f"[2024-05-01 10:00:{n:02d},000] INFO [GroupCoordinator 1]: Stabilized group g generation {n} with 2 members. (x)"
    if n % 3 == 0
    else "x" * (n * 7 % 50)
    for n in range(60)
]
TEXT = "\n".join(LINES).encode() + b"\n"


def read(path: Path, piece_bytes: int = 1 << 20) -> tuple[list[Event], list[Event]]:
    """Events, and the rows that say what was read."""
    pieces = pieces_of(found_under([str(path)]), piece_bytes=piece_bytes)
    rows = [row for batch in read_pieces(iter(pieces.table.to_batches())) for row in batch.to_pylist()]
    events = [(Event(**{key: value for key, value in row.items() if key != "piece"}), row["piece"]) for row in rows]
    told = [event for event, _ in events if event.kind == READ]
    before = {0: 0}
    for number, event in enumerate(told):
        before[number + 1] = before[number] + int(event.number)
    found = []
    for event, piece in events:
        if event.kind != READ:
            event.line += before[piece]
            found.append(event)
    return found, told


@pytest.mark.parametrize("piece_bytes", [1, 7, 50, 111, 1_000, 10_000])
def test_a_file_that_is_cut_anywhere_has_the_same_events_on_the_same_lines(tmp_path: Path, piece_bytes: int) -> None:
    """A line belongs to the piece in which it begins: none is lost at a cut, none is read twice."""
    path = tmp_path / "broker.log"
    path.write_bytes(TEXT)
    events, told = read(path, piece_bytes)
    assert [(event.generation, event.line) for event in events] == [(n, n + 1) for n in range(0, 60, 3)]
    assert sum(event.number for event in told) == 60
    assert sum(event.at_ms for event in told) == len(TEXT)


@pytest.mark.parametrize("piece_bytes", [7, 111, 10_000])
def test_a_file_in_an_object_store_is_cut_as_one_on_a_disk(
    tmp_path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's files have no readline: every file of more than one piece could not be read from S3."""
    path = tmp_path / "broker.log"
    path.write_bytes(TEXT)
    monkeypatch.setattr(reading, "opened_piece", lambda piece: fs.LocalFileSystem().open_input_file(piece.path))
    events, told = read(path, piece_bytes)
    assert not any(one.said for one in told)
    assert [(event.generation, event.line) for event in events] == [(n, n + 1) for n in range(0, 60, 3)]


@pytest.mark.parametrize("packed", [False, True])
def test_one_line_of_a_hundred_megabytes_is_passed_over_within_bounds(tmp_path: Path, packed: bool) -> None:
    """A dump on one line. The first piece read all of it into memory, and so did each other piece, to look for its end;
    gzip made all of it of a small chunk. It counts as one line: what follows has its right number."""
    path, line, size = tmp_path / "dump.log", LINES[0].encode() + b"\n", 96 << 20
    text = line + b"[GroupCoordinator" + b"x" * size + b"\n" + line
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    del text
    tracemalloc.start()
    events, told = read(path, 16 << 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [event.line for event in events] == [1, 3]
    assert sum(event.number for event in told) == 3
    assert [one.said for one in told if one.said] == [reading.TOO_LONG.format(1)]
    assert most < 80 << 20


def test_a_last_line_without_its_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_bytes(TEXT[:-1].rpartition(b"\n")[0])
    events, told = read(path, 100)
    assert (len(events), sum(event.number for event in told)) == (20, 59)


def test_compressed_files_are_read_whole_whatever_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(TEXT) + gzip.compress(TEXT))  # as `cat a.gz b.gz` makes it
    (tmp_path / "b.log.zst").write_bytes(pa.Codec("zstd").compress(TEXT, asbytes=True))
    (tmp_path / "c.log").write_bytes(gzip.compress(TEXT))
    for name, times in (("a.log.gz", 2), ("b.log.zst", 1), ("c.log", 1)):
        events, told = read(tmp_path / name)
        assert (len(events), sum(event.number for event in told)) == (20 * times, 60 * times), name
        assert not any(event.said for event in told)


def test_what_is_before_the_cut_of_a_truncated_archive_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    many = b"".join(TEXT.replace(b"generation ", b"generation %d" % n) for n in range(400))
    whole = gzip.compress(many)
    path.write_bytes(whole[: len(whole) // 2])
    events, (told,) = read(path)
    assert 400 < len(events) < 8_000
    assert "cut short" in told.said
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * 1_000)
    assert "damaged" in read(path)[1][0].said or "cut short" in read(path)[1][0].said


def test_a_binary_file_is_left_alone_and_told(tmp_path: Path) -> None:
    (tmp_path / "00000.index").write_bytes(b"\0\1\2" * 5_000)
    events, (told,) = read(tmp_path)
    assert not events
    assert "binary" in told.said


def test_a_file_that_vanishes_or_may_not_be_read_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    gone = Piece(path=str(tmp_path / "gone.log"), piece=0, start=0, end=10, written_ms=0.0)
    (told,) = events_of(gone)
    assert told.kind == READ and "can't be read" in told.said


def test_strange_lines_are_told_by_their_shapes(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"[GroupCoordinator 1]: it did {n} new things\n" for n in range(9)))
    _, (told,) = read(path)
    assert json.loads(told.partitions) == {"[GroupCoordinator #]: it did # new things": 9}


def test_many_small_files_share_tasks_and_empty_ones_cost_nothing(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.log").write_bytes(LINES[0].encode())
    (tmp_path / "empty.log").touch()
    (tmp_path / ".hidden").write_text("no")
    pieces = pieces_of(found_under([str(tmp_path)]), piece_bytes=1_000)
    assert (pieces.files, pieces.table.num_rows) == (51, 50)
    assert pieces.tasks <= 10


def test_links_lead_to_a_file_once_and_in_circles_to_nothing(tmp_path: Path) -> None:
    """A link to the folder above had each file found forty times, until the system refused, with a traceback; a file
    that is named beside its folder was read twice."""
    inside = tmp_path / "pods"
    inside.mkdir()
    (inside / "broker.log").write_bytes(TEXT)
    (inside / "back").symlink_to(tmp_path)
    (inside / "latest.log").symlink_to("broker.log")
    (inside / "nowhere.log").symlink_to("nothing")
    (inside / "itself").symlink_to("itself")
    found = list(found_under([str(tmp_path), str(inside / "broker.log"), str(inside)]))
    assert [Path(one.path).resolve() for one in found] == [inside / "broker.log"]
    assert len(read(tmp_path)[0]) == 20


def test_nothing_to_read_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="no file") as nothing:
        pieces_of(found_under([str(tmp_path)]))
    assert nothing.value.code == "DOCTOR_NOTHING_TO_READ"
    with pytest.raises(HoldfastError) as missing:
        pieces_of(found_under([str(tmp_path / "nowhere")]))
    assert missing.value.code == "DOCTOR_NO_SUCH_PATH"


def test_a_file_is_read_under_its_new_name_also_while_nothing_has_its_old_one(tmp_path: Path) -> None:
    """A logger renames its file and creates the next one with its next line. What was added before the rename was to be
    read in that gap, the path was not there, and the lines were lost: the position was past them already."""
    path = tmp_path / "broker.log"
    path.write_bytes(TEXT)
    (piece,) = pieces_of(found_under([str(path)])).table.drop_columns("task").to_pylist()
    path.rename(tmp_path / "broker.log.1")

    *events, told = events_of(Piece(**piece))
    assert (len(events), told.said) == (20, "")


def test_an_archive_that_says_the_same_again_and_again_is_read_in_small_chunks(tmp_path: Path) -> None:
    """Deflate packs a thousand to one. Two megabytes of an archive were unpacked at once, whatever came of them."""
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress((b"x" * 99 + b"\n") * 1_000_000))
    piece = Piece(path=str(path), piece=0, start=0, end=-1, written_ms=0.0)

    sizes = [len(data) for data in chunks(piece)]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 2 * CHUNK_BYTES
