"""What the group remembers and what the checkpoint knows: where a query goes on when one of them has forgotten.

The rule is in docs/spark.md, "Where a query begins". Nothing is skipped: what nobody knows is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from source_engine import Checkpoint, Engine, committed, every, produce

from holdfast.group.messages import OffsetEntry
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark.notes import ANY, MOST_BEGUN, Memory, digest, read_notes, write_note
from holdfast.testing import Broker
from patience import PATIENCE_S, wait_for

LATEST = {"startingOffsets": "latest"}
GO_ON = {"failOnDataLoss": "false"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        produce(running, 5)
        yield running


def ask(broker: Broker, question: Callable[[Any], Any]) -> None:
    client: Any = AdminClient({"bootstrap.servers": broker.bootstrap})  # it must live until it is answered
    for future in question(client).values():
        future.result(PATIENCE_S)


def forget(broker: Broker) -> None:
    """The group's offsets are gone, as when it was away for longer than the brokers keep them."""
    ask(broker, lambda client: client.delete_consumer_groups(["g"]))


def recreate(broker: Broker, count: int) -> None:
    ask(broker, lambda client: client.delete_topics(["orders"]))
    broker.topics.create("orders", partitions=4)
    produce(broker, count)


def worked(broker: Broker, **options: str) -> Checkpoint:
    """The checkpoint of a query that has read five records of each partition, and two more of the first."""
    checkpoint = Checkpoint()
    query = Engine(broker.bootstrap, checkpoint, **options)
    query.run_until(lambda: len(query.seen) == 20)
    produce(broker, 2, partitions=1)
    query.run_until(lambda: len(query.seen) == 22)
    assert query.plan() is None
    query.stop()
    return checkpoint


# -- the group has forgotten


@pytest.mark.parametrize("by", [{}, {"assign": '{"orders": [0, 1, 2, 3]}'}], ids=["subscribe", "assign"])
def test_a_group_without_offsets_goes_on_where_the_checkpoint_stood(broker: Broker, by: dict[str, str]) -> None:
    """Symptom: the group's offsets had expired; partitions of the last batch went on, and the others began at
    startingOffsets: with latest, everything produced meanwhile was skipped. Cause: a checkpoint knew the last batch's
    ranges only. Rule: it knows where all partitions of the query stood, and that counts where the group has nothing."""
    checkpoint = worked(broker, **by)
    forget(broker)
    produce(broker, 3)
    again = Engine(broker.bootstrap, checkpoint, **LATEST, **by)
    again.run_until(lambda: len(again.seen) == 12)
    assert sorted(again.seen) == [(0, 7), (0, 8), (0, 9)] + [(p, o) for p in (1, 2, 3) for o in (5, 6, 7)]
    again.stop()


def test_a_batch_left_unfinished_is_read_again_although_the_group_has_forgotten(broker: Broker) -> None:
    checkpoint = worked(broker)
    produce(broker, 1, partitions=2)
    query = Engine(broker.bootstrap, checkpoint)
    assert query.plan_something().ranges
    query.stop()
    forget(broker)
    produce(broker, 1, partitions=3)
    again = Engine(broker.bootstrap, checkpoint, **LATEST)
    assert again.step() == 2
    again.run_until(lambda: len(again.seen) == 5)
    assert sorted(again.seen) == [(0, 7), (0, 8), (1, 5), (1, 6), (2, 5)]
    again.stop()


def test_what_came_while_the_group_was_gone_is_read_from_its_beginning(broker: Broker) -> None:
    checkpoint = worked(broker)
    forget(broker)
    ask(broker, lambda client: client.create_partitions([NewPartitions("orders", 5)]))
    produce(broker, 2, partitions=5)
    again = Engine(broker.bootstrap, checkpoint, **LATEST)
    again.run_until(lambda: len(again.seen) == 10)
    assert {(4, 0), (4, 1)} < set(again.seen)
    again.stop()


def test_members_tell_the_group_what_their_checkpoints_know_and_refuse_what_none_does(broker: Broker) -> None:
    """Two queries shared the topic, and the group has forgotten. Neither checkpoint knows the other's partitions: to
    begin them at startingOffsets would skip or repeat. Each tells the group what it knows, so the two together lose
    nothing, whoever gets which partition."""
    checkpoints = Checkpoint(), Checkpoint()
    first, second = (Engine(broker.bootstrap, one) for one in checkpoints)
    first.run_until(lambda: len(first.owned()) == len(second.owned()) == 2, second)
    produce(broker, 2)
    first.run_until(lambda: len(first.seen) + len(second.seen) == 28, second)
    seen = first.seen + second.seen
    held = sorted(first.owned())
    assert first.plan() is second.plan() is None
    first.stop()
    second.stop()
    forget(broker)
    produce(broker, 2)
    alone = Engine(broker.bootstrap, checkpoints[1], **LATEST)
    with pytest.raises(HoldfastError, match=rf"GROUP_OFFSETS_LOST.*orders-{held[0]}, orders-{held[1]}.*Start that"):
        alone.plan()
    alone.stop()
    again = Engine(broker.bootstrap, checkpoints[0], **LATEST)
    again.run_until(lambda: len(again.seen) == 8)
    assert sorted(seen + again.seen) == every(9)
    again.stop()


def test_a_checkpoint_of_an_older_version_does_not_know_enough(broker: Broker) -> None:
    checkpoint = worked(broker)
    checkpoint.planned[-1] = '{"v": 1, "batch": 2, "generation": 1, "ranges": {"orders": {"0": [5, 7]}}}'
    forget(broker)
    again = Engine(broker.bootstrap, checkpoint, **LATEST)
    with pytest.raises(HoldfastError, match="GROUP_OFFSETS_LOST"):
        again.plan()
    again.stop()


# -- the topic is another one


def test_a_topic_made_anew_is_not_gone_on_with_where_the_old_one_ended(broker: Broker) -> None:
    """Symptom: a topic was deleted and made anew while the query was down, and its first records were never read.
    Cause: the last batch's ends counted, although they were the old topic's. Rule: a topic is known by its id."""
    checkpoint = worked(broker)
    recreate(broker, 20)
    strict = Engine(broker.bootstrap, checkpoint)
    with pytest.raises(HoldfastError, match=r"TOPIC_RECREATED: orders .*failOnDataLoss=false"):
        strict.plan()
    strict.stop()
    again = Engine(broker.bootstrap, checkpoint, **GO_ON, **LATEST)
    with pytest.warns(UserWarning, match="TOPIC_RECREATED"):
        again.run_until(lambda: len(again.seen) == 80)
    assert sorted(again.seen) == every(20)
    again.stop()


def test_what_was_committed_before_a_new_topic_was_noticed_means_nothing(broker: Broker) -> None:
    """Symptom: a query was told TOPIC_RECREATED, and started again with failOnDataLoss=false as it says; yet the first
    records of the new topic were never read. Cause: until it noticed, it had read on at its old position, and the
    group's offset of the new topic was taken for what was done. Rule: an offset belongs to the topic that it was
    committed for, so the commit says which one."""
    checkpoint = worked(broker)
    query = Engine(broker.bootstrap, checkpoint)
    assert query.plan() is None
    recreate(broker, 20)
    query.run_until(lambda: len(query.seen) > 0)  # nobody looks at topics' ids in this second
    query.run_until(lambda: set(committed(broker).values()) == {20})
    query.stop()
    assert (0, 0) not in query.seen
    again = Engine(broker.bootstrap, checkpoint, **GO_ON, **LATEST)
    with pytest.warns(UserWarning, match="TOPIC_RECREATED"):
        again.run_until(lambda: len(again.seen) == 80)
    assert sorted(again.seen) == every(20)
    again.commit()
    again.run_until(lambda: set(committed(broker).values()) == {20})
    again.stop()
    last = Engine(broker.bootstrap, again.checkpoint, **GO_ON)
    assert last.plan() is None, "what is committed now is the new topic's"
    last.stop()


def test_a_topic_made_anew_under_a_running_query_is_noticed_although_it_is_longer(broker: Broker) -> None:
    """Between two looks a topic can be deleted, made anew and filled beyond the query's position: its end tells
    nothing."""
    query = Engine(broker.bootstrap, kafka__metadata__max__age__ms="100")
    query.run_until(lambda: len(query.seen) == 20)
    recreate(broker, 20)
    with pytest.raises(HoldfastError, match="TOPIC_RECREATED"):
        query.run_until(lambda: False)
    query.stop()


def test_a_topic_made_anew_under_a_running_query_is_read_from_its_beginning_if_loss_is_no_error(broker: Broker) -> None:
    query = Engine(broker.bootstrap, kafka__metadata__max__age__ms="100", **GO_ON)
    query.run_until(lambda: len(query.seen) == 20)
    recreate(broker, 20)
    query.seen.clear()
    with pytest.warns(UserWarning, match="TOPIC_RECREATED"):
        query.run_until(lambda: set(query.seen) >= set(every(20)))
    query.stop()


# -- the group's notes


def test_with_many_topics_the_group_still_knows_what_was_there_when_it_began(broker: Broker) -> None:
    """Symptom: with some forty topics, those that came later began at latest. Cause: each commit's metadata listed all
    topics, and nothing at all once they did not fit. Rule: each commit speaks of its own topic."""
    topics = [f"a-topic-with-quite-a-long-name-{number:02}" for number in range(45)]
    for topic in topics:
        broker.topics.create(topic, partitions=1)
    pattern = {"subscribePattern": "a-topic-.*"}
    query = Engine(broker.bootstrap, **pattern, **LATEST)
    assert query.plan() is None
    query.stop()
    broker.topics.create("a-topic-that-came-later", partitions=1)
    produce(broker, 3, topic="a-topic-that-came-later", partitions=1)
    produce(broker, 2, topic=topics[7], partitions=1)
    again = Engine(broker.bootstrap, **pattern, **LATEST)
    again.run_until(lambda: len(again.seen) == 5)
    again.stop()


def test_members_that_begin_together_agree_that_everything_was_there(broker: Broker) -> None:
    """The first one's commits are there, with their notes, before the second has looked: what only the second reads is
    not taken for something that came later."""
    broker.topics.create("one", partitions=1)
    broker.topics.create("two", partitions=1)
    for topic in ("one", "two"):
        produce(broker, 5, topic=topic, partitions=1)
    wanted = {"subscribe": "one,two"} | LATEST
    first, second = Engine(broker.bootstrap, **wanted), Engine(broker.bootstrap, **wanted)
    wait_for(lambda: len(first.member.report()["owned"]) == len(second.member.report()["owned"]) == 1)
    assert first.plan() is None
    assert second.plan() is None
    for topic in ("one", "two"):
        produce(broker, 1, topic=topic, partitions=1)
    first.run_until(lambda: len(first.seen) + len(second.seen) == 2, second)
    first.stop()
    second.stop()


def test_a_query_on_other_topics_of_the_group_begins_where_its_options_say(broker: Broker) -> None:
    """Symptom: a second query in the group, on another topic, ignored its `latest` and read everything. Cause: what
    the first query's notes did not know had come later. Rule: later than a query with the same subscription."""
    first = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.seen) == 20)
    assert first.plan() is None
    broker.topics.create("other", partitions=1)
    produce(broker, 5, topic="other", partitions=1)
    second = Engine(broker.bootstrap, subscribe="other", **LATEST)
    assert second.plan() is None
    produce(broker, 2, topic="other", partitions=1)
    second.run_until(lambda: len(second.seen) == 2, first)
    assert second.seen == [(0, 5), (0, 6)]
    first.stop()
    second.stop()


def test_a_topic_that_is_added_to_a_querys_subscription_is_read_from_its_beginning(broker: Broker) -> None:
    """As in Spark's own source: the query has been there before, and the topic has not."""
    checkpoint = worked(broker)
    broker.topics.create("other", partitions=1)
    produce(broker, 3, topic="other", partitions=1)
    again = Engine(broker.bootstrap, checkpoint, subscribe="orders,other", **LATEST)
    again.run_until(lambda: len(again.seen) == 3)
    again.stop()


def test_where_an_older_version_noted_no_subscription_what_it_does_not_know_came_later(broker: Broker) -> None:
    note = '{"holdfast":1,"known":{"orders":4}}'
    entries = {TopicPartition("orders", n): OffsetEntry(5, metadata=note) for n in range(4)}

    async def commit() -> None:
        async with Cluster(client_config({"bootstrap.servers": broker.bootstrap})) as cluster:
            assert not any((await Admin(cluster).commit("g", entries)).values())

    asyncio.run(commit())
    wanted = {"subscribe": "orders,late"} | LATEST
    broker.topics.create("late", partitions=2)
    produce(broker, 3, topic="late", partitions=2)
    query = Engine(broker.bootstrap, **wanted)
    query.run_until(lambda: len(query.seen) == 6)
    query.stop()


def test_notes_of_strangers_are_nothing_and_the_least_of_ours_counts() -> None:
    ours = [OffsetEntry(1, metadata=write_note("a", 4, {"x": "1"})), OffsetEntry(1, metadata=write_note("a", 3, {}))]
    ours += [OffsetEntry(1, metadata='{"holdfast":1,"known":{"a":5,"b":2}}')]  # as older versions wrote it
    strangers = ["x", '{"holdfast": 9}', "", "[]", "7", '{"holdfast":1,"known":{"a":0},"begun":["x"]}']
    found = read_notes([*(OffsetEntry(1, metadata=text) for text in strangers), *ours])
    assert found == Memory(known={"a": 3, "b": 2}, begun={"x": "1"})
    assert read_notes(ours[2:]).has_begun("any subscription")
    assert read_notes([]) == Memory()


def test_a_note_fits_whatever_the_topics_and_the_subscriptions() -> None:
    memory = Memory(begun={digest([str(number)]): digest([str(number)]) for number in range(100)} | {ANY: ""})
    begun = memory.with_begun(digest(["ours"]), "now")
    assert len(begun) == MOST_BEGUN
    assert next(iter(begun.items())) == (digest(["ours"]), "now")
    assert ANY not in begun, "what an import left is taken up by the first query"
    assert Memory(begun=begun).with_begun(digest(["ours"]), "later") == begun, "the beginning is noted once"
    assert len(write_note("t" * 249, 10_000, begun)) <= 1_024
