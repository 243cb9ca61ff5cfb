"""Histories that real brokers and real clients wrote down, and how to read them in a test.

`samples/kafka-3.9` is Kafka 3.9.1 with its old (Scala) coordinator, `samples/kafka-4.1` Kafka 4.1.0 with the new one.
Each folder is one group of Java, librdkafka and holdfast members: only lines that say something about it were kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.doctor.events import Event
from holdfast.doctor.history import History, history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan

SAMPLES = Path(__file__).parent / "samples"
VERSIONS = ("kafka-3.9", "kafka-4.1")


def events_in(folder: Path, keep: Callable[[Path], bool] = lambda path: True) -> list[Event]:
    found: list[Event] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and keep(path):
            found += scan(path.read_bytes(), file=path.name).events
    return found


def history_in(version: str, group: str, keep: Callable[[Path], bool] = lambda path: True) -> History:
    return history_of(group, by_group(events_in(SAMPLES / version / group, keep)).get(group, []))
