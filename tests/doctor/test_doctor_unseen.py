"""Histories that are told apart by who goes and who comes, whatever the members are called."""

from __future__ import annotations

import uuid
from dataclasses import replace

from coordinator_log import Coordinator

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor import finding as f
from holdfast.doctor.clocks import offsets_ms
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan

JAVA = "consumer-g-1"
"""Java's default: every process that has one consumer calls it so."""


def test_a_storm_is_one_finding_where_all_members_share_javas_default_client_id() -> None:
    """Each time it came back under a new member id, and its client id was everybody's: it was told as one hang after
    the other of strangers."""
    log = Coordinator()
    hung = log.begin(JAVA, JAVA, JAVA)[0]
    for number in range(4):
        at = 400.0 * (number + 1)
        log.leave(at, hung, "consumer poll timeout has expired.")
        hung = log.join(at + 40, JAVA)
    assert log.found() == {(f.STORM, JAVA)}
    (storm,) = findings_of(log.history())
    assert storm.times == 4


def test_a_crash_loop_is_seen_where_all_members_share_a_client_id() -> None:
    log = Coordinator()
    dead = log.begin("rdkafka", "rdkafka", "rdkafka")[0]
    for number in range(3):
        at = 100.0 * (number + 1)
        again = log.join(at, "rdkafka")
        log.expire(at + 40, dead)
        dead = again
    assert {kind for kind, _ in log.found()} == {f.CRASH_LOOP}


def test_a_rolling_deploy_is_one_whatever_the_new_pods_are_called() -> None:
    """A Deployment's pods have new names, and with a surge the new one comes before the old one goes: three leaves of
    strangers are a deploy, and no autoscaler."""
    log = Coordinator()
    old = log.begin("app-7d4f-a", "app-7d4f-b", "app-7d4f-c")
    for number, member in enumerate(old):
        log.join(120.0 + 60 * number, f"app-9c1e-{number}")
        log.leave(140.0 + 60 * number, member)
    assert {kind for kind, _ in log.found()} == {f.RESTARTS}


def test_a_rolling_deploy_with_one_client_id_for_all_is_one() -> None:
    log = Coordinator()
    old = log.begin(JAVA, JAVA, JAVA)
    for number, member in enumerate(old):
        log.leave(600.0 + 60 * number, member)
        log.join(630.0 + 60 * number, JAVA)
    assert {kind for kind, _ in log.found()} == {f.RESTARTS}


def test_one_librdkafka_member_that_leaves_and_returns_alone_is_the_storm() -> None:
    """librdkafka tells a coordinator no reason. One member again and again, and nobody else: it is that member."""
    log = Coordinator()
    member = log.begin("c0", "c1", "c2")[1]
    for number in range(3):
        log.leave(300.0 * (number + 1), member, "not provided")
        member = log.join(300.0 * (number + 1) + 60, "c1")
    assert log.found() == {(f.STORM, "c1")}


def test_a_member_that_gives_up_partitions_late_is_the_slow_one() -> None:
    """Under librdkafka the first round is quick, whatever the application does; what it is asked to give up it gives up
    when it polls. All of the wait was between two rounds, and nobody was named for it."""
    log = Coordinator(takes=0.3)
    (slow,) = log.begin("c0")
    log.join(60.0, "c1")
    log.round(65.0, f"Leader {slow} re-joining group during Stable; client reason: not provided")
    log.join(120.0, "c2")
    log.round(125.0, f"Updating metadata for member {slow} during Stable; client reason: not provided")
    assert log.found() == {(f.SLOW_LISTENER, "c0")}


def test_a_java_member_that_gives_up_partitions_late_is_the_slow_one() -> None:
    """Java says why it rejoins, so its second round was taken for a usual handover: nobody was named, however long its
    listener took. Its own log has the lines before and after the call."""
    log = Coordinator(takes=0.3)
    (slow,) = log.begin("c0")
    for number in (1, 2):
        log.join(60.0 * number, f"c{number}")
        log.round(60.0 * number + 5.0, f"Updating metadata for member {slow} during Stable; client reason: need to "
                   "revoke partitions [t-1] as indicated by the current assignment and re-join")  # fmt: skip
    assert log.found() == {(f.SLOW_LISTENER, "c0")}


def test_a_java_listener_is_timed_by_the_lines_around_it() -> None:
    java = "[Consumer clientId=c0, groupId=g] "
    said = [
        f"2026-11-18 20:2{minute}:{second},307 INFO {java}{text}"
        for minute in (5, 6)
        for second, text in (
            ("54", "Revoke previously assigned partitions [t-2, t-3]"),
            ("55", "Request joining group due to: group is already rebalancing"),
            ("58", "Request joining group due to: need to revoke partitions [t-2, t-3] as indicated by the current"),
            ("58", "(Re-)joining group"),
        )
    ]
    events = by_group(scan("\n".join(said).encode(), file="app.log").events)["g"]
    (slow,) = findings_of(history_of("g", events))
    assert (slow.kind, slow.culprit, slow.times) == (f.SLOW_LISTENER, "c0", 2)
    assert "its listener took up to 4.0 s" in slow.what


def test_an_autoscaler_is_told_from_a_deploy_by_who_goes() -> None:
    log = Coordinator()
    log.begin("c0", "c1")
    for number in range(4):
        extra = log.join(100.0 + 120 * number, f"extra-{number}")
        log.leave(160.0 + 120 * number, extra)
    assert {kind for kind, _ in log.found()} == {f.FLAPPING}


def test_a_group_that_is_killed_as_a_whole_is_not_said_to_crash() -> None:
    """The machine was switched off: sessions end one after the other, and nobody was left to be disturbed."""
    log = Coordinator()
    members = log.begin("c0", "c1", "c2")
    for number, member in enumerate(members):
        log.expire(500.0 + number, member)
    assert log.found() == set()
    assert log.history().disturbances == []


def test_a_log_that_begins_in_the_middle_counts_its_first_rebalance() -> None:
    """Logs rotate: what is first in the file is not the group's beginning, if its generation says so."""
    log = Coordinator(generation=41, members=[f"c0-{uuid.UUID(int=99)}"])
    log.join(10.0, "c1")
    (first,) = log.history().rebalances
    assert first.trigger == causes.JOIN


def test_one_join_and_one_leave_in_an_hour_are_no_finding() -> None:
    log = Coordinator()
    log.begin("c0", "c1", "c2")
    log.leave(1_800.0, log.join(900.0, "c3"))
    assert log.found() == set()


def test_a_deploys_restarts_are_paired_in_the_order_in_which_they_happened() -> None:
    """A member that stays has no time at which it left. Sorted by it, members before and after that one stayed in the
    order of their joins: one that left later was paired with the replacement of an earlier one, and the deploy was
    said to keep members away for a minute."""
    log = Coordinator()
    last, _, first = log.begin(JAVA, JAVA, JAVA)
    log.leave(100.0, first)
    log.join(110.0, JAVA)
    log.leave(160.0, last)
    log.join(170.0, JAVA)
    (restarts,) = findings_of(log.history())
    assert restarts.kind == f.RESTARTS
    assert "2 members were restarted or replaced, away for up to 10 s" in restarts.what


def test_generations_that_begin_at_one_again_put_no_clock_off() -> None:
    """A deleted group, or one that its brokers forgot, counts from 1 again. A client that started then joined
    generation 1 a day after the first one of that number, and its whole log was put back by a day."""
    day_ms = 86_400_000.0
    told = [
        Event(at_ms=at_ms, kind=e.GENERATION, source=e.BROKER, generation=1, file="b.log") for at_ms in (0.0, day_ms)
    ]
    heard = Event(at_ms=day_ms + 10, kind=e.JOINED, source=e.JAVA, generation=1, client="c", file="new.log")
    assert offsets_ms([*told, heard]) == {}
    late = replace(heard, at_ms=heard.at_ms + 2_000)
    assert offsets_ms([*told, late]) == {"new.log": 2_010.0}


def test_a_stateful_sets_last_pod_that_comes_and_goes_is_an_autoscaler() -> None:
    """It has the same name each time, so it was told to be beyond max.poll.interval.ms; but it says that it is being
    closed."""
    log = Coordinator()
    log.begin("app-0", "app-1")
    for number in range(3):
        log.leave(160.0 + 120 * number, log.join(100.0 + 120 * number, "app-2"), "the consumer is being closed")
    assert log.found() == {(f.FLAPPING, "app-2")}
