"""kill -9 at random moments of a real process on a real disk: every acknowledged append and commit survives."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from storage_batches import batch, noise, split, stored

from holdfast.broker.storage.store import Store

PARTITIONS = 3

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from storage_batches import batch, noise
from holdfast.broker.storage.store import Store

store = Store(sys.argv[1])
if store.topic("orders") is None:
    store.create_topic("orders", 3, configs={"segment.bytes": "200000"})
journal = store.journal("offsets", compact_min_bytes=5000)
journal.replay()
number = int(sys.argv[3])
while True:
    data = batch(records=1 + number % 3, body=noise(number, number * 7919 % 30000), time=1)
    offset = store.log("orders", number % 3).append(data).base_offset
    print(f"append {number} {offset}", flush=True)
    journal.append([(b"group%d" % (number % 5), b"%d" % number)])
    print(f"commit {number % 5} {number}", flush=True)
    if number % 20 == 0:
        store.tick()
    number += 1
"""


def expected_batch(number: int, offset: int) -> bytes:
    data = batch(records=1 + number % 3, body=noise(number, number * 7919 % 30000), time=1)
    return stored(data, offset)


class Witness:
    """Remembers every acknowledgement it ever heard."""

    def __init__(self) -> None:
        self.appended: dict[int, int] = {}
        self.committed: dict[int, int] = {}

    def hear(self, line: str) -> None:
        kind, first, second = line.split()
        if kind == "append":
            self.appended[int(first)] = int(second)
        else:
            self.committed[int(first)] = int(second)

    def check(self, folder: Path) -> None:
        with Store(folder) as store:
            for number, offset in self.appended.items():
                log = store.log("orders", number % PARTITIONS)
                assert split(log.read(offset, 1))[0] == expected_batch(number, offset)
            values: dict[bytes, bytes | None] = {}
            store.journal("offsets").replay(values.__setitem__)
            for group, number in self.committed.items():
                value = values[b"group%d" % group]
                assert value is not None
                assert int(value) in (number, number + 5), "the last acknowledged, or the one in flight behind it"
            assert all(report.cut_bytes > 0 for report in store.recoveries)


def one_life(folder: Path, witness: Witness, lines: int) -> None:
    """Run a writer until it has acknowledged about `lines` things, kill it, and hear what it still said."""
    start = max(witness.appended, default=-1) + 2
    here = str(Path(__file__).parent)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), here, str(start)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer.stdout as said:
        for _ in range(lines):
            witness.hear(said.readline())
        writer.send_signal(signal.SIGKILL)
        for line in said:
            if line.endswith("\n"):
                witness.hear(line)
    assert writer.wait() == -signal.SIGKILL


def rounds(folder: Path, count: int) -> None:
    dice, witness = random.Random(11), Witness()
    for _ in range(count):
        one_life(folder, witness, dice.randrange(1, 300))
        witness.check(folder)


@pytest.mark.slow
def test_a_killed_writer_loses_nothing_acknowledged_in_15_rounds(tmp_path: Path) -> None:
    rounds(tmp_path, 15)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_killed_writer_loses_nothing_acknowledged_in_100_rounds(tmp_path: Path) -> None:
    rounds(tmp_path, 100)
