"""A sink on real object-store servers: MinIO, Azurite, and Google's API before MinIO (`store_servers`).

moto is one Python process with a lock around it. Here many processes race on a server that has its own idea of what a
conditional put is, answers get lost on the way, and data files are sent in parts.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty_proxy import LOSSES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import BucketPlace, served_place
from sink_world import Disk, TurnStore
from store_servers import StoreServer, free_port, minio_server, s3rver, store_server
from test_sink_ledger_model import play

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import proving
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.objects import ONE_PUT_BYTES, ObjectStore
from holdfast.spark.files.store import open_store
from holdfast.spark.files.upkeep import clean, compact

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

RACER = Path(__file__).with_name("sink_racer.py")
FAR = 1e12
END = 1_500


@pytest.fixture(autouse=True)
def nothing_is_proven() -> None:
    proving.tried_out.clear()


@dataclass
class Race:
    """Processes that work on one sink."""

    path: str
    options: dict[str, str]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, role: str, who: str, *told: object) -> None:
        environ = {**os.environ, "RACER_SINK": self.path, "RACER_OPTIONS": json.dumps(self.options)}
        command = [sys.executable, str(RACER), role, who, *map(str, told)]
        pipe = subprocess.PIPE
        with (self.folder / f"{who}.err").open("ab") as err:
            self.processes[who] = subprocess.Popen(
                command, env=environ, stdin=pipe, stdout=pipe if role == "create" else err, stderr=err
            )

    def ask(self, what: str) -> list[str]:
        """Tell all of them at once, and hear what each answers."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.write(f"{what}\n".encode())
            process.stdin.flush()
        answers = []
        for who, process in self.processes.items():
            assert process.stdout is not None
            answers.append(process.stdout.readline().decode().strip())
            assert answers[-1], self.said(who)
        return answers

    def said(self, who: str) -> str:
        return f"{who}: {(self.folder / f'{who}.err').read_text()[-2_000:]}"

    def end(self, who: str) -> None:
        assert self.processes[who].wait(600) == 0, self.said(who)

    def kill(self, who: str) -> None:
        process = self.processes.pop(who)
        assert process.poll() in (None, 0), self.said(who)
        process.send_signal(signal.SIGKILL)
        process.communicate()


@contextmanager
def racing(place: BucketPlace, folder: Path) -> Iterator[Race]:
    race = Race(place.path, place.options, folder)
    try:
        yield race
    finally:
        for process in race.processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.parametrize("losing", [0.0, 0.1], ids=["", "answers get lost"])
def test_of_many_processes_that_create_the_same_names_each_name_has_one_maker(
    served: StoreServer, tmp_path: Path, losing: float
) -> None:
    """With lost answers a client sends its put again, and must know its own file when it finds the name taken."""
    place, who = served_place(served), [f"p{number}" for number in range(6)]
    if losing:
        served.proxy.lose_some(losing, seed=1)
    with racing(place, tmp_path) as race:
        for one in who:
            race.start("create", one)
        made = {}
        for name in (f"race/{number:05d}" for number in range(200)):
            answers = race.ask(name)
            assert sorted(answers) == ["made", *["taken"] * 5], (name, answers)
            made[name] = who[answers.index("made")]
    served.proxy.lose = None
    assert {name: (place.store.read(name) or b"").decode() for name in made} == made
    assert bool(served.proxy.lost) == bool(losing)


@pytest.mark.parametrize("losing", [0.0, 0.03], ids=["", "answers get lost"])
def test_writers_that_are_killed_beside_compaction_and_cleaning_leave_every_row_once(
    served: StoreServer, tmp_path: Path, losing: float
) -> None:
    """Five processes on one sink, one of the writers killed again and again, and a grace period of two seconds, which
    is too short for some batches: those are done again, and no row is lost or doubled by it."""
    place, rng = served_place(served), random.Random(7)
    if losing:
        served.proxy.lose_some(losing, seed=2)
    with racing(place, tmp_path) as race:
        race.start("compact", "compact")
        race.start("clean", "clean", 2.0)
        writers = ["a", "b", "c"]
        for one in writers:
            race.start("write", one, END)
        deadline = time.monotonic() + 600
        while any(race.processes[one].poll() is None for one in writers):
            assert time.monotonic() < deadline
            time.sleep(rng.uniform(0.2, 2.0))
            victim = rng.choice(writers)
            if race.processes[victim].poll() is None:
                race.kill(victim)
                race.start("write", victim, END)
        for one in writers:
            race.end(one)
        # Compaction and cleaning were there: a snapshot stands for the first entry, and that is gone.
        while not all(ledger(place, number).newest_snapshot() for number in range(2)) or any(
            ledger(place, number).entry(1) for number in range(2)
        ):
            assert time.monotonic() < deadline, race.said("compact") + race.said("clean")
            time.sleep(0.2)
        for one in ("compact", "clean"):
            assert race.processes[one].poll() is None, race.said(one)
            race.kill(one)
    served.proxy.lose = None
    check_every_row_is_there_once(place)
    compact(place.store)
    clean(place.store, now=FAR, grace_s=0)
    check_every_row_is_there_once(place)
    assert place.data_files == {file.name for number in range(2) for file in ledger(place, number).load().files}


def test_writers_outlast_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """What it had said is done must be done when it is back, and what it had not said is done again."""
    port = free_port()
    (tmp_path / "minio").mkdir()
    with ExitStack() as stack:
        served = stack.enter_context(store_server("s3", f"http://127.0.0.1:{port}"))
        with minio_server(tmp_path / "minio", port):
            place = served_place(served)
        race = stack.enter_context(racing(place, tmp_path))
        race.start("compact", "compact")
        race.start("clean", "clean", 2.0)
        for one in ("a", "b"):
            race.start("write", one, END)
        deadline = time.monotonic() + 600
        for part in range(1, 6):
            with minio_server(tmp_path / "minio", port):
                while (ledger(place, 0).tip().end or 0) < END * part // 6:
                    assert time.monotonic() < deadline, race.said("a") + race.said("b")
                    time.sleep(0.1)
        with minio_server(tmp_path / "minio", port):
            for one in ("a", "b"):
                race.end(one)
            for one in ("compact", "clean"):
                race.kill(one)
            check_every_row_is_there_once(place)


def ledger(place: BucketPlace, number: int) -> Ledger:
    return Ledger(place.store, TopicPartition("orders", number))


def check_every_row_is_there_once(place: BucketPlace) -> None:
    for number in range(2):
        content = ledger(place, number).load()
        found: list[Any] = []
        for file in content.files:
            with place.store.open(file.name) as opened:
                found += pq.ParquetFile(io.BytesIO(opened.read())).read(["offset"])["offset"].to_pylist()
        assert content.end == END
        assert sorted(found) == list(range(END))


class ServedDisk(Disk):
    """The model's disk, kept by a server: each operation is the server's own."""

    def __init__(self, place: BucketPlace) -> None:
        super().__init__()
        self.place, self.store = place, place.store

    @property
    def data_files(self) -> set[str]:
        return self.place.data_files

    def opened(self, turn: Any) -> TurnStore:
        return ServedTurnStore(self, turn)


class ServedTurnStore(TurnStore):
    disk: ServedDisk

    def create(self, name: str, data: bytes) -> bool:
        with self.turn.operation("create", name):
            return bool(self.disk.store.create(name, data))

    def read(self, name: str) -> bytes | None:
        with self.turn.operation("read", name):
            found: bytes | None = self.disk.store.read(name)
            return found

    def exists(self, name: str) -> bool:
        with self.turn.operation("exists", name):
            return bool(self.disk.store.exists(name))

    def names(self, folder: str) -> list[str]:
        with self.turn.operation("names", folder):
            found: list[str] = self.disk.store.names(folder)
            return found

    def size(self, name: str) -> int | None:
        with self.turn.operation("size", name):
            found: int | None = self.disk.store.size(name)
            return found

    def remove(self, name: str) -> None:
        with self.turn.operation("remove", name):
            self.disk.store.remove(name)

    def has(self, name: str) -> bool:
        return bool(self.disk.store.exists(name))

    def take_away(self, name: str) -> None:
        self.disk.store.remove(name)


def test_the_ledgers_model_with_a_server_for_its_disk(served: StoreServer) -> None:
    """The interleavings of `test_sink_ledger_model`, its files on a server."""

    @settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(st.data())
    def plays(data: st.DataObject) -> None:
        play(data, most_steps=60, disk=ServedDisk(served_place(served)))

    plays()


@pytest.mark.parametrize("how", LOSSES)
def test_a_put_whose_answer_is_lost_in_any_way_is_ours(served: StoreServer, how: str) -> None:
    """The put is done, and the connection ends in one of the ways in which connections end."""
    store = served_place(served).store
    store.prove()
    served.proxy.lose_next_put(how)
    assert store.create("x", b"ours")
    assert [lost[0] for lost in served.proxy.lost] == [how]
    assert not store.create("x", b"theirs")
    assert store.read("x") == b"ours"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_server_that_asks_for_patience_gets_it(served: StoreServer, status: int) -> None:
    """S3 says 409 to writers of one name that come at once, and 503 to many requests (SlowDown); Google says 429 to who
    writes one name more than once a second, as `prove` does."""
    store, left = served_place(served).store, [status] * 3
    served.proxy.refuse = lambda method, _path: left.pop() if method == "PUT" and left else None
    assert store.create("x", b"ours")
    assert store.read("x") == b"ours"
    assert not left


def test_a_folder_of_more_names_than_one_answer_has(served: StoreServer) -> None:
    """S3 tells a thousand at a time."""
    place = served_place(served)
    store: Any = place.store
    names = [f"{number:05d}" for number in range(2_345)]
    inside = [f"{name}.inside" for name in names[:1_234]]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.client.put(f"d/{name}", b""), [*names, *(f"{name}/x" for name in inside)]))
    assert store.names("d") == sorted([*names, *inside])
    assert len(place.names()) == len(names) + len(inside)


@pytest.mark.parametrize("how", [None, *LOSSES])
def test_a_file_that_is_sent_in_parts_is_whole_or_not_there(served: StoreServer, how: str | None) -> None:
    """Of each kind of request one answer is lost: the one that begins, one of the parts, the one that ends it all."""
    store, data = served_place(served).store, os.urandom(1024 * 1024)
    times = ONE_PUT_BYTES // len(data) + 7
    broken = set[str]()

    def lose(method: str, path: str) -> str | None:
        kind = re.sub(r"=[^&]*", "=", f"{method} {path}")
        if "large" not in path or kind in broken:
            return None
        broken.add(kind)
        return how

    served.proxy.lose = lose
    with store.writing("d/large.parquet") as file:
        for _ in range(times):
            file.write(data)
    assert len(broken) >= 2
    assert store.size("d/large.parquet") == times * len(data)
    with store.open("d/large.parquet") as file:
        for at in (0, times // 2, times - 1):
            file.seek(at * len(data))
            assert file.read(len(data)) == data
    with pytest.raises(RuntimeError), store.writing("d/broken.parquet") as file:
        for _ in range(times):
            file.write(data)
        raise RuntimeError
    assert store.names("d") == ["large.parquet"]


def test_a_server_that_never_heard_of_the_condition_is_refused(tmp_path: Path) -> None:
    with s3rver(tmp_path) as options:
        store = open_store("s3://shop/sinks/orders", options)
        with pytest.raises(HoldfastError, match=r"STORE_NOT_EXCLUSIVE.*5 of 5 writers"):
            store.create("x", b"1")
        assert store.read("x") is None


@pytest.mark.parametrize("served", ["minio", "google"], indirect=True)
def test_a_server_whose_condition_is_dropped_on_the_way_is_refused(served: StoreServer) -> None:
    """By a proxy that is older than the condition, between us and a server that keeps to it. Azure's signature covers
    the condition, and Azurite lets nobody write without one."""
    place = served_place(served)
    options = dict(place.options)
    if served.kind == "s3":  # a signature would cover the condition
        del options["holdfast.store.access_key_id"], options["holdfast.store.secret_access_key"]
        options["holdfast.store.skip_signature"] = "true"
    served.proxy.ignores_conditions = True
    with pytest.raises(HoldfastError, match="STORE_NOT_EXCLUSIVE"):
        open_store(place.path, options).create("x", b"1")
    served.proxy.ignores_conditions = False
    store = open_store(place.path, options)
    assert isinstance(store, ObjectStore)
    assert store.create("x", b"1")
    assert place.names() == ["x"]
