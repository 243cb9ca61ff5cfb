"""Members that die, hang, or lose their coordinator: what is told of each, and what it cost."""

from __future__ import annotations

from datetime import UTC, datetime

from coordinator_log import START_S, Coordinator

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor import finding as f
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.scanning import scan


def test_an_instance_that_comes_back_again_and_again_unfenced_crashes() -> None:
    log = Coordinator()
    log.begin("c0", "c1")
    before = log.instance(5.0, "pod-0")
    for number in range(3):
        before = log.replace(60.0 + 20 * number, "pod-0", before)
    assert log.found() == {(f.CRASH_LOOP, "pod-0")}


def test_a_process_that_dies_again_and_again_is_a_crash_loop_also_under_a_watchdog() -> None:
    """Symptom: twelve kills in two minutes were "many rebalances" with the advice to look at the table. Cause: crashes
    were looked for in sessions that end, and holdfast's watchdog leaves in a dead process's name before that."""
    log = Coordinator()
    member = log.begin("c0", "c1")[1]
    for number in range(3):
        at = 60.0 * (number + 1)
        log.leave(at, member, "its process ended without closing the consumer (reported by its watchdog)")
        member = log.join(at + 5, "c1")
    assert log.found() == {(f.CRASH_LOOP, "c1")}
    (loop,) = findings_of(log.history())
    assert loop.times == 3 and "Find why it dies" in loop.do and not loop.change


def test_a_process_that_was_killed_once_under_a_watchdog_is_no_finding() -> None:
    log = Coordinator()
    member = log.begin("c0", "c1")[1]
    log.leave(60.0, member, "its process ended without closing the consumer (reported by its watchdog)")
    log.join(65.0, "c1")
    assert log.found() == set()


def test_the_advised_poll_interval_is_of_the_groups_own_size() -> None:
    """Symptom: to a group with six seconds the doctor advised max.poll.interval.ms=606020. Cause: where no client says
    its limit, Kafka's default of five minutes was taken, also for members that lived for ten seconds."""
    log = Coordinator()
    member = log.begin("c0", "c1")[1]
    for number in range(2):
        at = 20.0 * (number + 1)
        log.leave(at, member, "consumer poll timeout has expired.")
        member = log.join(at + 5, "c1")
    (storm,) = findings_of(log.history())
    assert storm.kind == f.STORM
    assert int(storm.change["max.poll.interval.ms"]) <= 2 * (20_000 + 5_000)


def test_the_advised_poll_interval_of_a_member_that_was_put_out_is_no_longer_than_it_lived() -> None:
    """Who does not join a round in time is put out: it exceeded its interval, and no log tells it."""
    log = Coordinator()
    member = log.begin("c0", "c1")[1]
    for number in range(2):
        at = 20.0 * (number + 1)
        log.join(at, f"new-{number}")
        log.say(at + 0.5, f"Group g removed dynamic members who haven't joined: [{member}]")
        member = log.join(at + 5, "c1")
    (storm,) = (one for one in findings_of(log.history()) if one.kind == f.STORM)
    assert storm.culprit == "c1"
    assert int(storm.change["max.poll.interval.ms"]) <= 2 * (20_000 + 5_000)


def test_what_a_silent_member_may_have_owned_did_not_stand_still() -> None:
    """Symptom: the report drew pauses of ten minutes for partitions that a librdkafka member read all the while.
    Cause: only one of two members left a trace, and whatever that one did not hold counted as held by nobody. Rule:
    between two rebalances somebody of whom nothing is told may have it; what lies within one rebalance is a pause."""
    log = Coordinator()
    member = log.begin("silent", "told")[1]
    told = [Event(at_ms=(START_S + 4) * 1000, kind=e.ADDED, group="g", member=member, client="told",
                  partitions="orders-0", source=e.TRACE)]  # fmt: skip
    for number in range(2):
        at = 600.0 * (number + 1)
        log.leave(at, member)
        member = log.join(at + 590, "told")
        told.append(Event(at_ms=(START_S + at + 592) * 1000, kind=e.ADDED, group="g", member=member, client="told",
                          partitions="orders-0", source=e.TRACE))  # fmt: skip

    history = log.history(*told)

    assert [pause.ms for pause in history.lanes.pauses if pause.ms > 60_000] == []
    assert sum(one.partition_ms for one in history.disturbances) < 60_000


def test_a_coordinators_restart_is_no_members_fault() -> None:
    """librdkafka gives its membership up when it finds no coordinator for its session, and comes back under another
    id; the coordinator, started again, waits a session for the old one. That was a crash loop of the member."""
    log = Coordinator()
    lost = log.begin("c0", "c1", "c2")[0]
    for restart in range(2):
        at = 200.0 * (restart + 1)
        log.say(at, "Loaded classic group g with 3 members.")
        again = log.join(at + 0.2, "c0")
        log.expire(at + 6.0, lost)
        lost = again
    assert log.found() == set()
    assert {one.trigger for one in log.history().disturbances} <= {causes.COORDINATOR, causes.JOIN}


def test_who_crashes_long_after_a_restart_did_so_by_itself() -> None:
    log = Coordinator()
    dead = log.begin("c0", "c1", "c2")[0]
    log.say(60.0, "Loaded classic group g with 3 members.")
    for crash in range(2):
        at = 200.0 * (crash + 1)
        again = log.join(at, "c0")
        log.expire(at + 5.0, dead)
        dead = again
    assert log.found() == {(f.CRASH_LOOP, "c0")}


def test_a_static_member_that_hangs_is_no_crash() -> None:
    """It does not leave: its session ends later, as if it had crashed. Its own log says what happened."""
    log = Coordinator()
    log.begin("c0")
    member = log.instance(3.0, "pod-1")
    log.members.append(member)
    said = ""
    for number in range(2):
        at = 100.0 * (number + 1)
        stamp = datetime.fromtimestamp(START_S + at - 6.0, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        said += (
            f"{stamp} WARN [Consumer instanceId=pod-1, clientId=hung, groupId=g] consumer poll timeout has expired.\n"
        )
        log.expire(at, member)
        member = log.instance(at + 5.0, "pod-1")
        log.members.append(member)
    history = log.history(*scan(said.encode(), file="app.log").events)
    assert {(one.kind, one.culprit) for one in findings_of(history)} == {(f.STORM, "pod-1")}
    assert [one.trigger for one in history.disturbances] == [causes.TOO_SLOW] * 2


def test_what_stood_still_before_a_crash_was_noticed_is_in_the_cost() -> None:
    """Kafka 4 does not say how long a session is: the cost was that of the rebalance alone, and was said to be
    the most. A session is at most Kafka's default, and at most as long as the member was there."""
    log = Coordinator(takes=0.5)
    log.begin("c0", "c1")
    for number in range(2):
        at = 100.0 * (number + 1)
        log.expire(at + 8.0, log.join(at, "icy"))
    (crash,) = findings_of(log.history())
    assert (crash.kind, crash.culprit, crash.measured) == (f.CRASHES, "icy", False)
    assert 16_000 <= crash.cost_ms < 20_000
    assert crash.change == {}, "a session of 8 s at the most is not made shorter by 10 s"


def test_what_stood_still_before_a_hang_was_noticed_is_in_the_cost() -> None:
    """Java does not log its max.poll.interval.ms."""
    log = Coordinator(takes=0.5)
    log.begin("c0", "c1")
    for number in range(2):
        at = 100.0 * (number + 1)
        log.leave(at + 20.0, log.join(at, "hung"), "consumer poll timeout has expired.")
    (storm,) = findings_of(log.history())
    assert (storm.kind, storm.measured) == (f.STORM, False)
    assert 40_000 <= storm.cost_ms < 50_000


def test_deploys_of_static_members_are_no_crash_loop() -> None:
    """Each deploy replaces each instance once, within its session: the doctor itself advises that. From the third
    deploy on, every instance was told to crash in a loop."""
    log = Coordinator()
    log.begin("other")
    ids = {f"pod-{number}": log.instance(5.0 + number, f"pod-{number}") for number in range(3)}
    for deploy in range(4):
        for number, name in enumerate(ids):
            ids[name] = log.replace(100.0 + 600 * deploy + 20 * number, name, ids[name])
    assert log.found() == set()


def test_an_instance_that_crashes_between_deploys_is_told_alone() -> None:
    log = Coordinator()
    ids = {f"pod-{number}": log.instance(5.0 + number, f"pod-{number}") for number in range(3)}
    for number, name in enumerate(ids):
        ids[name] = log.replace(100.0 + 20 * number, name, ids[name])
    for crash in range(3):
        ids["pod-1"] = log.replace(300.0 + 60 * crash, "pod-1", ids["pod-1"])
    assert log.found() == {(f.CRASH_LOOP, "pod-1")}


def test_one_static_member_that_is_deployed_every_day_does_not_crash() -> None:
    log = Coordinator()
    log.begin("other")
    member = log.instance(5.0, "pod-0")
    for day in range(5):
        member = log.replace(100.0 + 86_400 * day, "pod-0", member)
    assert log.found() == set()
