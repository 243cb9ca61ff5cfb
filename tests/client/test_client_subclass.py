"""The consumer in other people's class hierarchies: subclassed, checked by isinstance, put in confluent's place.

Frameworks subclass the consumer with attributes and methods of their own. Ours used to keep its state in attributes
such as `_config` and to call its own public methods, so a subclass that used the same name, or overrode `assign`, broke
it. All of our state hangs on one attribute now, and nothing inside calls the surface.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import cimpl

import holdfast
from holdfast.testing import Broker

NAMES = ("_config", "_data", "_offsets", "_closed", "_control", "_round", "_notes", "_trace", "_engine", "_subscribed")
METHODS = ("_plane", "_serve", "_slice", "_open", "_close", "_make_calls", "_may_process", "_to_commit", "_started_at")


class Framework(holdfast.Consumer):
    """Names everything as we once did, and overrides public methods."""

    def __init__(self, config: dict[str, Any]) -> None:
        for name in NAMES:
            setattr(self, name, f"the framework's own {name}")
        super().__init__(config)
        self.asked: list[str] = []

    def assign(self, partitions: list[Any]) -> None:
        raise AssertionError("nobody but the application calls this")

    def committed(self, partitions: list[Any], timeout: float | None = None) -> list[Any]:
        raise AssertionError("nobody but the application calls this")

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            raise AssertionError(f"the framework's own {name}() was called")
        return super().__getattribute__(name)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        started.topics.create("orders", partitions=1)
        producer = ck.Producer({"bootstrap.servers": started.bootstrap})
        for number in range(10):
            producer.produce("orders", str(number).encode())
        producer.flush()
        yield started


def settings(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}


def ten(consumer: Any) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < 10:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
    return found


def test_a_subclass_may_name_its_attributes_and_methods_as_it_likes(broker: Broker) -> None:
    told: list[object] = []
    consumer = Framework(settings(broker))
    consumer.subscribe(["orders"], on_assign=lambda who, _partitions: told.append(who))
    assert ten(consumer) == [str(number).encode() for number in range(10)]
    consumer.close()
    assert told == [consumer]  # callbacks get the application's object
    assert consumer.__dict__["_config"] == "the framework's own _config"


def test_it_is_a_confluent_consumer_to_whoever_asks(broker: Broker) -> None:
    with holdfast.Consumer(settings(broker)) as consumer:
        assert isinstance(consumer, cimpl.Consumer)


def test_every_public_method_of_confluents_is_ours(broker: Broker) -> None:
    """One that is not replaced would act on confluent's own handle, which is never opened."""
    theirs = {name for name in vars(cimpl.Consumer) if not name.startswith("_")}
    assert theirs <= set(vars(holdfast.Consumer))


def test_in_confluents_place_it_does_not_call_itself(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """`confluent_kafka.Consumer = holdfast.Consumer` made our data plane a consumer of ours, and so on without end."""
    monkeypatch.setattr(ck, "Consumer", holdfast.Consumer)
    consumer = ck.Consumer(settings(broker))
    consumer.subscribe(["orders"])
    assert len(ten(consumer)) == 10
    consumer.close()


@pytest.mark.parametrize("kind", [ck.Consumer, holdfast.Consumer])
def test_one_that_was_never_made_says_that_it_is_closed_whatever_it_is_given(kind: type[ck.Consumer]) -> None:
    """A subclass that forgets super().__init__(): store_offsets() complained of its argument first."""

    class Forgetful(kind):  # type: ignore[valid-type,misc]  # either class
        def __init__(self) -> None:
            pass

    for name, given in (("store_offsets", [[ck.TopicPartition("orders", 0, 42)]]), ("assign", [[]]), ("commit", [])):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            getattr(Forgetful(), name)(*given)
