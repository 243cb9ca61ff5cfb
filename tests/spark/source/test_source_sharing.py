"""How a query stands to others of its group: options, who gets in whose way, and how PySpark comes to look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark import door, guard
from holdfast.spark.options import parse
from holdfast.spark.sharing import Claim, collide, take_sharing
from holdfast.spark.siblings import KIND, Claimed
from holdfast.spark.source import StreamReader
from holdfast.testing import Broker
from patience import wait_for

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}


# -- options


def test_options_of_sharing_are_the_querys_and_no_members() -> None:
    told = {"kafka.holdfast.stateful": "Alone", "kafka.holdfast.share": "true", "kafka.holdfast.plan": "seen"}
    options = parse(GIVEN | told, streaming=True)
    assert (options.sharing.alone, options.sharing.shares, options.sharing.plan_known) == (True, True, True)
    assert not [key for key in options.kafka if key.startswith("holdfast.")]
    assert not parse(GIVEN, streaming=True).sharing.plan_known
    assert parse(GIVEN | {"kafka.holdfast.stateful": "none"}, streaming=True).sharing.plan_known


@pytest.mark.parametrize("key", ["holdfast.stateful", "holdfast.share", "holdfast.plan"])
def test_a_value_that_means_nothing_is_refused(key: str) -> None:
    with pytest.raises(HoldfastError, match=f"INVALID_OPTION: option kafka.{key} is 'perhaps'"):
        take_sharing({key: "perhaps"})


def test_a_reader_whose_plan_nobody_looks_at_joins_nothing() -> None:
    """It could keep state, which stays behind when partitions move. By hand nothing moves."""
    with pytest.raises(HoldfastError, match="PLAN_NOT_SEEN"):
        StreamReader(GIVEN).getDefaultReadLimit()
    by_hand = {key: value for key, value in GIVEN.items() if key != "subscribe"} | {"assign": '{"orders": [0]}'}
    for given in (by_hand, GIVEN | {"kafka.holdfast.plan": "seen"}, GIVEN | {"kafka.holdfast.stateful": "none"}):
        StreamReader(given).getDefaultReadLimit()


# -- who gets in whose way


def claim(**more: Any) -> Claim:
    return Claim(**{"servers": "a:1,b:1", "group": "g", "topics": ("orders",)} | more)


BY_HAND = {"topics": (), "assigned": (TopicPartition("orders", 0),)}


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ({}, {}, True),
        ({}, {"servers": "B:1"}, True),
        ({}, {"servers": "c:1"}, False),
        ({"cluster": "x"}, {"servers": "c:1", "cluster": "x"}, True),
        ({"cluster": "x"}, {"cluster": "y"}, False),
        ({"cluster": "x"}, {"servers": "c:1"}, False),
        ({"cluster": "x"}, {}, True),
        ({}, {"group": "h"}, False),
        ({}, {"topics": ("payments",)}, False),
        ({}, {"topics": ("orders", "payments")}, True),
        ({}, {"topics": ("^ord.*",)}, True),
        ({}, {"topics": ("^pay.*",)}, False),
        ({"topics": ("^a.*",)}, {"topics": ("^b.*",)}, True),
        ({"shares": True}, {}, True),
        ({"shares": True}, {"shares": True}, False),
        (BY_HAND, BY_HAND, True),
        (BY_HAND | {"shares": True}, BY_HAND | {"shares": True}, True),
        (BY_HAND, BY_HAND | {"assigned": (TopicPartition("orders", 1),)}, False),
        (BY_HAND, {}, True),
    ],
)
def test_two_streams_of_one_application_collide(one: dict[str, Any], other: dict[str, Any], wanted: bool) -> None:
    assert collide(claim(**one), claim(**other)) is wanted
    assert collide(claim(**other), claim(**one)) is wanted
    assert Claim.from_json(json.loads(json.dumps(claim(**one).to_json()))) == claim(**one)


def test_one_cluster_under_two_addresses_is_one() -> None:
    """Symptom: two queries of one application on one topic in one group got a part of the rows each, without a word,
    because one said `localhost` and the other 127.0.0.1; or each named another broker. Rule: the cluster's own id
    decides, once a broker has been asked for it."""
    with Broker() as broker:
        port = broker.bootstrap.rpartition(":")[2]
        given = [GIVEN | {"kafka.bootstrap.servers": f"{host}:{port}"} for host in ("127.0.0.1", "localhost")]
        readers = [StreamReader(one | {"kafka.holdfast.plan": "seen"}) for one in given]
        assert not collide(readers[0].claim(), readers[1].claim())
        for reader in readers:
            reader.reach()
        assert collide(readers[0].claim(), readers[1].claim())


@contextmanager
def sibling(**more: Any) -> Iterator[subprocess.Popen[str]]:
    """Another child of this process, with a claim of its own; it lives until its input ends."""
    program = (
        "import json, sys\n"
        "from holdfast.spark.sharing import Claim\n"
        "from holdfast.spark.siblings import Claimed\n"
        "claimed = Claimed(Claim.from_json(json.loads(sys.argv[1])))\n"
        "claimed.stake()\n"
        "print('staked', flush=True)\n"
        "for line in sys.stdin:\n"
        "    claimed.release()\n"
        "    print('released', flush=True)\n"
    )
    arguments = [sys.executable, "-c", program, json.dumps(claim(**more).to_json())]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "staked\n"
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


def test_a_reader_is_refused_while_an_older_one_reads_the_same() -> None:
    """Two queries on one DataFrame: 1,009 and 1,991 of 3,000 rows."""
    group = f"siblings-{os.getpid()}"
    with sibling(group=group) as older:
        late = Claimed(claim(group=group), parent=os.getpid())
        with pytest.raises(HoldfastError, match="GROUP_SHARED"):
            late.stake(grace_s=0)
        other = Claimed(claim(group="another"), parent=os.getpid())
        other.stake(grace_s=0)
        other.release()
        # One that is on its way out is waited for, as when a query is stopped and started again.
        waiting = threading.Thread(target=late.stake)
        waiting.start()
        assert older.stdin is not None
        older.stdin.write("release\n")
        older.stdin.flush()
        waiting.join(60)
        assert not waiting.is_alive()
        late.release()


def test_a_reader_that_was_killed_holds_nothing() -> None:
    group = f"killed-{os.getpid()}"
    with sibling(group=group) as older:
        older.kill()
        older.wait(60)
        late = Claimed(claim(group=group), parent=os.getpid())
        late.stake(grace_s=0)
        late.release()
    wait_for(lambda: not door.processes(KIND, os.getpid()))


# -- how PySpark comes to look


def test_pyspark_is_wrapped_when_it_comes_after_us() -> None:
    """Importing us loads no PySpark, so its module is wrapped on the way in; once, and with what it had."""
    program = (
        "import sys\n"
        "import holdfast.spark\n"
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "import pyspark.sql.streaming.readwriter as module\n"
        "assert module.DataStreamWriter.start.__wrapped__.__name__ == 'start'\n"
        "assert not hasattr(module.DataStreamWriter.start.__wrapped__, '__wrapped__')\n"
        "assert module.__file__ and module.__spec__.loader.get_source(module.__name__)\n"
        "assert not [one for one in sys.meta_path if type(one).__module__.startswith('holdfast')]\n"
        "import holdfast.spark.guard as guard\n"
        "guard.install()\n"
        "assert not hasattr(module.DataStreamWriter.start.__wrapped__, '__wrapped__')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_program_that_imports_nothing_of_ours_is_looked_at_too() -> None:
    """Symptom: a job that changes one word, `kafka` to `holdfast`, was refused for want of an import. An installed
    holdfast waits for PySpark's module instead (`holdfast_hook.pth`), and loads nothing before it is asked for."""
    program = (
        "import sys\n"
        "import pyspark.sql.streaming.readwriter as module\n"
        "assert 'holdfast' not in sys.modules\n"
        "reader = module.DataStreamReader\n"
        "reader.schema = lambda self, source: self\n"
        "class Plain(reader):\n"
        "    def __init__(self): self.options = {}\n"
        "    def option(self, key, value): self.options[key] = value; return self\n"
        "    _jreader = type('J', (), {'format': lambda self, source: self})()\n"
        "assert Plain().format('kafka').options == {} and 'holdfast' not in sys.modules\n"
        "assert Plain().format('holdfast').options == {'kafka.holdfast.plan': 'seen'}\n"
        "assert Plain().format('holdfast').options == {'kafka.holdfast.plan': 'seen'}\n"
        "assert hasattr(module.DataStreamWriter.start, '__wrapped__')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_only_our_format_is_marked_and_every_start_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self) -> None:
            self.options: dict[str, str] = {}

        def format(self, source: str) -> Reader:
            return self

        def option(self, key: str, value: str) -> Reader:
            self.options[key] = value
            return self

        def load(self, path: str) -> str:
            raise RuntimeError(f"An error occurred.\n: [DATA_SOURCE_NOT_FOUND] Failed to find: {path}. Make sure …")

    class Writer:
        _df = "frame"

        def start(self, path: str | None = None) -> str:
            return f"started {path}"

        def toTable(self, name: str) -> str:
            return f"table {name}"

    module: Any = SimpleNamespace(DataStreamReader=Reader, DataStreamWriter=Writer)
    guard.wrap(module)
    looked: list[Any] = []
    monkeypatch.setattr(guard, "check", looked.append)
    assert Reader().format("kafka").options == {}
    assert Reader().format("Holdfast").options == {"kafka.holdfast.plan": "seen"}
    assert Writer().start("x") == "started x"
    assert Writer().toTable("t") == "table t"
    assert looked == ["frame", "frame"]
    with pytest.raises(HoldfastError, match=r"WORKER_PYTHON: .*PYSPARK_PYTHON="):  # Spark's own says nothing of Python
        Reader().load("holdfast")
    with pytest.raises(RuntimeError, match="kafka"):
        Reader().load("kafka")
