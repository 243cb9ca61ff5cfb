"""The report, and the live looks: what people see."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from doctor_samples import history_in

from holdfast.doctor.events import Event
from holdfast.doctor.looks import Watched
from holdfast.doctor.page import page
from holdfast.doctor.tables import COLUMNS, examined, rows_of
from holdfast.doctor.words import finding_lines, group_rows
from holdfast.model import TopicPartition
from holdfast.observe.snapshot import DescribedGroup, DescribedMember, GroupSnapshot

Tables = dict[str, list[dict[str, object]]]


def tables_of(events: list[Event], group: str) -> Tables:
    found: Tables = {"findings": []}
    for name, row in examined(group, events):
        found.setdefault(name, []).append(json.loads(json.dumps(row, allow_nan=False)))
    return found


class Texts(HTMLParser):
    """What is text, and which tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(found: Tables) -> tuple[str, Texts]:
    html = page("read", found["groups"], found["findings"], found, ["a note"])
    parsed = Texts()
    parsed.feed(html)
    return html, parsed


def test_names_that_strangers_chose_are_text_and_nothing_else() -> None:
    """A client id may hold anything: in the report it must be read, not run; in a terminal it must stay one line."""
    evil = "<script>alert(1)</script>\x1b[31m\nx' onload='y"
    events = history_in("kafka-4.1", "hang").events
    for event in events:
        event.client = event.client.replace("java-hang", evil)
        event.member = event.member.replace("java-hang", evil)
        event.group = evil
    found = tables_of(events, evil)
    html, parsed = read_page(found)
    assert "script" not in parsed.tags
    assert "<script>" not in html and "onload='y" not in html
    assert "<script>alert(1)</script>" in parsed.text
    lines = [line for row in found["findings"] for line in finding_lines(1, row)]
    lines += [str(value) for row in group_rows(found["groups"]) for value in row.values()]
    assert lines and not any(char < " " for line in lines for char in line)


def test_the_report_draws_lanes_lives_rebalances_and_pauses_and_loads_nothing() -> None:
    history = history_in("kafka-4.1", "hang")
    found = tables_of(history.events, "hang")
    html, parsed = read_page(found)
    assert {"svg", "rect", "circle", "table", "details"} <= parsed.tags
    for name in ("hang-0", "hang-5", "java-hang", "rdk-hang", "ours-hang"):
        assert name in parsed.text
    assert html.count("opacity='.45'") == len(history.rebalances)
    assert not re.search(r"(src|href)\s*=|@import|url\(", html)
    assert "prefers-color-scheme:dark" in html and "width=device-width" in html


def test_the_report_reads_as_text_for_people() -> None:
    """Backquotes are for a terminal: the report showed them, began sentences small, and broke commands at a dash."""
    found = tables_of(history_in("kafka-4.1", "roll").events, "roll")
    html, parsed = read_page(found)
    assert "`" not in html
    assert "<code>holdfast run</code>" in html and "(<code>holdfast sim --members 3" in html
    assert "Restarts without instance ids in roll" in parsed.text and "Played in the simulator" in parsed.text


def test_a_healthy_history_says_so() -> None:
    found = tables_of(history_in("kafka-4.1", "healthy").events, "healthy")
    assert found["findings"] == []
    assert "Nothing is wrong" in read_page(found)[1].text


def test_rows_have_the_columns_that_parquet_gets() -> None:
    """A field that the schema does not name would be dropped in silence when it is written."""
    history = history_in("kafka-4.1", "hang")
    from holdfast.doctor.findings import findings_of

    for table, row in rows_of(history, findings_of(history)):
        named = re.findall(r"(?:^|, )(\w+) (?=[A-Z])", re.sub(r"<[^<>]*(<[^<>]*>)?[^<>]*>", "", COLUMNS[table]))
        assert set(row) == set(named), table


# -- live looks


def look(*members: tuple[str, str, list[int]], state: str = "Stable") -> GroupSnapshot:
    made = tuple(
        DescribedMember(
            member_id=f"{client}-{life}",
            instance_id=None,
            client_id=client,
            host="/10.0.0.1",
            assigned=frozenset(TopicPartition("t", number) for number in held),
            topics=("t",),
        )
        for client, life, held in members
    )
    described = DescribedGroup(
        group="g",
        state=state,
        protocol_type="consumer",
        protocol="range",
        members=made,
        kind="classic",
        coordinator=("10.0.0.9", 9092),
    )
    return GroupSnapshot(described=described)


def test_a_group_that_is_watched_tells_what_a_log_would() -> None:
    """c1 leaves and comes back under another id, three times, while c0 stays: each is seen as a leave and a join."""
    watched, events, now = Watched("g"), [], 1_700_000_000_000.0
    steps = [look(("c0", "a", [0]), ("c1", "0", [1]))]
    for life in range(1, 4):
        steps += [look(("c0", "a", [0, 1]), state="PreparingRebalance"), look(("c0", "a", [0, 1]))]
        steps += [look(("c0", "a", [0]), ("c1", f"{life}", [1]))]
    for number, one in enumerate(steps):
        events += watched.see(one, now + number * 20_000.0)
    found = tables_of(events, "g")
    kinds = {(row["kind"], row["culprit"]) for row in found["findings"]}
    assert kinds == {("storm", "c1@10.0.0.1"), ("eager", "")}
    assert found["groups"][0]["rebalances"] == 6


def test_a_group_that_is_seen_once_has_no_finding() -> None:
    found = tables_of(Watched("g").see(look(("c0", "a", [0]), ("c1", "0", [1])), 1_700_000_000_000.0), "g")
    assert found["findings"] == []
    assert (found["groups"][0]["members"], found["groups"][0]["partitions"]) == (2, 2)
