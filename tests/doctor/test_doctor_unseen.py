"""Histories that are told apart by who goes and who comes, whatever the members are called.

They are written in the words of Kafka 4.1's coordinator, as the samples have them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.doctor import causes
from holdfast.doctor import finding as f
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

    def instance(self, at: float, name: str) -> str:
        """A static member joins for the first time."""
        member = f"{name}-{uuid.UUID(int=len(self.lines) + 1)}"
        self.say(at, f"Static member with groupInstanceId={name} and unknown member id joins group g in Stable state. "
                 f"Created a new member id {member} for this member and added to the group.")  # fmt: skip
        return member

    def replace(self, at: float, name: str, before: str) -> str:
        """It comes back within its session: no rebalance."""
        self.say(at, f"Static member with groupInstanceId={name} and unknown member id joins group g in Stable state. "
                 f"Replacing previously mapped member {before} with this groupInstanceId.")  # fmt: skip
        return f"{name}-{uuid.UUID(int=len(self.lines) + 1)}"

    def history(self, member_log: str = "") -> History:
        text = ""
        for at, line in sorted(self.lines, key=lambda one: one[0]):
            stamp = datetime.fromtimestamp(START_S + at, UTC).strftime("[%Y-%m-%d %H:%M:%S,%f")[:-3]
            text += f"{stamp}] INFO {line}\n"
        read = scan(text.encode(), file="server.log")
        assert not read.strange, read.strange
        told = scan(member_log.encode(), file="app.log").events
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


def test_a_java_member_that_gives_up_partitions_late_is_the_slow_one() -> None:
    """Java says why it rejoins, so its second round was taken for a usual handover: nobody was named, however long its
    listener took. Its own log has the lines before and after the call."""
    log = Coordinator(takes=0.3)
    (slow,) = log.begin("c0")
    for number in (1, 2):
        log.join(60.0 * number, f"c{number}")
        log._round(60.0 * number + 5.0, f"Updating metadata for member {slow} during Stable; client reason: need to "
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


def test_an_instance_that_comes_back_again_and_again_unfenced_crashes() -> None:
    log = Coordinator()
    log.begin("c0", "c1")
    before = log.instance(5.0, "pod-0")
    for number in range(3):
        before = log.replace(60.0 + 20 * number, "pod-0", before)
    assert log.found() == {(f.CRASH_LOOP, "pod-0")}


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


def test_a_stateful_sets_last_pod_that_comes_and_goes_is_an_autoscaler() -> None:
    """It has the same name each time, so it was told to be beyond max.poll.interval.ms; but it says that it is being
    closed."""
    log = Coordinator()
    log.begin("app-0", "app-1")
    for number in range(3):
        log.leave(160.0 + 120 * number, log.join(100.0 + 120 * number, "app-2"), "the consumer is being closed")
    assert log.found() == {(f.FLAPPING, "app-2")}


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
    history = log.history(said)
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
