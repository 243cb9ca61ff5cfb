"""A broker that records pour into looks at them with machine code, and judges as before."""

from __future__ import annotations

import gzip
import logging
import struct
import subprocess
import sys
from typing import Any

import pytest
from crc32c import crc32c
from raw_client import batch

from holdfast.broker import compiled_check as module
from holdfast.broker.batch_check import inspect
from holdfast.broker.compiled_check import CompiledCheck
from holdfast.broker.slices import InThread, at_once
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode
from holdfast.records import native
from holdfast.records.compression import Codec, compress
from holdfast.records.header import HEADER_BYTES
from holdfast.records.walk import Walk

VALUES = [b"x" * (number % 90) for number in range(300)]


def fetched(compiled: CompiledCheck) -> CompiledCheck:
    """After as many records as it takes."""
    compiled.walked(1)
    assert compiled.fetching is not None
    compiled.fetching.join(300)
    return compiled


@pytest.fixture(scope="module")
def with_machine_code() -> CompiledCheck:
    native.decode()  # compiled and kept
    compiled = fetched(CompiledCheck(fetch_after=1))
    assert compiled.ready
    return compiled


def refusal(data: bytes, compiled: CompiledCheck) -> ErrorCode | None:
    try:
        at_once(inspect(bytearray(data), compiled, max_bytes=1 << 26))
    except StorageError as error:
        return error.error
    return None


def sealed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def poison(codec: int, kind: str) -> bytes:
    data = bytearray(batch(VALUES, codec=codec))
    if kind in ("fewer", "more"):
        count = len(VALUES) + (1 if kind == "more" else -1)
        struct.pack_into(">i", data, 57, count)
        struct.pack_into(">i", data, 23, count - 1)
    elif kind == "codec":
        struct.pack_into(">h", data, 21, (codec + 1) % 5)
    elif kind == "record":
        data[-1] ^= 0x7F
    return sealed(data)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("kind", ["sound", "fewer", "more", "codec", "record"])
def test_machine_code_judges_as_python_does(with_machine_code: CompiledCheck, codec: int, kind: str) -> None:
    data = poison(codec, kind)
    judged = refusal(data, with_machine_code)
    assert judged == refusal(data, CompiledCheck())
    assert (judged is None) == (kind == "sound")


@pytest.mark.parametrize("codec", range(5))
def test_a_sound_batch_is_not_walked_through_in_python(
    with_machine_code: CompiledCheck, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: walking through every record in Python took a producer's throughput: 8 s of a core for a gigabyte of
    100-byte records, where appending them took 2. Rule: Python looks only at what machine code says no to."""
    monkeypatch.setattr(Walk, "check", lambda _: pytest.fail("walked in Python"))
    assert refusal(batch(VALUES, codec=codec), with_machine_code) is None
    assert refusal(batch([b"x" * 1_000] * 6_000, codec=codec), with_machine_code) is None  # large: in the thread


def in_pieces(codec: int, pieces: int) -> bytes:
    """A batch whose records are packed in so many pieces, all but one of them empty."""
    section = bytes(batch(VALUES)[HEADER_BYTES:])
    if codec == Codec.GZIP:
        packed = gzip.compress(section) + gzip.compress(b"") * (pieces - 1)
    elif codec == Codec.SNAPPY:
        packed = compress(codec, section) + (struct.pack(">i", 1) + b"\0") * (pieces - 1)
    else:
        packed = compress(codec, section)[:-4] + struct.pack("<I", 0x80000000) * (pieces - 1) + bytes(4)
    header = bytearray(batch(VALUES, codec=codec)[:HEADER_BYTES])
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12 + len(packed))
    return sealed(header + packed)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_is_packed_in_very_many_pieces_is_unpacked_beside_the_loop(codec: Codec) -> None:
    """Symptom: a batch of half a megabyte held everybody up for 0.4 s. Cause: it was small, and unpacked to little, but
    in 100,000 empty pieces, each of which takes a few microseconds.
    """
    assert not isinstance(next(inspect(in_pieces(codec, 20), CompiledCheck(), max_bytes=1 << 26), None), InThread)
    many = in_pieces(codec, 20_000)
    assert isinstance(next(inspect(many, CompiledCheck(), max_bytes=1 << 26)), InThread)
    assert refusal(many, CompiledCheck()) is None, "it is odd, and as good as any other"


def test_only_sound_records_bring_the_machine_code() -> None:
    """A batch that says it has two thousand million records is no reason to load anything."""
    compiled = CompiledCheck(fetch_after=200)
    data = bytearray(batch(VALUES))
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    assert refusal(sealed(data), compiled) is not None
    assert compiled.fetching is None
    assert refusal(batch(VALUES), compiled) is None
    assert compiled.fetching is not None
    compiled.stop()


def test_without_machine_code_a_broker_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "decode_if_kept", lambda: None)
    monkeypatch.setattr(module, "COMPILE", "raise SystemExit(1)")
    with caplog.at_level(logging.WARNING, logger="holdfast.broker"):
        compiled = fetched(CompiledCheck(fetch_after=1))
    assert not compiled.ready
    assert [record.getMessage().count("slower") for record in caplog.records] == [1]
    assert refusal(batch(VALUES), compiled) is None
    compiled.stop()


def test_a_broker_that_stops_does_not_wait_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(native, "decode_if_kept", lambda: None)
    monkeypatch.setattr(module, "COMPILE", "import time; time.sleep(600)")
    monkeypatch.setattr(module.subprocess, "Popen", popen)
    compiled = CompiledCheck(fetch_after=1)
    compiled.walked(1)
    compiled.stop()
    assert all(child.poll() is not None for child in started)
    assert compiled.fetching is not None
    assert not compiled.fetching.is_alive()


def test_what_the_compiler_leaves_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new machine: not kept, compiled in a process of its own, and then kept where this one looks too."""
    machine_code = native.decode()
    found: list[Any] = [None, machine_code]
    monkeypatch.setattr(native, "decode_if_kept", lambda: found.pop(0))
    assert subprocess.run([sys.executable, "-c", module.COMPILE], check=False).returncode == 0  # kept, so it is quick
    monkeypatch.setattr(module, "COMPILE", "")
    compiled = fetched(CompiledCheck(fetch_after=1))
    assert compiled.ready
    compiled.stop()


def test_what_is_not_kept_is_not_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compile takes seconds, and numba stays in the process that does it."""
    monkeypatch.setattr(native, "kept_code", lambda _name: None)
    monkeypatch.setattr(native, "compiled", lambda: pytest.fail("compiled"))
    assert native.decode_if_kept() is None
