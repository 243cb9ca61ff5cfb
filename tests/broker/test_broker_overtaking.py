"""Batches of an idempotent producer whose first one is refused: they come into the log in order, and none is lost."""

from __future__ import annotations

import threading

import pytest
from raw_client import RawClient, batch

from holdfast.broker.overtaking import MOST_REFUSED, REMEMBERED_MS, Overtaking
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.model import ErrorCode
from holdfast.records.encode import Producer
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def sent(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytes:
    return batch([b"%d" % sequence], producer=Producer(producer_id=producer, epoch=epoch, base_sequence=sequence))


def produced(client: RawClient, data: bytes, *, topic: str = "orders") -> int:
    answer = client.produce(topic, data)
    assert answer is not None
    return int(answer.topics[0].partitions[0].error)


def refuse_next(broker: Broker, code: ErrorCode = NOT_LEADER) -> None:
    broker.faults.error(Api.PRODUCE, code, times=1)


@pytest.mark.parametrize("how", ["as a whole", "by the disk", "for want of a topic"])
def test_a_batch_does_not_overtake_the_one_before_that_was_refused(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Symptom: of five records that librdkafka sent to a new topic the first was lost, though it was acknowledged.
    Cause: its batch was refused for a moment, and the next one, in flight already, was taken: a producer that the
    partition does not know may begin anywhere. The first one's retry was then older than what was there, which
    librdkafka takes for a duplicate. Rule: what is behind a refused batch waits for it."""

    def failing(*_: object, **__: object) -> None:
        raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk failed.", "Try again.")

    if how != "for want of a topic":
        holdfast_broker.topics.create("orders", 1)
    with RawClient(holdfast_broker) as client:
        if how == "as a whole":
            refuse_next(holdfast_broker)
        elif how == "by the disk":
            monkeypatch.setattr(Log, "append", failing)
        assert produced(client, sent(0)) in (
            NOT_LEADER,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        monkeypatch.undo()
        if how == "for want of a topic":
            holdfast_broker.topics.create("orders", 1)
        in_flight = [produced(client, sent(number)) for number in (1, 2)]
        again = [produced(client, sent(number)) for number in (0, 1, 2)]

    assert in_flight == [OUT_OF_ORDER] * 2
    assert again == [0, 0, 0]
    assert holdfast_broker.topics.count("orders") == 3
    assert holdfast_broker.call(lambda state: len(state.overtaking)) == 0


def test_a_producer_goes_on_in_a_topic_that_was_made_anew(holdfast_broker: Broker) -> None:
    """Its sequence numbers go on there. It waits only for its own refused batches, and only for those sent before."""
    for _ in range(2):
        holdfast_broker.topics.create("orders", 1)
        with RawClient(holdfast_broker) as client:
            assert produced(client, sent(5)) == 0
            assert produced(client, sent(6)) == 0
            client.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]})
    holdfast_broker.topics.create("orders", 1)
    with RawClient(holdfast_broker) as client:
        refuse_next(holdfast_broker)
        assert produced(client, sent(7)) == NOT_LEADER
        assert produced(client, sent(3, producer=8)) == 0, "another producer"
        assert produced(client, sent(8)) == OUT_OF_ORDER
        assert produced(client, sent(0, epoch=1)) == 0, "it gave up, and began again with a new epoch"
        assert produced(client, sent(1, epoch=1)) == 0
    assert holdfast_broker.topics.count("orders") == 3


def test_a_batch_that_is_refused_for_good_holds_nobody_up(holdfast_broker: Broker) -> None:
    """Its producer drops it and does not send it again."""
    holdfast_broker.topics.create("orders", 1)
    with RawClient(holdfast_broker) as client:
        refuse_next(holdfast_broker, ErrorCode.MESSAGE_TOO_LARGE)
        assert produced(client, sent(0)) == ErrorCode.MESSAGE_TOO_LARGE
        assert produced(client, sent(1)) == 0


def test_a_producer_that_gave_up_is_forgotten() -> None:
    with Broker(manual_clock=True) as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1)
        refuse_next(broker)
        assert produced(client, sent(0)) == NOT_LEADER
        assert produced(client, sent(1)) == OUT_OF_ORDER
        broker.advance(REMEMBERED_MS + 1)
        assert produced(client, sent(1)) == 0


def test_few_refused_batches_are_remembered() -> None:
    overtaking = Overtaking(lambda: 0.0)
    place = ("orders", 0)
    for producer in range(MOST_REFUSED + 10):
        overtaking.refused(place, sent(0, producer=producer), NOT_LEADER)
    overtaking.refused(place, b"no batch", NOT_LEADER)
    overtaking.refused(place, batch([b"not numbered"]), NOT_LEADER)
    assert len(overtaking) == MOST_REFUSED
    overtaking.check(place, sent(1, producer=0), ())
    with pytest.raises(StorageError):
        overtaking.check(place, sent(1, producer=20), ())
    overtaking.check(place, sent(1, producer=20), {20})
    overtaking.taken(place, sent(0, producer=20))
    overtaking.check(place, sent(1, producer=20), ())


def test_librdkafka_loses_nothing_and_keeps_the_order(holdfast_broker: Broker) -> None:
    """The first batch is answered when the others were sent."""
    from confluent_kafka import Message, Producer

    for name in ("warm", "orders"):
        holdfast_broker.topics.create(name, 1)
    producer = Producer(
        {"bootstrap.servers": holdfast_broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    offsets: list[tuple[int, int | None]] = []
    all_sent = threading.Event()

    def told(_error: object, message: Message) -> None:
        offsets.append((int(message.value() or b""), message.offset()))

    producer.produce("warm", b"0")
    assert producer.flush(PATIENCE_S) == 0
    producer.list_topics("orders", PATIENCE_S)
    holdfast_broker.faults.error(Api.PRODUCE, NOT_LEADER, times=1, when=lambda _exchange: all_sent.wait(PATIENCE_S))
    for number in range(5):
        producer.produce("orders", b"%d" % number, callback=told)
        producer.poll(0.01)  # so that it does not put all of them into one batch
    all_sent.set()
    assert producer.flush(PATIENCE_S) == 0
    assert sorted(offsets) == [(number, number) for number in range(5)]
