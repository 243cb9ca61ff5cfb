"""What `Reader` promises, asked of both forms: librdkafka's, and our own batches'.

The consumer above asks whoever is in charge and does not know which it is. So a promise that one form keeps and the
other does not would be a fault that shows only in programs that use the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest

from holdfast.client.config import settings
from holdfast.client.raised import Raised
from holdfast.client.reading.batch_reader import open_batch_reader
from holdfast.client.reading.book import Book
from holdfast.client.reading.data_plane import DataPlane
from holdfast.client.reading.librdkafka import open_handle
from holdfast.client.reading.librdkafka_reader import LibrdkafkaReader
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.turns import Turns
from holdfast.model import TopicPartition
from holdfast.testing import Broker
from patience import PATIENCE_S

EACH = 5
"""Records in each of the topic's three partitions."""

FORMS = ("librdkafka", "batches")
Open = Callable[[str, Book], Reader]
Place = tuple[int, int]


@pytest.fixture
def open_reader(broker: Broker) -> Iterator[Open]:
    made: list[Reader] = []
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}

    def opened(form: str, book: Book) -> Reader:
        if form == "batches":
            made.append(open_batch_reader(settings.parse(config), book, tell=lambda _error: False))
        else:
            handle = open_handle({**config, "enable.auto.commit": False, "log_level": 0})
            made.append(LibrdkafkaReader(handle, book, turns=Turns(), raised=Raised(), reset=int(ck.OFFSET_BEGINNING)))
        return made[-1]

    yield opened
    for reader in made:
        reader.close()


@pytest.fixture(params=FORMS)
def reader(request: pytest.FixtureRequest, open_reader: Open) -> Reader:
    return open_reader(request.param, Book())


def at(topic: str, partition: int, offset: int = 0) -> ck.TopicPartition:
    return ck.TopicPartition(topic, partition, offset)


def taken(reader: Reader, count: int) -> list[Place]:
    """So many records."""
    found: list[Place] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        for message in reader.take(count - len(found), 0.1):
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.offset() or 0))
    return found


def positions(reader: Reader) -> dict[int, int]:
    return {p.partition: entry.offset for p, entry in reader.positions(list(reader.book.assigned)).items()}


def behind(places: list[Place]) -> dict[int, int]:
    """One past the last of each partition."""
    return {partition: offset + 1 for partition, offset in places}


def everything() -> list[Place]:
    return [(partition, offset) for partition in range(3) for offset in range(EACH)]


def test_a_position_is_one_past_what_was_taken_and_no_further(reader: Reader, topic: str) -> None:
    reader.add([at(topic, partition) for partition in range(3)])
    assert positions(reader) == {}
    found: list[Place] = []
    while len(found) < 3 * EACH:
        found += taken(reader, 2 if len(found) < 14 else 1)
        assert positions(reader) == behind(found)
    assert sorted(found) == everything()


def test_positions_carry_the_epoch_of_the_record_before_them(reader: Reader, topic: str) -> None:
    """A commit with it lets a consumer detect that a new leader has lost records (KIP-320)."""
    reader.add([at(topic, 0)])
    taken(reader, 2)
    (entry,) = reader.positions([TopicPartition(topic, 0)]).values()
    assert entry.leader_epoch >= 0


def test_nothing_of_a_dropped_partition_comes_any_more(reader: Reader, topic: str) -> None:
    reader.add([at(topic, 0), at(topic, 1)])
    found = taken(reader, 3)
    reader.drop([TopicPartition(topic, 0)])
    assert set(reader.book.assigned) == {TopicPartition(topic, 1)}
    rest = [offset for partition, offset in found if partition == 1]
    rest += [offset for partition, offset in taken(reader, EACH - len(rest)) if partition == 1]
    assert rest == list(range(EACH))
    assert reader.take(10, 0.1) == []


def test_after_a_seek_there_is_no_position_until_the_next_record(reader: Reader, topic: str) -> None:
    reader.add([at(topic, 0)])
    taken(reader, 2)
    reader.seek(at(topic, 0, 4))
    assert positions(reader) == {}
    assert taken(reader, 1) == [(0, 4)]
    assert positions(reader) == {0: EACH}


def test_a_paused_partition_keeps_its_position_and_goes_on_there(reader: Reader, topic: str) -> None:
    reader.add([at(topic, 0), at(topic, 1)])
    found = taken(reader, 3)
    reader.pause([TopicPartition(topic, 0)])
    while len([place for place in found if place[0] == 1]) < EACH:
        found += taken(reader, 1)
    stood = positions(reader)
    assert reader.take(10, 0.1) == []
    reader.resume([TopicPartition(topic, 0)])
    assert positions(reader) == stood == behind(found)
    found += taken(reader, 2 * EACH - len(found))
    assert sorted(found) == everything()[: 2 * EACH]


def test_what_is_replaced_starts_where_it_is_told_and_the_rest_is_gone(reader: Reader, topic: str) -> None:
    reader.add([at(topic, 0), at(topic, 1)])
    taken(reader, 3)
    reader.replace([at(topic, 1, 3), at(topic, 2, 4)])
    assert positions(reader) == {}
    assert sorted(taken(reader, 3)) == [(1, 3), (1, 4), (2, 4)]
    assert reader.take(10, 0.1) == []


@pytest.mark.parametrize(
    "refused",
    [
        lambda reader, topic: reader.add([at(topic, 1), at(topic, 0)]),
        lambda reader, topic: reader.add([at(topic, 1), at(topic, 2, -7)]),
        lambda reader, topic: reader.seek(at(topic, 1, 2)),
    ],
    ids=["read already", "no start", "not assigned"],
)
def test_what_is_refused_changes_nothing(reader: Reader, topic: str, refused: Callable[[Reader, str], None]) -> None:
    reader.add([at(topic, 0)])
    found = taken(reader, 2)
    with pytest.raises(ck.KafkaException):
        refused(reader, topic)
    assert set(reader.book.assigned) == {TopicPartition(topic, 0)}
    assert positions(reader) == {0: 2}
    assert found + taken(reader, EACH - 2) == [(0, offset) for offset in range(EACH)]


@pytest.mark.parametrize("form", FORMS)
def test_another_reader_goes_on_where_the_application_stands(open_reader: Open, topic: str, form: str) -> None:
    """With one partition that is paused, one that was begun and one that was not: nothing is lost or comes twice, and
    the positions are the same before and after."""
    (other,) = set(FORMS) - {form}
    book = Book()
    first, second = open_reader(form, book), open_reader(other, book)
    data = DataPlane(first, reset="earliest")
    data.take([at(topic, 0), at(topic, 1)])
    found = taken(first, 3)
    data.pause([at(topic, 0)])
    data.take([at(topic, 2)])
    stood = data.positions(data.assigned)
    for turn in (second, first, second):
        data.let_read(turn)
        assert data.positions(data.assigned) == stood
        assert book.paused == {TopicPartition(topic, 0)}
    while len([place for place in found if place[0] > 0]) < 2 * EACH:
        found += taken(second, 1)
    assert second.take(10, 0.1) == []
    data.resume([at(topic, 0)])
    found += taken(second, 3 * EACH - len(found))
    assert sorted(found) == everything()
    assert first.take(10, 0) == [], "it is not in charge"
