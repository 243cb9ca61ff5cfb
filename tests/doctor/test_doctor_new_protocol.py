"""Histories of the new consumer protocol (KIP-848), in the words of Kafka 4.1's coordinator and its Java client, as a
real group of both wrote them."""

from __future__ import annotations

import pytest

from holdfast.doctor import causes
from holdfast.doctor import finding as f
from holdfast.doctor.broker_lines import parse
from holdfast.doctor.events import EXPELLED, EXPIRED, LOADED, REPLACED, Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import History, history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan

CALM, SICK, SECOND, THIRD = (
    "ayKUCLgpSdeaL2Xt4RyM-w", "VuNJppH3TSCxjVCBvIKB1Q", "RAq0bKBVRI2EbDyJ6ihHpA", "oy0OGBIvTZSmX0CA/elEUg",
)  # fmt: skip


class Coordinator:
    """Writes a log of the new protocol's coordinator: each change bumps the epoch and computes a plan."""

    def __init__(self) -> None:
        self.epoch = 0
        self.lines: list[str] = []

    def say(self, at: float, text: str) -> None:
        minute, second = divmod(at, 60)
        self.lines.append(f"[2026-11-18 20:{25 + int(minute):02d}:{second:06.3f}".replace(".", ",") + "] INFO "
                          f"[GroupCoordinator id=1 topic=__consumer_offsets partition=0] [GroupId g] {text} "
                          "(org.apache.kafka.coordinator.group.GroupMetadataManager)")  # fmt: skip

    def changed(self, at: float, text: str) -> None:
        self.epoch += 1
        self.say(at, text)
        self.say(at, f"Bumped group epoch to {self.epoch} with metadata hash -5777795621934207948.")
        self.say(at + 0.001, f"Computed a new target assignment for epoch {self.epoch} with 'uniform' assignor in 0ms.")

    def join(self, at: float, member: str) -> None:
        self.changed(at, f"Member {member} joins the consumer group using the consumer protocol.")

    def leave(self, at: float, member: str) -> None:
        self.changed(at, f"Member {member} left the consumer group.")

    def expire(self, at: float, member: str) -> None:
        self.changed(at, f"Member {member} fenced from the group because the member session expired.")

    def history(self, client_log: str = "") -> History:
        events = scan("\n".join(self.lines).encode(), file="server.log").events
        events += scan(client_log.encode(), file="app.log").events
        return history_of("g", by_group(events)["g"])


def test_a_killed_member_is_a_crash_and_not_a_hang() -> None:
    """The reason in the coordinator's line was read up to its first letter, so every session that ended was told as
    somebody beyond max.poll.interval.ms, with the advice to poll fewer records."""
    log = Coordinator()
    log.join(0, CALM)
    log.join(2, SICK)
    log.expire(60, SICK)
    history = log.history()
    assert [one.trigger for one in history.disturbances] == [causes.CRASH]
    (crash,) = findings_of(history)
    assert (crash.kind, crash.culprit) == (f.CRASHES, SICK)
    # Clients of the new protocol refuse to start with session.timeout.ms: it is the group's setting.
    assert set(crash.change) == {"consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"}


@pytest.mark.parametrize(
    ("why", "kind"),
    [("the member session expired", EXPIRED), ("the member failed to transition from epoch 3 in time", EXPELLED)],
)
def test_why_a_member_was_fenced_is_read_to_its_end(why: str, kind: str) -> None:
    read = parse(f"[GroupCoordinator id=1] [GroupId g] Member {SICK} fenced from the group because {why}.", 0.0)
    assert isinstance(read, Event)
    assert (read.kind, read.said) == (kind, why)


@pytest.mark.parametrize(("line", "group", "members"), [
    ("[GroupCoordinator id=1 topic=__consumer_offsets partition=0] Loaded classic group g with 3 members.", "g", 3.0),
    ("[GroupCoordinator id=1 topic=__consumer_offsets partition=0] Loaded consumer group g with 2 members.", "g", 2.0),
    ("[GroupCoordinator 1]: Loading group metadata for g with generation 7 (kafka.coordinator.group.G)", "g", -1.0),
])  # fmt: skip
def test_a_group_that_a_coordinator_has_read_is_known(line: str, group: str, members: float) -> None:
    read = parse(line, 0.0)
    assert isinstance(read, Event)
    assert (read.kind, read.group, read.number, read.generation) == (LOADED, group, members, -1)
    assert parse(line.replace("with 3", "with 0").replace("with 2", "with 0").replace("tion 7", "tion 0"), 0.0) is True


def test_the_member_that_a_static_one_replaces_is_read_to_its_end() -> None:
    read = parse("[GroupCoordinator id=1] [GroupId g] Static member with instance id pod-0 re-joins the consumer group "
                 f"using the consumer protocol. Created a new member {SECOND} to replace the existing member {SICK}.",
                 0.0)  # fmt: skip
    assert isinstance(read, Event)
    assert (read.kind, read.member, read.instance, read.said) == (REPLACED, SECOND, "pod-0", SICK)


JAVA = "[Consumer clientId=hung, groupId=g] "


def test_a_member_that_hangs_again_under_its_old_id_is_a_storm() -> None:
    """A Java member of the new protocol keeps its member id for life. It was in the group once, by that id: whatever
    it did after its first leave was lost, and a storm was told as one hang."""
    log = Coordinator()
    log.join(0, CALM)
    said = [f"2026-11-18 20:25:02,100 INFO {JAVA}Member {SICK} with epoch 2 transitioned from JOINING to STABLE."]
    for number in range(3):
        log.join(2 + 20 * number, SICK)
        log.leave(14 + 20 * number, SICK)
        said.append(f"2026-11-18 20:25:{13 + 20 * number:02d},990 WARN {JAVA}Consumer poll timeout has expired. This "
                    "means the time between subsequent calls to poll() was longer than configured.")  # fmt: skip
    log.join(65, SICK)
    history = log.history("\n".join(said))
    assert [life.how for life in history.people.lives.values()] == ["", causes.TOO_SLOW, causes.TOO_SLOW,
                                                                    causes.TOO_SLOW, ""]  # fmt: skip
    (storm,) = findings_of(history)
    assert (storm.kind, storm.culprit, storm.times) == (f.STORM, "hung", 3)


def test_a_session_that_ends_after_a_restart_is_the_coordinators() -> None:
    """Both come back under the ids they had: what their first lives' end was is asked of those lives."""
    log = Coordinator()
    log.join(0, CALM)
    log.join(2, SICK)
    log.say(120, "Loaded consumer group g with 2 members.")
    log.lines[-1] = log.lines[-1].replace("[GroupId g] ", "")
    log.expire(126, SICK)
    log.join(130, SICK)
    assert [one.trigger for one in log.history().disturbances] == [causes.COORDINATOR, causes.JOIN]
    assert findings_of(log.history()) == []
