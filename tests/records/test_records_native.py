"""The kernel's machine code on disk: loaded when it is ours and whole, compiled when not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records import native

CODE = b"some machine code"
NAME = "holdfast-test.o"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that the cache may use."""
    place = tmp_path / "cache"
    monkeypatch.setattr(native, "folders", lambda: iter([place]))
    return place


def test_what_is_written_is_read(folder: Path) -> None:
    native.write_code(NAME, CODE)
    assert native.read_code(folder / NAME) == CODE
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("at", [0, 31, 32, -1])
def test_a_damaged_file_is_not_executed(folder: Path, at: int) -> None:
    native.write_code(NAME, CODE)
    content = bytearray((folder / NAME).read_bytes())
    content[at] ^= 1
    (folder / NAME).write_bytes(content)
    assert native.read_code(folder / NAME) is None


def test_a_torn_file_is_not_executed(folder: Path) -> None:
    native.write_code(NAME, CODE)
    content = (folder / NAME).read_bytes()
    for size in range(len(content)):
        (folder / NAME).write_bytes(content[:size])
        assert native.read_code(folder / NAME) is None


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
def test_a_file_that_others_can_write_is_not_executed(folder: Path, mode: int) -> None:
    native.write_code(NAME, CODE)
    (folder / NAME).chmod(mode)
    assert native.read_code(folder / NAME) is None


def test_a_file_in_a_folder_that_others_can_write_is_not_executed(folder: Path) -> None:
    native.write_code(NAME, CODE)
    folder.chmod(0o777)
    assert native.read_code(folder / NAME) is None


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    native.write_code(NAME, CODE)
    (folder / "link.o").symlink_to(folder / NAME)
    assert native.read_code(folder / "link.o") is None


def test_somebody_else_s_file_is_not_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native.write_code(NAME, CODE)
    if os.geteuid() == 0:
        os.chown(folder / NAME, 12345, -1)
    else:  # only root can give a file away: be somebody else instead
        monkeypatch.setattr(native.os, "geteuid", lambda: 12345)
    assert native.read_code(folder / NAME) is None


def test_nothing_is_left_in_a_folder_that_others_can_write(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    native.write_code(NAME, CODE)
    assert list(folder.iterdir()) == []


def test_without_a_place_to_keep_it_the_code_is_still_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation without a home and without a temporary folder: slower, but it works."""
    monkeypatch.setattr(native, "folders", lambda: iter([Path("/proc/nowhere")]))
    native.write_code(NAME, CODE)
    assert native.read_code(Path("/proc/nowhere") / NAME) is None


def test_who_waits_for_the_compiler_is_told_and_how_not_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first AsyncConsumer of an image brought its first record after fifteen seconds without a word; where nothing
    can be written, so did that of every restart."""
    monkeypatch.setattr(native, "compiled", lambda: CODE)
    monkeypatch.setattr(native, "link", lambda code: code)

    native.made()
    assert "compiling" in caplog.text and "python -m holdfast.records.native" in caplog.text
    assert "NUMBA_CACHE_DIR" not in caplog.text

    caplog.clear()
    native.made()
    assert caplog.text == ""

    monkeypatch.setattr(native, "folders", lambda: iter([]))
    native.made()
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_an_image_is_built_with_the_compiled_decoder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bytes] = []

    def compiling() -> bytes:
        compiled.append(CODE)
        return CODE

    monkeypatch.setattr(native, "compiled", compiling)

    assert native.keep() == native.keep() == folder / native.file_name()
    assert compiled == [CODE]
    monkeypatch.setattr(native, "folders", lambda: iter([]))
    assert native.keep() is None


def test_the_places_are_tried_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "told"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found: Iterator[Path] = native.folders()
    assert next(found) == tmp_path / "told"
    assert next(found).name == "__pycache__"
    assert next(found) == tmp_path / "xdg" / "holdfast"
    assert next(found).name == f"holdfast-{os.geteuid()}"


def test_the_code_calls_nothing_but_memcpy() -> None:
    """Then it needs neither numba nor Python, and nothing in it can raise or allocate."""
    native.decode()
    kept = native.keep()
    assert kept is not None
    code = native.read_code(kept)
    assert code is not None
    assert b"memcpy" in code
    for foreign in (b"NRT_", b"numba_", b"PyErr", b"PyGILState"):
        assert foreign not in code


def test_reading_arrow_batches_needs_no_numba_once_compiled() -> None:
    """Symptom: every Spark worker spent two seconds importing numba. The kept code must do without."""
    program = (
        "import sys\n"
        "from holdfast.records.arrow import ArrowDecoder\n"
        "from holdfast.records.batch import Record\n"
        "from holdfast.records.encode import encode_batch\n"
        "decoder = ArrowDecoder()\n"
        "decoder.feed(encode_batch([Record(0, 1, b'k', b'v')]), topic='t', partition=0, lo=0)\n"
        "assert decoder.take().num_rows == 1\n"
        "assert 'numba' not in sys.modules\n"
    )
    native.decode()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_package_itself_loads_nothing_heavy() -> None:
    program = (
        "import sys, holdfast.records\n"
        "heavy = {'numba', 'llvmlite', 'pyarrow', 'numpy', 'cramjam'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
