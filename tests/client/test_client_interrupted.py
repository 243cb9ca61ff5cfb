"""Ctrl-C, or a signal handler that raises, between any two steps: what the application did not get is not lost.

A record that poll has taken from librdkafka counts as unread until it is handed out. Python may raise KeyboardInterrupt
wherever a signal finds it. What is then neither in `ahead` nor with the application would count as handed out: it would
not come any more, and close() would commit it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import confluent_kafka as ck
import pytest
from polling import take

import holdfast
from holdfast.client.reading.book import Book
from holdfast.client.reading.taken_ahead import Ahead
from holdfast.model import TopicPartition
from holdfast.testing import Broker
from inside import core_of, parts_of, reading_of
from patience import PATIENCE_S

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def interrupted_at(step: int, call: Callable[[], Any], file: str) -> bool:
    """Make this call, and raise KeyboardInterrupt at this step (a bytecode) of this file. False if it has fewer."""
    left = step

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if file not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def rows() -> list[ck.Message]:
    return [ck.Message(topic="t", partition=n % 2, offset=n // 2, value=b"x", leader_epoch=0) for n in range(10)]


def filled() -> tuple[Ahead, list[ck.Message]]:
    """Ten unread records of two partitions, of which one was handed out."""
    book = Book()
    book.begin({ZERO: 0, ONE: 0})
    ahead, unread = Ahead(book), rows()
    ahead.put(unread)
    ahead.ready.popleft()
    return ahead, unread[1:]


def sweep(act: Callable[[Ahead], Any], then: Callable[[Ahead], Any]) -> int:
    """Interrupt this at each of its steps, do what follows, and look that every record is there once. How many steps
    there are."""
    step = 1
    while True:
        ahead, unread = filled()
        if not interrupted_at(step, lambda ahead=ahead: act(ahead), "taken_ahead"):  # type: ignore[misc]
            return step
        then(ahead)
        assert sorted(map(id, ahead.ready)) == sorted(map(id, unread)), f"step {step}"
        assert {p: entry.offset for p, entry in ahead.positions([ZERO, ONE]).items()} == {ZERO: 1}, f"step {step}"
        step += 1


def test_an_interrupted_pause_costs_no_record() -> None:
    """Symptom: after a Ctrl-C in pause() up to 500 records did not come any more, and close() committed them. Cause:
    they are taken out to be sorted, and were gone with the call. Rule: interrupted, all is as before."""
    assert sweep(lambda ahead: ahead.set_aside([ONE]), lambda ahead: ahead.bring_back([ONE])) > 50


def test_an_interrupted_resume_costs_no_record() -> None:
    def paused_and_resumed(ahead: Ahead) -> None:
        ahead.set_aside([ONE])
        ahead.bring_back([ONE])

    assert sweep(paused_and_resumed, lambda ahead: ahead.bring_back([ONE])) > 100


def test_what_is_interrupted_on_its_way_in_does_not_count_as_handed_out() -> None:
    """The reader reads it again from the position, which must not be past it."""
    step = 1
    while True:
        book = Book()
        book.begin({ZERO: 0, ONE: 0})
        ahead, came = Ahead(book), rows()
        if not interrupted_at(step, lambda ahead=ahead, came=came: ahead.put(came), "taken_ahead"):  # type: ignore[misc]
            break
        assert ahead.positions([ZERO, ONE]) == {}, f"step {step}"
        assert list(ahead.ready) in ([], came), f"step {step}"
        step += 1
    assert step > 20


def reader_of(broker: Broker, topic: str) -> holdfast.Consumer:
    return holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    )


def begin(consumer: holdfast.Consumer, topic: str) -> None:
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(3)])


def places(messages: list[ck.Message]) -> list[tuple[int | None, int | None]]:
    return sorted((message.partition(), message.offset()) for message in messages)


EVERYTHING = [(partition, offset) for partition in range(3) for offset in range(5)]


def test_an_interrupted_consume_costs_nothing_of_what_polls_had_left(broker: Broker, topic: str) -> None:
    """Symptom: a consume() after polls takes what they left in `ahead` first; a Ctrl-C meanwhile cost all of it."""
    struck = 0
    with reader_of(broker, topic) as consumer:
        for step in range(1, 120, 4):
            begin(consumer, topic)
            found = take(consumer, 1)
            while not reading_of(consumer).ahead.ready and len(found) < len(EVERYTHING):
                found += take(consumer, 1)
            came: list[ck.Message] = []
            struck += interrupted_at(step, lambda came=came: came.extend(consumer.consume(9, 0)), "client/reading")  # type: ignore[misc]
            found += came
            found += take(consumer, len(EVERYTHING) - len(found))
            assert places(found) == EVERYTHING, f"step {step}"
    assert struck > 10


class CutOff(deque[ck.Message]):
    """Python raises it as soon as the record was taken, before anybody has it."""

    cuts = 0

    def popleft(self) -> ck.Message:
        message = super().popleft()
        if self.cuts:
            self.cuts -= 1
            raise KeyboardInterrupt
        return message


@pytest.mark.parametrize("where", ["taken", "noted"])
def test_a_poll_that_is_interrupted_as_it_takes_a_record_gives_it_to_the_next(
    broker: Broker, topic: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: the record did not come any more, and close() committed it."""
    with reader_of(broker, topic) as consumer:
        notes = parts_of(consumer).notes
        cut = cast(Any, core_of(consumer))._ready = reading_of(consumer).ahead.ready = CutOff()
        begin(consumer, topic)
        found = take(consumer, 3)

        def interrupt(_: ck.Message) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as struck, pytest.raises(KeyboardInterrupt):
            if where == "taken":
                cut.cuts = 1
            else:
                struck.setattr(notes, "returned_one", interrupt)
            take(consumer, 1)
        stood = {p.partition: p.offset for p in consumer.position(consumer.assignment()) if p.offset >= 0}
        assert stood == {n: max(m.offset() or 0 for m in found if m.partition() == n) + 1 for n in stood}
        found += take(consumer, len(EVERYTHING) - len(found))
        assert places(found) == EVERYTHING


# -- what is read changes


def of_batch(batch: Any) -> list[tuple[int, int]]:
    return list(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))


def arrow_rest(consumer: holdfast.Consumer, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    until = time.monotonic() + PATIENCE_S
    while len(found) < len(EVERYTHING) and time.monotonic() < until:
        found = found + of_batch(consumer.consume_arrow(4, 0.05))
    return sorted(found)


@pytest.mark.parametrize("to_arrow", [True, False])
def test_a_change_of_the_reader_that_is_interrupted_is_finished_by_the_next_call(
    broker: Broker, topic: str, to_arrow: bool
) -> None:
    """Symptom: after a Ctrl-C in the instant in which poll() and consume_arrow() change over nothing came any more.
    Cause: everything was unassigned from the one reader, and assigned to nobody. Rule: see `DataPlane._changing`."""
    struck = 0
    with reader_of(broker, topic) as consumer:

        def change() -> None:
            came.extend(of_batch(consumer.consume_arrow(1, 0)) if to_arrow else places(consumer.consume(1, 0)))

        step = 1
        while True:
            came: list[tuple[Any, Any]] = []
            begin(consumer, topic)
            if to_arrow:
                came += places(take(consumer, 2))
            else:
                while not came:
                    came += of_batch(consumer.consume_arrow(2, 0.05))
            if not interrupted_at(step, change, "reading/data_plane"):
                break
            struck += 1
            if to_arrow:
                assert arrow_rest(consumer, came) == EVERYTHING, f"step {step}"
            else:
                assert sorted(came + places(take(consumer, len(EVERYTHING) - len(came)))) == EVERYTHING, f"step {step}"
            step += 2
    assert struck > 10


def test_a_seek_that_is_interrupted_is_done_by_the_next_call(broker: Broker, topic: str) -> None:
    """Symptom: a Ctrl-C in seek(), after librdkafka had sought, and some records came twice. Cause: those taken ahead
    from before were still handed out. Rule: from the first record on it is as if it had been sought, or not at all."""
    struck = 0
    with reader_of(broker, topic) as consumer:
        step = 1
        while True:
            begin(consumer, topic)
            found = take(consumer, 2)
            while not reading_of(consumer).ahead.ready and len(found) < len(EVERYTHING):
                found += take(consumer, 1)
            upto = {number: sum(m.partition() == number for m in found) for number in range(3)}
            where = ck.TopicPartition(topic, 1, 0)
            if not interrupted_at(step, lambda where=where: consumer.seek(where), "client/reading"):  # type: ignore[misc]
                break
            struck += 1
            as_before = [(p, o) for p, o in EVERYTHING if o >= upto[p]]
            as_sought = [(p, o) for p, o in EVERYTHING if o >= (0 if p == 1 else upto[p])]
            came = places(take(consumer, len(as_before)))
            if came != as_before:
                assert sorted(came + places(take(consumer, len(as_sought) - len(came)))) == as_sought, f"step {step}"
            step += 11
    assert struck > 10


@pytest.mark.parametrize("file", ["client/polling", "client/reading", "records/arrow"])
def test_a_batch_that_the_application_did_not_get_is_read_again(broker: Broker, topic: str, file: str) -> None:
    """Symptom: a Ctrl-C in consume_arrow() cost the batch that was decoded just then, up to 65,536 records, and close()
    committed it. Cause: it counted as handed out as soon as it was decoded."""
    struck = 0
    with reader_of(broker, topic) as consumer:
        step = 1
        while True:
            begin(consumer, topic)
            found: list[tuple[int, int]] = []
            while not found:
                found = of_batch(consumer.consume_arrow(2, 0.05))
            came: list[tuple[int, int]] = []

            def one(came: list[tuple[int, int]] = came) -> None:
                batch = consumer.consume_arrow(5, 0)
                sys.settrace(None)  # from here on the application has it
                came += of_batch(batch)

            if not interrupted_at(step, one, file):
                break
            struck += 1
            stood = {p.partition: p.offset for p in consumer.position(consumer.assignment()) if p.offset >= 0}
            assert all(sum(q == p for q, _ in found) == at for p, at in stood.items()), f"step {step}: {stood}, {found}"
            assert arrow_rest(consumer, found) == EVERYTHING, f"step {step}"
            step += 29
    assert struck > 5
