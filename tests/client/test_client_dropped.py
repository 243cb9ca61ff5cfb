"""A consumer that is dropped without close(): Python frees it, and its membership must end with it.

It used to live on: the control thread and librdkafka's kept it, with its watchdog, and its member held partitions that
nobody read until the process ended. confluent-kafka's leaves its group when it is freed.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER, take, until

import holdfast
from holdfast.testing import Broker
from inside import core_of, watchdog_of
from patience import PATIENCE_S, wait_for


def ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast-dropped")}


def made(broker: Broker, group: str, **more: Any) -> holdfast.Consumer:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return holdfast.Consumer({**settings, **more})


class Application:
    """As most are written: it owns the consumer, and its methods are the callbacks."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        self.called: list[str] = []
        self.consumer = made(broker, group, on_commit=self.on_commit, error_cb=self.on_error)
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke)

    def on_commit(self, _error: Any, _partitions: Any) -> None:
        self.called.append("commit")

    def on_error(self, _error: Any) -> None:
        self.called.append("error")

    def on_assign(self, _consumer: Any, _partitions: Any) -> None:
        self.called.append("assign")

    def on_revoke(self, _consumer: Any, _partitions: Any) -> None:
        self.called.append("revoke")


def test_a_dropped_consumer_leaves_its_group_and_nothing_behind(broker: Broker, topic: str) -> None:
    """What it processed is committed, and whoever comes next gets its partitions without waiting for the session."""
    group = f"dropped-{next(COUNTER)}"
    application = Application(broker, topic, group)
    take(application.consumer, 15)
    application.consumer.poll(0)  # now the last record counts as processed
    called = application.called
    watchdog = watchdog_of(application.consumer)
    freed = weakref.ref(application.consumer)
    assert ours()
    del application
    gc.collect()
    assert freed() is None
    wait_for(lambda: not ours())
    wait_for(lambda: not watchdog.running)
    assert called == ["assign"], "nobody is called any more"
    other = made(broker, group)
    other.subscribe([topic])
    until(other, lambda: len(other.assignment()) == 3)
    assert [p.offset for p in other.committed([ck.TopicPartition(topic, p) for p in range(3)], PATIENCE_S)] == [5] * 3
    other.close()


def on_a_thread_with(ident: int | None, work: Callable[[], None]) -> None:
    """Run it on a new thread that has this number: threads are started until one has it."""
    found, enough = threading.Event(), threading.Event()

    def run() -> None:
        if threading.get_ident() != ident:
            enough.wait()
            return
        found.set()
        work()

    threads: list[threading.Thread] = []
    while len(threads) < 200 and not found.wait(0.05 if threads else 0):
        threads.append(threading.Thread(target=run))
        threads[-1].start()
    enough.set()
    for thread in threads:
        thread.join()
    if not found.is_set():
        pytest.skip("no new thread got the number of the one that ended")


def test_an_asyncio_consumer_leaves_also_when_the_thread_of_its_loop_has_ended(broker: Broker, topic: str) -> None:
    """Symptom: dropped after its thread had ended, an AsyncConsumer took ten seconds, revoked nothing and did not
    leave. Cause: it knew its loop's thread by number, and the system gave that number to the thread that closed it. So
    the close waited for the loop to make the listener's calls. Rule: a thread is known by its object."""
    group = f"dropped-{next(COUNTER)}"
    kept: list[holdfast.AsyncConsumer] = []

    async def scene() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        kept.append(holdfast.AsyncConsumer(settings))
        kept[0].subscribe([topic])
        while len(kept[0].assignment()) < 3:
            await kept[0].poll(0.1)

    loops = threading.Thread(target=lambda: asyncio.run(scene()))
    loops.start()
    loops.join(PATIENCE_S)
    assert len(broker.group(group).members) == 1
    on_a_thread_with(loops.ident, core_of(kept[0]).close_silently)
    assert not broker.group(group).members


def engines() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-engine"]


def test_an_asyncio_consumer_that_could_not_be_made_leaves_no_thread_behind(broker: Broker) -> None:
    """Symptom: after NO_TRACE the shared thread stayed for good, with a fetcher for every try. Cause: the trace was
    opened after the fetcher, and nothing was closed when that failed. Rule: a constructor that fails closes what it has
    opened."""
    before = engines()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "holdfast.trace.file": "/nowhere/trace"}

    async def scene() -> None:
        with pytest.raises(holdfast.HoldfastError, match="NO_TRACE"):
            holdfast.AsyncConsumer(settings)

    asyncio.run(scene())
    assert engines() == before


def test_a_refused_setting_is_told_with_advice_also_beside_a_trace_topic(broker: Broker) -> None:
    """The trace's producer gets the same settings, and would refuse them first, in librdkafka's words alone."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "ssl.bogus": 1, "holdfast.trace.topic": "t"}
    with pytest.raises(holdfast.HoldfastError, match="CONFIG_INVALID"):
        holdfast.Consumer(settings)


def test_a_closed_consumer_is_freed_without_a_word(broker: Broker, topic: str) -> None:
    consumer = made(broker, f"dropped-{next(COUNTER)}")
    consumer.subscribe([topic])
    take(consumer, 1)
    consumer.close()
    before = threading.active_count()
    del consumer
    gc.collect()
    assert threading.active_count() <= before


def test_a_consumer_whose_constructor_was_not_called_says_that_it_is_closed() -> None:
    """As confluent-kafka's; ours raised an AttributeError about a name of our own."""

    class Unmade(holdfast.Consumer):
        def __init__(self) -> None:
            pass

    for call in ("poll", "assignment", "unassign", "consumer_group_metadata", "memberid"):
        try:
            getattr(Unmade(), call)()
        except RuntimeError as error:
            assert str(error) == "Consumer closed"
        else:
            raise AssertionError(f"{call}() did not say so")
    Unmade().close()
