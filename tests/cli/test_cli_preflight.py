"""`holdfast preflight` on live groups: of holdfast members, of librdkafka's, and of both."""

from __future__ import annotations

import time

import confluent_kafka as ck
from cli_members import Members
from cli_world import Commands, fresh

from holdfast.testing import Broker
from patience import wait_for


def test_a_group_on_range_may_begin_with_the_first_bounce(commands: Commands, members: Members) -> None:
    members.add("range", "c0")
    members.add("range", "c1")
    ended = commands.fine("preflight", members.group, "--to", "cooperative-sticky")
    text = ended.out.decode()
    assert f"Group {members.group}: Stable, runs range, to cooperative-sticky." in text
    assert "Stage: before the first bounce." in text
    assert "Next step (bounce 1): safe. The first bounce may begin: set " in text
    assert "partition.assignment.strategy=cooperative-sticky,range" in text
    assert commands.run("preflight", members.group, "--to", "cooperative-sticky", "--bounce", "2").code == 1


def test_in_the_first_bounce_it_names_who_is_in_the_way(commands: Commands, members: Members) -> None:
    members.add("range", "old")
    members.add("cooperative-sticky,range", "new")
    ended = commands.run("preflight", members.group, "--to", "cooperative-sticky", "-o", "json")
    found = ended.json()
    assert (ended.code, found["stage"], found["bounce"], found["safe"]) == (1, "in-first", 1, False)
    (blocked,) = found["blocking"]
    assert blocked["why"] == "lists range and not cooperative-sticky"
    (old,) = [one for one in found["members"] if one["client_id"] == "old"]
    assert blocked["member"] == old["member"] and old["lists"] == ["range"]


def test_after_the_first_bounce_the_second_is_safe_and_so_is_the_way_back(commands: Commands, members: Members) -> None:
    members.add("cooperative-sticky,range", "c0")
    members.add("cooperative-sticky,range", "c1")
    up = commands.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    down = commands.fine("preflight", members.group, "--to", "range", "-o", "json").json()
    assert up["stage"] == down["stage"] == "after-first"
    assert "partition.assignment.strategy=cooperative-sticky and" in up["do"]
    assert "partition.assignment.strategy=range and" in down["do"]
    assert "become cooperative by themselves" in up["do"] and "by themselves" not in down["do"]


def test_of_librdkafka_members_the_coordinator_is_asked_and_nobody_notices(
    commands: Commands, members: Members, broker: Broker
) -> None:
    """Other clients don't say what they list; a join that offers one assignor alone is answered without a round."""
    members.add("range,roundrobin", "a", ck.Consumer)
    members.add("range", "b", ck.Consumer)
    generation, rounds = broker.group(members.group).generation, members.rounds
    found = commands.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert (found["stage"], found["protocol"], len(found["unsaid"])) == ("before-first", "range", 2)
    assert "librdkafka's own members can't list both" in found["do"]
    second = commands.run("preflight", members.group, "--to", "cooperative-sticky", "--bounce", "2", "-o", "json")
    assert second.code == 1 and len(second.json()["blocking"]) == 2
    time.sleep(0.3)  # three heartbeats: whoever had to rejoin would have heard
    seen = broker.group(members.group)
    assert (seen.generation, members.rounds, len(seen.members)) == (generation, rounds, 2)
    assert seen.state == "Stable"


def test_in_a_mixed_group_the_coordinator_knows_that_all_are_through_the_first_bounce(
    commands: Commands, members: Members
) -> None:
    members.add("cooperative-sticky,range", "ours")
    members.add("cooperative-sticky", "theirs", ck.Consumer)
    found = commands.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert (found["stage"], found["bounce"]) == ("in-second", 2)
    back = commands.run("preflight", members.group, "--to", "range", "-o", "json")
    assert back.code == 1, "theirs does not list range: the way back begins with its first bounce"
    assert back.json()["stage"] == "in-first"
    assert [one["why"] for one in back.json()["blocking"]] == [
        "does not say what it lists; at least one member does not list range"
    ]


def test_without_the_probe_what_nobody_says_is_not_safe(commands: Commands, members: Members) -> None:
    members.add("cooperative-sticky,range", "ours")
    members.add("range", "theirs", ck.Consumer)
    ended = commands.run("preflight", members.group, "--to", "cooperative-sticky", "--no-probe", "-o", "json")
    assert (ended.code, ended.json()["stage"]) == (1, "in-first")


def test_a_group_that_has_arrived_needs_nothing(commands: Commands, members: Members) -> None:
    members.add("cooperative-sticky", "c0")
    found = commands.fine("preflight", members.group, "--to", "cooperative-sticky")
    assert "Stage: done." in found.out.decode()
    assert "Next step: safe. Nothing: the group runs cooperative-sticky." in found.out.decode()


def test_a_group_that_nobody_is_in_may_start_with_anything(
    commands: Commands, members: Members, broker: Broker
) -> None:
    members.add("range", "c0")
    members.stop()
    wait_for(lambda: broker.group(members.group).state == "Empty", "everybody leaves")
    found = commands.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert (found["stage"], found["next_bounce"]) == ("empty", None)


def test_wrong_use_and_unknown_groups_are_told_apart_by_their_exit_codes(commands: Commands) -> None:
    wrong = commands.run("preflight", "g", "--to", "no-such-assignor")
    assert wrong.code == 2 and "UNKNOWN_STRATEGY" in wrong.err
    assert commands.run("preflight", "g").code == 2
    unknown = commands.run("preflight", fresh("nobody"), "--to", "range")
    assert unknown.code == 1 and "GROUP_ID_NOT_FOUND" in unknown.err and "Check its name" in unknown.err
