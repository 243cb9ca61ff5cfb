"""`holdfast groups check` and `describe --watch` on living groups."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli_members import Members
from cli_world import Commands, end, fresh, spoken


def test_a_healthy_group_ends_with_0_and_the_low_latency_table(
    commands: Commands, members: Members, tmp_path: Path
) -> None:
    members.add("cooperative-sticky", "c0")
    file = tmp_path / "members.properties"
    file.write_text("session.timeout.ms=10000\nmax.poll.records=500\n")

    well = commands.fine("groups", "check", members.group, "--for", "1", "--settings", str(file))

    assert well.lines()[0] == f"Group {members.group}: well."
    assert "  [ok] state is Stable: Stable, 1 member." in well.lines()
    assert any(line.split()[:5] == ["session.timeout.ms", "45000", "10000", "10000", "yes"] for line in well.lines())
    assert any(line.split()[:5] == ["max.poll.records", "500", "50–100", "500", "no"] for line in well.lines())
    assert "Investigation" not in well.lines()


def test_an_eager_group_ends_with_1_the_finding_and_what_to_do(commands: Commands, members: Members) -> None:
    members.add("range", "c0")

    unwell = commands.run("groups", "check", members.group, "--for", "1")
    told = commands.run("groups", "check", members.group, "--for", "0", "-o", "json")

    assert unwell.code == told.code == 1
    assert "  [FINDING] cooperative assignor in use: range is eager: each rebalance stops everybody." in unwell.lines()
    assert "holdfast preflight" in unwell.out.decode() and "Investigation" in unwell.lines()
    assert (told.json()["well"], len(told.json()["investigation"])) == (False, 4)


def test_a_group_that_is_not_there_can_not_be_checked(commands: Commands) -> None:
    nobody = commands.run("groups", "check", "nobody", "--for", "0")

    assert nobody.code == 1 and "There is no group nobody" in nobody.err


@pytest.mark.slow
def test_watching_tells_who_joined_while_it_happens(commands: Commands, members: Members) -> None:
    members.add("cooperative-sticky", "c0")
    watching = commands.start("groups", "describe", members.group, "--watch", "--every", "0.05")
    (first,) = spoken(watching)
    assert f"{members.group}: state Stable  can-process yes" in first

    members.add("cooperative-sticky", "c1")
    said = ""
    while "c1@127.0.0.1 joined" not in said:
        (said,) = spoken(watching)
    watching.send_signal(signal.SIGINT)

    assert "rebalanced" in said and end(watching).code == 0


def test_watching_for_programs_is_one_object_a_look(commands: Commands) -> None:
    topic, group = fresh("orders"), fresh("billing")
    commands.fine("produce", topic, stdin=b"one\n")
    commands.fine("consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")

    watched = commands.fine("groups", "describe", group, "--watch", "--every", "0.05", "--for", "0.3", "-o", "json")

    rows = [json.loads(line) for line in watched.lines()]
    assert len(rows) >= 2
    assert {(row["state"], row["can_process"], row["lag"], row["rebalances"]) for row in rows} == {
        ("Empty", "no", 0, 0)
    }


def test_watching_nobody_is_an_error(commands: Commands) -> None:
    nobody = commands.run("groups", "describe", "nobody", "--watch", "--for", "0")

    assert nobody.code == 1 and "There is no group nobody" in nobody.err
