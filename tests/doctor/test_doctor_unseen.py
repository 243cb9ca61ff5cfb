"""Histories that are told apart by who goes and who comes, whatever the members are called.

They are written in the words of Kafka 4.1's coordinator, as the samples have them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor import finding as f
from holdfast.doctor.clocks import offsets_ms
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import History, history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan

START_S = 1_714_557_600.0


@dataclass
class Coordinator:
    """Writes a coordinator's log. Times are seconds from the start; each change is a rebalance of `takes` seconds."""

    takes: float = 1.0
    generation: int = 0
    members: list[str] = field(default_factory=list)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def say(self, at: float, text: str) -> None:
        self.lines.append((at, f"[GroupCoordinator id=1 topic=__consumer_offsets partition=0] {text} (o.a.k.G)"))

    def _round(self, at: float, reason: str) -> None:
        old = self.generation
        self.say(at, f"Preparing to rebalance group g in state Stable with old generation {old} (reason: {reason}).")
        self.generation += 1
        self.say(at + self.takes, f"Stabilized group g generation {self.generation} with {len(self.members)} members.")
        leader, count = self.members[0], len(self.members)
        self.say(at + self.takes + 0.01, f"Assignment received from leader {leader} for group g for generation "
                 f"{self.generation}. The group has {count} members, 0 of which are static.")  # fmt: skip

    def join(self, at: float, client: str) -> str:
        member = f"{client}-{uuid.UUID(int=len(self.lines) + 1)}"
        self.say(at, f"Dynamic member with unknown member id joins group g in Stable state. Created a new member id "
                 f"{member} and requesting the member to rejoin with this id.")  # fmt: skip
        self.members.append(member)
        self._round(at + 0.01, f"Adding new member {member} with group instance id null; client reason: not provided")
        return member

    def begin(self, *clients: str) -> list[str]:
        """All come to the first round."""
        return [self.join(number * 2.0, client) for number, client in enumerate(clients)]

    def leave(self, at: float, member: str, reason: str = "the consumer is being closed") -> None:
        self.say(at, f"[Group g] Member {member} has left group through explicit `LeaveGroup` request; client reason: "
                 f"{reason}")  # fmt: skip
        self.members.remove(member)
        if self.members:
            self._round(at + 0.001, f"explicit `LeaveGroup` request for ({member}) members.")
        else:
            self.say(at + 0.001, f"Group g with generation {self.generation} is now empty.")

    def expire(self, at: float, member: str) -> None:
        self.say(at, f"Member {member} in group g has failed, removing it from the group.")
        self.members.remove(member)
        if self.members:
            self._round(at + 0.001, f"removing member {member} on heartbeat expiration.")
        else:
            self.say(at + 0.001, f"Group g with generation {self.generation} is now empty.")

    def history(self, *told: Event) -> History:
        """`told` is what members' traces say."""
        text = ""
        for at, line in sorted(self.lines, key=lambda one: one[0]):
            stamp = datetime.fromtimestamp(START_S + at, UTC).strftime("[%Y-%m-%d %H:%M:%S,%f")[:-3]
            text += f"{stamp}] INFO {line}\n"
        read = scan(text.encode(), file="server.log")
        assert not read.strange, read.strange
        return history_of("g", by_group([*read.events, *told])["g"])

    def found(self) -> set[tuple[str, str]]:
        return {(one.kind, one.culprit) for one in findings_of(self.history())}


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
    log._round(65.0, f"Leader {slow} re-joining group during Stable; client reason: not provided")
    log.join(120.0, "c2")
    log._round(125.0, f"Updating metadata for member {slow} during Stable; client reason: not provided")
    assert log.found() == {(f.SLOW_LISTENER, "c0")}


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


def test_an_instance_that_comes_back_again_and_again_unfenced_crashes() -> None:
    log = Coordinator()
    log.begin("c0", "c1")
    before = f"pod-0-{uuid.UUID(int=500)}"
    log.say(5.0, f"Static member with groupInstanceId=pod-0 and unknown member id joins group g in Stable state. "
                 f"Created a new member id {before} for this member and added to the group.")  # fmt: skip
    for number in range(3):
        log.say(60.0 + 20 * number, "Static member with groupInstanceId=pod-0 and unknown member id joins group g in "
                f"Stable state. Replacing previously mapped member {before} with this groupInstanceId.")  # fmt: skip
        before = f"pod-0-{uuid.UUID(int=501 + number)}"
    assert log.found() == {(f.CRASH_LOOP, "pod-0")}


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
