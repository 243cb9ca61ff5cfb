"""Lines that are damaged, cut short, or written to do harm: one of them may not cost the whole run."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from doctor_samples import SAMPLES

from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import Scanned, scan
from holdfast.doctor.tables import examined
from holdfast.spark.doctor.reading import as_batch

BROKER = "[2026-01-01 00:00:00,000] INFO [GroupCoordinator 1]: "
TABLE = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\ng t "


def step(**told: Any) -> str:
    record = {"at": 1.0, "source": "coordinator", "step": "generation", "group": "g", "member": "m", "generation": 1}
    return json.dumps({**record, "data": {}, **told}, separators=(",", ":"))


def read_through(data: bytes) -> Scanned:
    """What an executor does with the bytes: events, Spark's rows, and every table as JSON."""
    read = scan(data, file="f.log", last_ms=1.8e12)
    if read.events:
        as_batch([(one, 0) for one in read.events])
    for group, events in by_group(read.events).items():
        for _, row in examined(group or "-", events):
            json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    return read


HARMFUL = {
    "a generation of 30 digits": step(generation=10**30),
    "a time beyond any float": step(at=10**400),
    "a wall clock beyond any float": step(wall=10**400),
    "a wall clock of infinity": step(wall=float("inf")),
    "a listener that took too long for a float": step(
        source="consumer", step="callback-assigned", data={"partitions": {"t": [1]}, "listener_ms": 10**400}
    ),
    "a generation beyond Kafka's": f"{BROKER}Stabilized group g generation 99999999999 with 3 members (x)",
    "a generation of 5,000 digits": f"{BROKER}Stabilized group g generation {'9' * 5000} with 3 members (x)",
    "members of 400 digits": f"{BROKER}Stabilized group g generation 3 with {'9' * 400} members (x)",
    "members that a coordinator has read": f"{BROKER}Loaded classic group g with 99999999999 members. (x)",
    "a Java client's generation": "2026-01-01 00:00:00,000 [Consumer clientId=c, groupId=g] Successfully joined group "
    "with generation Generation{generationId=99999999999, memberId='m', protocol='range'}",
}
HALF = "\\ud800"


@pytest.mark.parametrize("what", sorted(HARMFUL))
def test_a_number_that_fits_nowhere_is_a_line_that_is_not_understood(what: str) -> None:
    """It ended the Spark job: Arrow has no such integer, or Python refused to read it."""
    read = read_through(f"{HARMFUL[what]}\n{BROKER}Stabilized group h generation 3 with 3 members (x)\n".encode())
    assert [one.group for one in read.events] == ["h"]
    assert sum(read.strange.values()) == 1


@pytest.mark.parametrize("name", ["member", "group"])
def test_half_a_character_in_a_name_is_read(name: str) -> None:
    """JSON can escape half of a surrogate pair; no encoding can write it, so Arrow raised."""
    read = read_through(step(**{name: "a\ud800"}).encode())
    assert HALF in step(**{name: "a\ud800"})
    assert getattr(read.events[0], name) == "a?"


def test_half_a_character_inside_dockers_json_is_read() -> None:
    said = "2026-01-01 00:00:00,000 [Consumer clientId=a\ud800, groupId=g] (Re-)joining group\n"
    read = read_through(json.dumps({"log": said, "stream": "stderr", "time": "2026-01-01T00:00:00Z"}).encode())
    assert read.events[0].client == "a?"


@pytest.mark.parametrize("line", ["Preparing to rebalance group g in state Stable with old generation 4",
                                  "Preparing to rebalance group g in state Stable with old generation 4 "
                                  "(__consumer_offsets-3)"])  # fmt: skip
def test_a_round_without_a_reason_is_read(line: str) -> None:
    """An old coordinator gives none, and an archive that is cut short ends anywhere: it ended the job."""
    read = read_through(f"{BROKER}{line}".encode())
    assert [(one.group, one.generation, one.said) for one in read.events] == [("g", 4, "")]


def test_a_tables_lag_may_be_no_number() -> None:
    """Superscript two is a digit to Python, and no number."""
    assert read_through(f"{TABLE}0 1 1 ² m h c\n".encode()).events[0].number == -1.0
    assert read_through(f"{TABLE}0 1 1 {'9' * 400} m h c\n".encode()).events == []


@pytest.mark.parametrize("seed", range(8))
def test_damage_of_any_kind_is_read_through(seed: int) -> None:
    """Lines of real histories that were cut, shuffled, repeated, and have wrong bytes in them."""
    chance = random.Random(seed)
    files = sorted(path for path in SAMPLES.rglob("*") if path.is_file())
    for _ in range(10):
        path = chance.choice(files)
        lines = path.read_bytes().split(b"\n")[:80] + (path.parent / "broker.log").read_bytes().split(b"\n")[:60]
        for _ in range(chance.randint(1, 12)):
            _damage(lines, chance)
        read_through(b"\n".join(lines))


def _damage(lines: list[bytes], chance: random.Random) -> None:
    place = chance.randrange(len(lines))
    line = bytearray(lines[place])
    at = chance.randrange(len(line) + 1)
    kind = chance.randrange(5)
    if kind == 0:
        del line[at:]
    elif kind == 1:
        line[at : at + 1] = bytes([chance.randrange(256)])
    elif kind == 2:
        line[at:at] = chance.choice([b"9" * 30, b"\0", b"\xff", b"-1", b'"', b"[", b"{", b"e999", HALF.encode()])
    elif kind == 3:
        lines.insert(chance.randrange(len(lines)), bytes(line))
    else:
        chance.shuffle(lines)
    if kind < 3:
        lines[place] = bytes(line)
