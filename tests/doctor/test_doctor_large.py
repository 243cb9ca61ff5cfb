"""Large histories: what is examined costs in proportion to the log, and what is kept is bounded.

Work is counted in lines of Python that run, so no clock decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from holdfast.doctor import causes, people
from holdfast.doctor import events as e
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import history_of
from holdfast.doctor.people import people_of
from lines_run import lines_run

MINUTE_MS = 60_000.0


def from_broker(at_ms: float, kind: str, member: str = "", **told: object) -> Event:
    event = Event(at_ms=at_ms, kind=kind, source=e.BROKER, group="g", member=member, level="classic", file="b.log")
    event.client = member.partition("-")[0]
    for name, value in told.items():
        setattr(event, name, value)
    return event


def a_round(at_ms: float, kind: str, member: str, reason: str, generation: int, gone: str = "") -> Iterator[Event]:
    yield from_broker(at_ms, kind, member)
    yield from_broker(at_ms + 1, e.PREPARING, member, said=reason, generation=generation - 1)
    if gone:
        yield from_broker(at_ms + 30_000, e.EXPIRED, gone)
    yield from_broker(at_ms + 30_001, e.GENERATION, generation=generation, number=20.0)
    yield from_broker(at_ms + 30_010, e.STABLE, generation=generation, number=20.0)


def crash_loop(count: int) -> list[Event]:
    """A process that is killed and back at once, again and again: each round waits for its dead predecessor."""
    events: list[Event] = []
    for n in range(count):
        gone = f"worker-{n - 1}" if n else ""
        events += a_round(n * MINUTE_MS, e.ARRIVED, f"worker-{n}", f"Adding new member worker-{n}", n + 1, gone)
    return events


def crashing_pods(count: int) -> list[Event]:
    """The same where each new process has a client id of its own."""
    events: list[Event] = []
    for n in range(count):
        gone = f"pod{n - 1}-{n - 1}" if n else ""
        events += a_round(n * MINUTE_MS, e.ARRIVED, f"pod{n}-{n}", f"Adding new member pod{n}-{n}", n + 1, gone)
    return events


def storm(count: int) -> list[Event]:
    """Members that share librdkafka's default client id, each beyond max.poll.interval.ms again and again."""
    events: list[Event] = []
    for n in range(count):
        at_ms, member = n * MINUTE_MS, f"rdkafka-{n}"
        events += a_round(at_ms, e.ARRIVED, member, f"Adding new member {member}", 2 * n + 1)
        slow = Event(at_ms=at_ms + 39_000, kind=e.TOO_SLOW, source=e.LIBRDKAFKA, group="g", client="rdkafka")
        slow.said = "max.poll.interval.ms=300000"
        reason = f"explicit `LeaveGroup` request for ({member}) members."
        events += [slow, *a_round(at_ms + 39_001, e.LEFT, member, reason, 2 * n + 2)]
    return events


def storm_without_a_brokers_log(count: int) -> list[Event]:
    """The same from the members' logs alone."""
    events: list[Event] = []
    for n in range(count):
        at_ms = n * MINUTE_MS
        for kind, after_ms in ((e.JOINING, 0.0), (e.JOINED, 10.0), (e.SYNCED, 20.0), (e.LEAVING, 50_000.0)):
            event = Event(at_ms=at_ms + after_ms, kind=kind, source=e.JAVA, group="g", client="c", member=f"c-{n}")
            event.generation = n + 1 if kind in (e.JOINED, e.SYNCED) else -1
            events.append(event)
    return events


def slow_listeners(count: int) -> list[Event]:
    """A process that comes and goes, whose traces tell of slow calls of its listener."""
    events: list[Event] = []
    for n in range(count):
        at_ms, member = n * MINUTE_MS, f"c-{n}"
        gone = f"c-{n - 1}" if n else ""
        events += a_round(at_ms, e.ARRIVED, member, f"Adding new member {member}", n + 1, gone)
        call = Event(at_ms=at_ms + 31_000, kind=e.ADDED, source=e.TRACE, group="g", client="c", member=member)
        call.number, call.partitions = 2_000.0, "orders-0"
        events.append(call)
    return events


def rejoins(count: int) -> list[Event]:
    """A member of the new protocol, which keeps its id, hangs again and again; nobody tells its limit."""
    events: list[Event] = []
    for n in range(count):
        at_ms = n * MINUTE_MS
        events += a_round(at_ms, e.ARRIVED, "w-1", "Adding new member w-1", 2 * n + 1)
        events += a_round(at_ms + 39_001, e.LEFT, "w-1", "removing w-1", 2 * n + 2)
        events[-4].said = "consumer poll timeout has expired."
    return events


def restarted_coordinators(count: int) -> list[Event]:
    """A coordinator that is started again and again; each time it waits for a member that has come back already."""
    events: list[Event] = []
    for n in range(count):
        at_ms = n * MINUTE_MS
        events.append(from_broker(at_ms - 1_000, e.LOADED, number=3.0))
        gone = f"worker-{n - 1}" if n else ""
        events += a_round(at_ms, e.ARRIVED, f"worker-{n}", f"Adding new member worker-{n}", n + 1, gone)
    return events


def watched_deaths(count: int) -> list[Event]:
    """A process that is killed and started again; its watchdog leaves for it."""
    events: list[Event] = []
    for n in range(count):
        at_ms, member = n * MINUTE_MS, f"worker-{n}"
        events += a_round(at_ms, e.ARRIVED, member, f"Adding new member {member}", 2 * n + 1)
        events += a_round(at_ms + 39_001, e.LEFT, member, f"explicit `LeaveGroup` request for ({member})", 2 * n + 2)
        events[-4].said = "its process ended without closing the consumer (reported by its watchdog)"
    return events


def static_deploys(count: int) -> list[Event]:
    """Many instances, each replaced four times within an hour."""
    events: list[Event] = []
    for deploy in range(4):
        for n in range(count // 4):
            told = {"said": f"i{n}-{deploy}", "instance": f"i{n}"}
            events.append(from_broker(deploy * 600_000.0 + n, e.REPLACED, f"i{n}-{deploy + 1}", **told))
    return events


@pytest.mark.parametrize(
    "made",
    [
        crash_loop,
        crashing_pods,
        storm,
        storm_without_a_brokers_log,
        slow_listeners,
        rejoins,
        restarted_coordinators,
        watched_deaths,
        static_deploys,
    ],
)
def test_twice_the_history_is_about_twice_the_work(made: Callable[[int], list[Event]]) -> None:
    """Each of these compared every life, leave or line about max.poll.interval.ms with every other. A day of such a
    storm, 20,000 lives, took minutes on one executor, after its log had been read in seconds."""

    def work(count: int) -> int:
        events = made(count)
        return lines_run(lambda: findings_of(history_of("g", events)))

    assert work(800) < 2.2 * work(400)


def test_leaves_cost_no_more_in_a_group_of_many_partitions() -> None:
    """Java's default client id is every process's name where only clients' logs are left. Each leave made a change for
    each partition that anybody of the name had ever held: a storm in a group of a thousand took gigabytes."""

    def work(partitions: int) -> int:
        events = storm(100)
        held = " ".join(f"orders-{n}" for n in range(partitions))
        events.append(Event(at_ms=10.0, kind=e.ADDED, source=e.JAVA, group="g", client="rdkafka", partitions=held))
        return lines_run(lambda: history_of("g", events))

    assert work(800) < 2 * work(100)


def test_the_histories_above_are_what_their_names_say() -> None:
    assert [one.kind for one in findings_of(history_of("g", crash_loop(10)))] == ["crash-loop"]
    assert len(findings_of(history_of("g", crashing_pods(10)))) == 9
    assert findings_of(history_of("g", storm(10)))[0].kind == "storm"
    lives = history_of("g", storm(10)).people.lives.values()
    assert {(one.how, one.poll_ms) for one in lives} == {(causes.TOO_SLOW, 300_000.0)}
    assert len(history_of("g", storm_without_a_brokers_log(10)).rebalances) > 5
    (hung,) = findings_of(history_of("g", rejoins(10)))
    assert (hung.kind, hung.times, len(history_of("g", rejoins(10)).people.lives)) == ("storm", 10, 10)
    lives = history_of("g", restarted_coordinators(10)).people.lives.values()
    assert [one.how for one in lives] == [causes.COORDINATOR] * 9 + [""]
    (killed,) = findings_of(history_of("g", watched_deaths(10)))
    assert (killed.kind, killed.times) == ("crash-loop", 9)
    lives = history_of("g", static_deploys(40)).people.lives.values()
    assert Counter(one.how for one in lives) == {people.REPLACED: 40, "": 10}
    assert "slow-to-join" in {one.kind for one in findings_of(history_of("g", slow_listeners(10)))}


def test_no_more_lives_are_kept_than_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a member that left was kept all the same, as one that had been there since before the log."""
    monkeypatch.setattr(people, "LIVES_KEPT", 5)

    found = people_of(storm(20))
    assert len(found.lives) == 5
    assert all(life.from_ms == life.from_ms for life in found.lives.values())
