"""The log's reader and writer, and the options that travel to a member program."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.members import MemberLog, MemberOptions
from holdfast.testing.members.log import LogWriter
from holdfast.testing.members.options import parse_arguments


def test_a_log_is_read_as_it_grows_and_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = MemberLog("a", path)
    assert log.refresh().records == [], "no file yet"

    path.write_text("#assigned 1 0\n0 5 10\n0 6 1")
    assert [record.offset for record in log.refresh().records] == [5]
    with path.open("a") as file:
        file.write("1\n#revoked 12 0\n")

    assert [(record.offset, record.time_ms) for record in log.refresh().records] == [(5, 10.0), (6, 11.0)]
    assert log.owned == frozenset()


def test_what_the_writer_writes_the_reader_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    writer = LogWriter(path)
    writer.partitions("assigned", {2, 1})
    writer.records([(1, 7), (2, 9)])
    writer.event("commit-failed", "two\nlines")
    writer.partitions("revoked", [])
    writer.close()

    log = MemberLog("a", path).refresh()

    assert log.owned == {1, 2}
    assert [(record.partition, record.offset) for record in log.records] == [(1, 7), (2, 9)]
    assert [(event.name, event.text) for event in log.events][1:] == [("commit-failed", "two lines"), ("revoked", "")]
    assert log.events[0].time_ms <= log.records[0].time_ms <= log.events[1].time_ms


def test_options_survive_the_command_line() -> None:
    options = MemberOptions(
        bootstrap="127.0.0.1:1",
        group="g",
        topic="t",
        assignors=("cooperative-sticky", "range"),
        session_ms=6000,
        instance_id="i-1",
        commit_every_ms=0,
        join_on_command=True,
        config={"fetch.min.bytes": "1", "sasl.jaas.config": "a=b"},
    )

    assert parse_arguments([*options.arguments(), "--log", "x.log"]) == (options, Path("x.log"))


def test_settings_that_were_not_given_are_not_passed_on() -> None:
    words = MemberOptions(bootstrap="b", group="g", topic="t").arguments()

    assert not {"--session-ms", "--heartbeat-ms", "--assignor", "--instance-id", "--config"} & set(words)
