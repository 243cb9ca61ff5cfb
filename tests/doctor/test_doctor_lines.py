"""Lines: the wording of versions that the samples do not have, what ships logs around them, and what is no line at all.

The older wording is Kafka's own, as its branches 2.4 to 3.x have it in their sources.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_samples import SAMPLES
from hypothesis import given
from hypothesis import strategies as st

from holdfast.doctor import events as e
from holdfast.doctor.broker_lines import culprit_of
from holdfast.doctor.events import Event
from holdfast.doctor.scanning import MARKS, parse_line, scan
from holdfast.doctor.times import dated, stamp_ms, unwrapped, written_ms

AT = 1_714_557_600_123.0  # 2024-05-01T10:00:00.123Z
ID = "c-1-4d111e55-4fd3-43e7-8e89-14eb8cf401cb"


def old(text: str) -> Event:
    found = parse_line(
        f"[2024-05-01 10:00:00,123] INFO [GroupCoordinator 1]: {text} (kafka.coordinator.group.GroupCoordinator)"
    )
    assert isinstance(found, Event), text
    assert found.at_ms == AT
    return found


def test_the_words_of_kafka_2_4() -> None:
    began = old(
        f"Preparing to rebalance group pay in state PreparingRebalance with old generation 3 (__consumer_offsets-7) "
        f"(reason: Adding new member {ID} with group instanceid None)"
    )
    assert (began.kind, began.group, began.generation, began.member, began.client) == (e.PREPARING, "pay", 3, ID, "c-1")
    assert old("Stabilized group pay generation 4 (__consumer_offsets-7)").kind == e.GENERATION
    done = old("Assignment received from leader for group pay for generation 4")
    assert (done.kind, done.generation) == (e.STABLE, 4)
    gone = old(
        f"Member[group.instance.id Some(pod-1), member.id {ID}] in group pay has left, removing it from the group"
    )
    assert (gone.kind, gone.group, gone.member, gone.instance) == (e.LEFT, "pay", ID, "pod-1")
    failed = old(f"Member {ID} in group pay has failed, removing it from the group")
    assert (failed.kind, failed.member, failed.group) == (e.EXPIRED, ID, "pay")
    back = old(
        f"Static member Some(pod-1) with unknown member id rejoins, assigning new member id {ID}, while old member "
        "pod-1-old will be removed."
    )
    assert (back.kind, back.instance, back.member, back.said) == (e.REPLACED, "pod-1", ID, "pod-1-old")
    assert old("Group pay with generation 9 is now empty (__consumer_offsets-7)").kind == e.EMPTY


def test_the_words_of_kafka_3() -> None:
    out = old(f"Group pay removed dynamic members who haven't joined: Set({ID})")
    assert (out.kind, out.group, out.member) == (e.EXPELLED, "pay", ID)
    left = old(
        f"Member MemberMetadata(memberId={ID}, groupInstanceId=None, clientId=c-1, clientHost=/10.1.2.3, "
        "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range, cooperative-sticky)) has "
        "left group pay through explicit `LeaveGroup`; client reason: consumer poll timeout has expired."
    )
    assert (left.kind, left.group, left.member, left.client, left.host) == (e.LEFT, "pay", ID, "c-1", "10.1.2.3")
    assert left.number == 45_000
    assert left.partitions == "range,cooperative-sticky"
    assert left.said == "consumer poll timeout has expired."


def test_group_names_with_blanks_and_brackets_are_whole() -> None:
    found = old("Stabilized group my group (prod) generation 4 (__consumer_offsets-7) with 3 members")
    assert (found.group, found.generation, found.number) == ("my group (prod)", 4, 3)


@pytest.mark.parametrize(
    ("reason", "who"),
    [
        (f"removing member {ID} on heartbeat expiration", ID),
        (f"explicit `LeaveGroup` request for ({ID}) members.", ID),
        (f"Leader {ID} re-joining group during Stable; client reason: not provided", ID),
        (f"Updating metadata for member {ID} during Stable; client reason: x", ID),
        ("nobody knows", ""),
    ],
)
def test_a_rounds_reason_names_its_culprit(reason: str, who: str) -> None:
    assert culprit_of(reason) == who


JAVA = "[2024-05-01 10:00:00,123] INFO [Consumer clientId=c-1, groupId=pay] (Re-)joining group (o.a.k.X)"


@pytest.mark.parametrize(
    "wrapped",
    [
        JAVA,
        f"2024-05-01T10:00:01.000000001Z stdout F {JAVA}",
        f"[pod/consumer-0/app] {JAVA}",
        f"[pod/consumer-0/app] 2024-05-01T10:00:01.000000001Z stderr F {JAVA}",
        json.dumps({"log": JAVA + "\n", "stream": "stderr", "time": "2024-05-01T10:00:01.5Z"}),
        "2024-05-01T12:00:00.123+02:00  INFO 1 --- [main] o : [Consumer clientId=c-1, groupId=pay] (Re-)joining group",
        "2024-05-01T10:00:00.123Z stdout F no-own-time [Consumer clientId=c-1, groupId=pay] (Re-)joining group",
    ],
)
def test_whatever_ships_a_line_it_says_the_same_at_the_same_time(wrapped: str) -> None:
    found = parse_line(wrapped)
    assert isinstance(found, Event)
    assert (found.kind, found.group, found.client, found.at_ms) == (e.JOINING, "pay", "c-1", AT)


def test_a_trace_inside_dockers_json_is_read() -> None:
    line = '{"at":1.0,"group":"pay","member":"c-1","source":"member","step":"poll-expired","v":1,"wall":5.0}'
    found = scan(json.dumps({"log": line + "\n", "stream": "stdout", "time": "2024-05-01T10:00:01Z"}).encode())
    assert [(one.kind, one.group, one.at_ms) for one in found.events] == [(e.TOO_SLOW, "pay", 5.0)]


def test_a_time_without_a_date_is_of_the_day_on_which_its_file_was_written() -> None:
    """Log layouts with the time of day alone: 23:59 in a file that ends at 00:01 was yesterday."""
    at = written_ms("23:59:00.000 [main] INFO x", float("nan"))
    midnight = stamp_ms("2024-05-02 00:00:00")
    assert dated(at, midnight + 60_000.0) == midnight - 60_000.0
    assert dated(at, midnight + 86_390_000.0) == midnight + 86_340_000.0


def test_a_trace_of_a_newer_version_is_read_and_counted() -> None:
    line = '{"at":1.0,"group":"pay","member":"m","new":1,"source":"member","step":"poll-expired","v":2,"wall":5.0}'
    found = scan(f"{line}\n".encode())
    assert (len(found.events), found.newer, found.known) == (1, 1, 1)


def test_what_is_not_understood_is_counted_by_its_shape_and_nothing_else_is_lost() -> None:
    strange = "[2024-05-01 10:00:0%d,123] INFO [GroupCoordinator 1]: The group %d did something new (x)\n"
    text = "".join(strange % (n, n) for n in range(5)) + JAVA + "\nan application's own line\n"
    found = scan(text.encode())
    assert (found.lines, found.known, len(found.events)) == (7, 1, 1)
    assert list(found.strange.values()) == [5]
    assert found.events[0].line == 6


def test_a_describe_is_read_row_by_row() -> None:
    text = (
        "\nGROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID\n"
        f"pay  orders  0  1  5  4  {ID}  /10.0.0.1  c-1\n"
        "pay  orders  1  -  5  -  -  -  -\n\nsomething else\n"
    )
    found = scan(text.encode())
    assert [(one.kind, one.partitions, one.member, one.number, one.host) for one in found.events] == [
        (e.HOLDS, "orders-0", ID, 4.0, "10.0.0.1"),
        (e.HOLDS, "orders-1", "", -1.0, ""),
    ]
    assert [one.line for one in found.events] == [3, 4]


@pytest.mark.parametrize(
    "path", sorted(filter(Path.is_file, SAMPLES.rglob("*.*"))), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_searching_for_marks_finds_what_reading_every_line_finds(path: Path) -> None:
    """The quick way must not lose a line: the same events, with the same numbers, as line by line."""
    data = path.read_bytes()
    slow = [
        (number, found.kind, found.member)
        for number, line in enumerate(data.decode().splitlines(), start=1)
        if any(mark.decode() in line for mark in MARKS) and isinstance(found := parse_line(line), Event)
    ]
    quick = scan(data)
    assert [(one.line, one.kind, one.member) for one in quick.events if one.kind != e.HOLDS] == slow
    assert not quick.strange, "every line of the samples about a group is known"


@given(st.binary(max_size=300), st.sampled_from(MARKS), st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(before: bytes, mark: bytes, after: bytes) -> None:
    found = scan(before + mark + after)
    assert found.known + sum(found.strange.values()) + found.too_long <= found.lines


@given(st.text(max_size=400))
def test_any_text_is_unwrapped_and_dated_without_an_error(text: str) -> None:
    inner, shipped = unwrapped(text)
    assert written_ms(inner, shipped) is not None
    parse_line('{"step":"' + text)
    parse_line("[GroupCoordinator 1]: Preparing to rebalance group " + text)
    parse_line("%4|1.2|MAXPOLL|" + text + "| [thrd:main]: " + text)
