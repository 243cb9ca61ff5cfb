"""`holdfast doctor` of a living group, and what it refuses. Reading files needs Spark: tests/spark/doctor."""

from __future__ import annotations

from pathlib import Path

from cli_members import PARTITIONS, Members
from cli_world import Commands


def test_a_living_group_is_looked_at_and_drawn(commands: Commands, members: Members, tmp_path: Path) -> None:
    members.add("cooperative-sticky", "c0")
    members.add("cooperative-sticky", "c1")
    report = tmp_path / "report.html"

    well = commands.fine("doctor", "--group", members.group, "--for", "0", "--html", str(report))
    told = commands.fine("doctor", "--group", members.group, "--for", "0", "-o", "json").json()

    assert "Nothing is wrong with these groups." in well.lines()
    assert f"watching {members.group}" in well.err
    (row,) = told["groups"]
    assert (row["group"], row["members"], row["partitions"]) == (members.group, 2, PARTITIONS)
    assert row["cooperative"] is True
    html = report.read_text()
    assert all(f"{members.topic}-{number}" in html for number in range(PARTITIONS))


def test_what_can_not_be_meant_is_refused(commands: Commands, tmp_path: Path) -> None:
    nothing = commands.run("doctor")
    both = commands.run("doctor", str(tmp_path), "--bootstrap-server", "localhost:1")
    nobody = commands.run("doctor", "--group", "nobody", "--for", "0")
    nowhere = commands.run("doctor", str(tmp_path / "nowhere"))
    empty = commands.run("doctor", str(tmp_path))

    logs = str(tmp_path)
    for args, why in (
        (["--follow"], "paths or a topic"),
        ([logs, "--follow", "--topic", "t"], "one of the two"),
        (["--follow", "--topic", "t"], "lost with the process"),
        ([logs, "--follow", "--master", "sc://there"], "Spark Connect"),
        (["s3://logs", "--follow"], "object store"),
        ([logs, "--follow", "--parquet", "s3://tables"], "object store"),
        ([logs, "--follow", "--keep", "week"], "--keep is 'week'"),
        ([logs, "--topic", "t"], "are for --follow"),
    ):
        refused = commands.run("doctor", *args)
        assert refused.code == 2 and "DOCTOR_WHAT" in refused.err and why in refused.err, (args, refused.err)

    assert (nothing.code, both.code) == (2, 2)
    assert "DOCTOR_WHAT" in nothing.err and "DOCTOR_WHAT" in both.err
    assert nobody.code == 1 and "There is no group nobody" in nobody.err
    assert nowhere.code == 1 and "DOCTOR_NO_SUCH_PATH" in nowhere.err
    assert empty.code == 1 and "DOCTOR_NOTHING_TO_READ" in empty.err


def test_a_broker_that_is_not_there_is_not_called_a_rebalance(commands: Commands, tmp_path: Path) -> None:
    """Pointed at a wrong address, the doctor said that the group "was in a rebalance all the time": looks that failed
    counted as looks that saw nothing settled. The error of the look is told, as by `groups check`."""
    quick = tmp_path / "quick.properties"
    quick.write_text("bootstrap.servers=127.0.0.1:1\ndefault.api.timeout.ms=200\n")

    lost = commands.run("doctor", "--command-config", str(quick), "--group", "billing", "--for", "0")

    assert lost.code == 1 and "LOOKUP_TIMED_OUT" in lost.err and "127.0.0.1:1: Connection refused" in lost.err
    assert "rebalance" not in lost.err
