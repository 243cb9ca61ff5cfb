"""What confluent-kafka's consumer is documented to do, seen on both classes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from polling import take, until

import holdfast
from holdfast.testing import Broker
from inside import reading_of
from patience import PATIENCE_S

Make = Callable[..., Any]


def offsets(partitions: list[ck.TopicPartition]) -> dict[int, int]:
    return {p.partition: p.offset for p in partitions}


def everywhere(topic: str, offset: int = ck.OFFSET_INVALID) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(topic, partition, offset) for partition in range(3)]


def test_what_stands_in_the_import_line_of_a_consumer_comes_from_holdfast_too() -> None:
    line = "Consumer KafkaError KafkaException Message TopicPartition"
    places = [name for name in dir(ck) if name.startswith(("OFFSET_", "TIMESTAMP_"))]
    assert len(places) == 7
    for name in [*line.split(), *places]:
        assert name in holdfast.__all__ and name in dir(holdfast), name
        assert name == "Consumer" or getattr(holdfast, name) is getattr(ck, name), name


def test_a_subscriber_gets_every_record_once(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    seen = sorted((m.partition(), m.offset(), m.value(), m.key()) for m in take(consumer, 15))
    assert seen == [(p, n, f"{p}:{n}".encode(), b"k") for p in range(3) for n in range(5)]
    assert consumer.poll(0.05) is None


def test_consume_returns_at_most_what_was_asked_for(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    until(consumer, lambda: len(consumer.assignment()) == 3)
    consumer.seek(ck.TopicPartition(topic, 0, 0))
    first = consumer.consume(4, 10.0)
    assert len(first) == 4
    assert consumer.consume(0, 0.1) == []


def test_too_many_messages_at_once_are_refused(make: Make, topic: str) -> None:
    consumer = make()
    with pytest.raises(ValueError, match="1000000"):
        consumer.consume(1_000_001, 0.1)


def test_a_synchronous_commit_is_there_for_the_next_member(make: Make, topic: str) -> None:
    consumer = make(group_id=f"commit-{topic}", enable_auto_commit=False)
    consumer.subscribe([topic])
    take(consumer, 15)
    done = consumer.commit(asynchronous=False)
    assert offsets(done) == {0: 5, 1: 5, 2: 5}
    assert offsets(consumer.committed(everywhere(topic), PATIENCE_S)) == {0: 5, 1: 5, 2: 5}
    consumer.close()
    again = make(group_id=f"commit-{topic}")
    again.subscribe([topic])
    until(again, lambda: len(again.assignment()) == 3)
    assert again.poll(0.3) is None


def test_a_message_is_committed_by_its_successor(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([topic])
    message = next(m for m in take(consumer, 15) if m.partition() == 1 and m.offset() == 2)
    consumer.commit(message=message, asynchronous=False)
    assert offsets(consumer.committed(everywhere(topic), PATIENCE_S)) == {0: -1001, 1: 3, 2: -1001}


def test_offsets_are_committed_as_listed_with_their_metadata(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.commit(offsets=[ck.TopicPartition(topic, 2, 4)], asynchronous=False)
    assert offsets(consumer.committed([ck.TopicPartition(topic, 2)], PATIENCE_S)) == {2: 4}


def test_an_asynchronous_commit_reports_to_on_commit_from_a_later_poll(make: Make, topic: str) -> None:
    reports: list[tuple[Any, dict[int, int]]] = []
    consumer = make(
        enable_auto_commit=False, on_commit=lambda error, partitions: reports.append((error, offsets(partitions)))
    )
    consumer.subscribe([topic])
    take(consumer, 15)
    assert consumer.commit() is None
    until(consumer, lambda: bool(reports))
    assert reports == [(None, {0: 5, 1: 5, 2: 5})]


def test_committing_nothing_says_so(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([topic])
    with pytest.raises(ck.KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == ck.KafkaError._NO_OFFSET


def test_message_and_offsets_exclude_each_other(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([topic])
    (message,) = take(consumer, 1)
    with pytest.raises(ValueError):
        consumer.commit(message=message, offsets=[ck.TopicPartition(topic, 0, 1)])


def test_stored_offsets_are_what_an_offsetless_commit_commits(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 0, 2)])
    assert offsets(consumer.commit(asynchronous=False)).get(0) == 2
    assert offsets(consumer.committed(everywhere(topic), PATIENCE_S)) == {0: 2, 1: -1001, 2: -1001}


def test_offsets_of_partitions_that_are_not_ours_cannot_be_stored(make: Make, topic: str) -> None:
    """edge B53 librdkafka 3340: a stored offset of a partition no longer owned rewound the group."""
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.subscribe([topic])
    take(consumer, 1)
    with pytest.raises(ck.KafkaException) as caught:
        consumer.store_offsets(offsets=[ck.TopicPartition(topic, 77, 2)])
    assert caught.value.args[0].code() in (ck.KafkaError._STATE, ck.KafkaError._UNKNOWN_PARTITION)


def test_auto_commit_commits_on_close(make: Make, topic: str) -> None:
    consumer = make(group_id=f"auto-{topic}", auto_commit_interval_ms=100_000)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.close()
    other = make(group_id=f"auto-{topic}")
    assert offsets(other.committed(everywhere(topic), PATIENCE_S)) == {0: 5, 1: 5, 2: 5}


def test_position_is_one_past_the_last_record(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    take(consumer, 15)
    assert offsets(consumer.position(everywhere(topic))) == {0: 5, 1: 5, 2: 5}


def test_seek_goes_back(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.seek(ck.TopicPartition(topic, 1, 3))
    assert [(m.partition(), m.offset()) for m in take(consumer, 2)] == [(1, 3), (1, 4)]


def test_a_paused_partition_is_silent_until_resumed(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.pause([ck.TopicPartition(topic, 1)])
    consumer.seek(ck.TopicPartition(topic, 1, 0))
    assert consumer.poll(0.3) is None
    consumer.resume([ck.TopicPartition(topic, 1)])
    assert {m.partition() for m in take(consumer, 5)} == {1}


def test_a_pause_outlives_the_assignment(make: Make, topic: str) -> None:
    """Symptom: what on_assign paused was read, although librdkafka leaves it paused once the consumer has had the
    partition. Cause: only what is assigned right now could be paused. Rule: a pause ends with resume(), and only what
    was never read here can't be paused."""
    consumer = make()
    where = [ck.TopicPartition(topic, 1, 0)]
    consumer.pause(where)
    consumer.assign(where)
    assert len(take(consumer, 5)) == 5, "it had never been read when it was paused"
    consumer.unassign()
    consumer.pause(where)
    consumer.assign(where)
    assert consumer.poll(0.3) is None
    consumer.resume(where)
    assert {m.partition() for m in take(consumer, 5)} == {1}


def test_a_manual_assignment_starts_where_it_says(make: Make, topic: str) -> None:
    consumer = make()
    consumer.assign([ck.TopicPartition(topic, 2, 3)])
    assert [(m.partition(), m.offset()) for m in take(consumer, 2)] == [(2, 3), (2, 4)]
    consumer.unassign()
    assert consumer.assignment() == []


def test_a_manual_assignment_grows_and_shrinks(make: Make, topic: str) -> None:
    consumer = make()
    consumer.incremental_assign([ck.TopicPartition(topic, 0, 4)])
    consumer.incremental_assign([ck.TopicPartition(topic, 1, 4)])
    assert {m.partition() for m in take(consumer, 2)} == {0, 1}
    consumer.incremental_unassign([ck.TopicPartition(topic, 0)])
    assert [(p.topic, p.partition) for p in consumer.assignment()] == [(topic, 1)]


def test_a_pattern_subscribes_to_what_matches(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([f"^{topic}$"])
    assert {m.topic() for m in take(consumer, 15)} == {topic}


def test_callbacks_come_from_poll_with_the_consumer_and_the_partitions(make: Make, topic: str) -> None:
    heard: list[tuple[str, bool, list[int]]] = []
    consumer = make()

    def listening(name: str) -> Callable[[Any, list[ck.TopicPartition]], None]:
        return lambda c, partitions: heard.append((name, c is consumer, sorted(p.partition for p in partitions)))

    consumer.subscribe([topic], on_assign=listening("assign"), on_revoke=listening("revoke"), on_lost=listening("lost"))
    take(consumer, 15)
    consumer.unsubscribe()
    until(consumer, lambda: len(heard) >= 2)
    assert heard[0] == ("assign", True, [0, 1, 2])
    assert heard[-1] == ("revoke", True, [0, 1, 2])


def test_on_assign_may_choose_where_to_start(make: Make, topic: str) -> None:
    consumer = make()

    def from_three(c: Any, partitions: list[ck.TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = 3
        c.incremental_assign(partitions)

    consumer.subscribe([topic], on_assign=from_three)
    assert sorted((m.partition(), m.offset()) for m in take(consumer, 6)) == [(p, n) for p in range(3) for n in (3, 4)]


def test_an_exception_in_a_callback_comes_out_of_poll(make: Make, topic: str) -> None:
    consumer = make()

    def raising(_consumer: Any, _partitions: Any) -> None:
        raise RuntimeError("from the callback")

    consumer.subscribe([topic], on_assign=raising)
    with pytest.raises(RuntimeError, match="from the callback"):
        until(consumer, lambda: False, limit_s=20)


def test_committing_inside_on_revoke_works(make: Make, topic: str) -> None:
    group = f"revoke-{topic}"
    consumer = make(group_id=group, enable_auto_commit=False)
    consumer.subscribe([topic], on_revoke=lambda c, _partitions: c.commit(asynchronous=False))
    take(consumer, 15)
    consumer.close()
    other = make(group_id=group)
    assert offsets(other.committed(everywhere(topic), PATIENCE_S)) == {0: 5, 1: 5, 2: 5}


def test_watermarks_and_times(make: Make, topic: str) -> None:
    consumer = make()
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), 10) == (0, 5)
    found = consumer.offsets_for_times([ck.TopicPartition(topic, 0, 1_003)], 10)
    assert offsets(found) == {0: 3}


def test_topics_are_listed(make: Make, topic: str) -> None:
    consumer = make()
    assert len(consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions) == 3


def test_the_member_id_is_known_once_assigned(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    take(consumer, 1)
    assert consumer.memberid()


def test_the_group_metadata_names_group_generation_and_member(make: Make, topic: str) -> None:
    group = f"metadata-{topic}"
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    take(consumer, 1)
    metadata = consumer.consumer_group_metadata()
    assert metadata.startswith(b"CGMDv2:" + (1).to_bytes(4, sys.byteorder) + group.encode() + b"\x00")
    assert consumer.memberid().encode() in metadata


def test_a_closed_consumer_says_so(make: Make, topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    consumer.close()
    consumer.close()
    for call in (
        lambda: consumer.poll(0.1),
        lambda: consumer.consume(1, 0.1),
        lambda: consumer.subscribe([topic]),
        consumer.assignment,
        consumer.memberid,
    ):
        with pytest.raises(RuntimeError, match=r"[Cc]losed"):
            call()


def test_a_with_block_closes(make: Make, topic: str) -> None:
    with make() as consumer:
        consumer.subscribe([topic])
        take(consumer, 1)
    with pytest.raises(RuntimeError):
        consumer.poll(0)


def test_topics_must_be_a_list_of_strings(make: Make) -> None:
    consumer = make()
    with pytest.raises(TypeError):
        consumer.subscribe("orders")
    with pytest.raises(TypeError):
        consumer.subscribe(["orders"], on_assign="not callable")


def test_a_commit_refused_for_one_partition_alone_says_which(broker: Broker, topic: str) -> None:
    """edge C68 K-16371: one entry with oversized metadata took the whole commit down. The others are in; whoever waits
    hears of it as an exception, as with librdkafka, and on_commit hears which one it was."""
    told: list[tuple[Any, dict[int, Any]]] = []
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"partly-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": lambda error, partitions: told.append((error, {p.partition: p.error for p in partitions})),
        }
    )
    consumer.subscribe([topic])
    take(consumer, 15)
    wanted = [ck.TopicPartition(topic, 0, 1, "x" * 5_000), ck.TopicPartition(topic, 1, 2)]
    with pytest.raises(ck.KafkaException) as refused:
        consumer.commit(offsets=wanted, asynchronous=False)
    assert refused.value.args[0].code() == ck.KafkaError.OFFSET_METADATA_TOO_LARGE
    assert [p.offset for p in consumer.committed(wanted, timeout=PATIENCE_S)] == [ck.OFFSET_INVALID, 2]

    consumer.commit(offsets=wanted)
    until(consumer, lambda: bool(told))
    ((error, verdicts),) = told
    assert error.code() == verdicts[0].code() == ck.KafkaError.OFFSET_METADATA_TOO_LARGE
    assert verdicts[1] is None
    consumer.close()


# -- arguments


def test_topics_are_named_once_and_by_text(make: Make, topic: str) -> None:
    """Twice, empty or no list raises in confluent-kafka; ours subscribed, or broke over a name of Python's."""
    consumer = make()
    for wrong in ([topic, topic], [], [""], [topic, ""]):
        with pytest.raises(ck.KafkaException) as caught:
            consumer.subscribe(wrong)
        assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG
    for no_list in (None, topic, 5):
        with pytest.raises(TypeError, match="expected list of topic unicode strings"):
            consumer.subscribe(no_list)
    consumer.subscribe([b"bytes", 5, None])  # text is made of whatever is in it, as there
    consumer.unsubscribe()


def test_partitions_are_partitions(make: Make) -> None:
    consumer = make()
    for call in (consumer.assign, consumer.incremental_assign, consumer.position, consumer.committed):
        with pytest.raises(TypeError, match="requires list of TopicPartition"):
            call("orders")
        with pytest.raises(TypeError, match=r"expected cimpl\.TopicPartition"):
            call(["orders"])


def test_a_commit_may_be_told_to_wait_by_the_old_name(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    one = [ck.TopicPartition(topic, 0, 2)]
    assert offsets(consumer.commit(offsets=one, **{"async": False})) == {0: 2}
    with pytest.raises(TypeError, match="invalid keyword argument"):
        consumer.commit(offsets=one, sync=True)


def test_a_topic_that_is_not_there_is_not_made(make: Make, topic: str) -> None:
    """`allow.auto.create.topics` is off in a consumer unless it says so, whatever the broker would allow."""
    missing, consumer, looking = f"{topic}-missing", make(), make()
    consumer.subscribe([missing])
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        consumer.poll(0.05)
    assert missing not in looking.list_topics(timeout=PATIENCE_S).topics


def test_a_topic_that_is_not_there_is_made_for_who_says_so(broker: Broker, topic: str) -> None:
    """Of ours alone: librdkafka asks for it with its next look at the cluster, five minutes later."""
    missing = f"{topic}-missing"
    given = {"bootstrap.servers": broker.bootstrap, "group.id": f"made-{topic}", "allow.auto.create.topics": True}
    consumer = holdfast.Consumer(given)
    consumer.subscribe([missing])
    until(consumer, lambda: missing in consumer.list_topics(timeout=PATIENCE_S).topics)
    consumer.close()


def test_a_message_with_an_error_can_be_neither_committed_nor_stored(make: Make, topic: str) -> None:
    """edge of poll loops that commit before they look: ours raised the message's own error, or a ValueError."""
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    wrong = ck.Message(topic=topic, partition=0, offset=3, error=ck.KafkaError(ck.KafkaError._PARTITION_EOF))
    calls: list[Callable[[], Any]] = [
        lambda: consumer.commit(message=wrong),
        lambda: consumer.store_offsets(message=wrong),
    ]
    for call in calls:
        with pytest.raises(ck.KafkaException) as caught:
            call()
        assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG


def test_a_message_that_was_made_without_an_offset_is_passed_over(make: Make, topic: str) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.assign([ck.TopicPartition(topic, 0)])
    assert consumer.commit(message=ck.Message(topic=topic, partition=0)) is None


def test_a_callback_that_raises_does_not_keep_a_consumer_from_closing() -> None:
    """Symptom: close() raised what error_cb raised, and librdkafka's handle with its threads stayed open. Cause: it
    stops closing there. Of ours alone: confluent's raises if an error happens to wait, and is left half closed."""
    told: list[Any] = []

    def raising(error: Any) -> None:
        told.append(error)
        raise RuntimeError("from error_cb")

    nobody = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "session.timeout.ms": 1_000}
    consumer = holdfast.Consumer({**nobody, "error_cb": raising})
    consumer.subscribe(["orders"])
    with pytest.raises(RuntimeError, match="from error_cb"):
        until(consumer, lambda: False)
    consumer.close()
    assert told
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)
    with pytest.raises(RuntimeError):
        reading_of(consumer).handle.poll(0)
