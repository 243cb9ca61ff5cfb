"""What the means of testing refuse or promise without starting anything."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.testing.kafka import RealKafka, new_cluster_id
from holdfast.testing.kafka_node import answers, free_port, serves_groups
from holdfast.testing.members import MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from holdfast.testing.tools import ToolResult


def test_racks_must_be_one_per_broker() -> None:
    with pytest.raises(HoldfastError, match="KAFKA_RACKS_MISMATCH"):
        RealKafka(brokers=3, racks=["a"])


def test_a_cluster_id_never_looks_like_an_option() -> None:
    """Symptom: one start in 64 failed with "expected one argument". Cause: an id may begin with a dash, which the
    storage tool takes for an option. Invariant: ours never do."""
    ids = [new_cluster_id() for _ in range(2000)]

    assert {len(each) for each in ids} == {22}
    assert not [each for each in ids if each.startswith("-")]


def test_a_free_port_lies_outside_the_range_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert free_port() < lowest


def test_a_table_is_read_by_its_columns_whatever_stands_around_it() -> None:
    said = ToolResult(
        returncode=0, stdout="\nGROUP TOPIC LAG\ng t 3\n\nGROUP TOPIC LAG\nh t -\nodd line\n", stderr="warning"
    )

    assert said.table() == [{"GROUP": "g", "TOPIC": "t", "LAG": "3"}, {"GROUP": "h", "TOPIC": "t", "LAG": "-"}]


def test_a_port_on_which_nobody_listens_answers_nothing() -> None:
    port = free_port()

    assert not answers(port)
    assert not serves_groups(port)


def test_a_kind_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    options = MemberOptions(bootstrap="127.0.0.1:1", group="g", topic="t")

    with pytest.raises(HoldfastError, match="MEMBER_KIND_UNKNOWN"):
        MemberProcess("sarama", options, folder=tmp_path)
    with pytest.raises(HoldfastError, match="only java takes several"):
        MemberProcess("confluent", options, members=2, folder=tmp_path)


@pytest.mark.slow
def test_a_producer_whose_records_are_not_acknowledged_fails_when_it_stops() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    producer = SteadyProducer(nobody, "t", partitions=1, rate=1000, config={"message.timeout.ms": 50})
    producer.start()
    while producer.sent < 5:
        time.sleep(0.01)

    with pytest.raises(HoldfastError, match=r"PRODUCE_FAILED.*failed"):
        producer.stop()
    assert producer.acknowledged() == {0: []}


def test_a_member_that_was_terminated_leaves_no_pipe_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: tests that were through failed later, with a ResourceWarning about a pipe. Cause: terminate() waited for
    the process and kept our end of its standard input. Invariant: whoever ends a member holds nothing of it."""
    started: list[Any] = []
    start = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    options = MemberOptions(bootstrap="127.0.0.1:1", group="g", topic="t", join_on_command=True)
    member = MemberProcess("confluent", options, folder=tmp_path)
    member.wait_ready()

    member.terminate()

    assert [process.stdin.closed for process in started] == [True]
