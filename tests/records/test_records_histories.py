"""Any history of feeding, taking and discarding: rows come once, in order, and positions tell the truth."""

from __future__ import annotations

import threading
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from records_world import CODECS, NOW, plain

from holdfast.model import TopicPartition
from holdfast.records.arrow import ArrowDecoder
from holdfast.records.compression import Codec
from holdfast.records.encode import Producer, encode_batch, encode_marker

partitions = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("records"), partitions, st.integers(1, 60), st.sampled_from(CODECS)),
    st.tuples(st.just("marker"), partitions, st.just(0), st.just(Codec.NONE)),
    st.tuples(st.just("take"), partitions, st.integers(1, 80), st.just(Codec.NONE)),
    st.tuples(st.just("discard"), partitions, st.just(0), st.just(Codec.NONE)),
)


class Model:
    """What a decoder must do, told with lists."""

    def __init__(self) -> None:
        self.log_end = [0, 0, 0]
        self.waiting: deque[tuple[int, int]] = deque()
        self.behind: dict[tuple[int, int], int] = {}
        """A row that has filtered offsets behind it: where they end."""
        self.positions: dict[int, int] = {}

    def feed_records(self, partition: int, number: int) -> None:
        first = self.log_end[partition]
        self.positions.setdefault(partition, first)
        self.waiting.extend((partition, first + index) for index in range(number))
        self.log_end[partition] += number

    def feed_marker(self, partition: int) -> None:
        end = self.log_end[partition] = self.log_end[partition] + 1
        last = next((row for row in reversed(self.waiting) if row[0] == partition), None)
        if last is None:
            self.positions[partition] = end
        else:
            self.behind[last] = end

    def take(self, number: int) -> list[tuple[int, int]]:
        taken = [self.waiting.popleft() for _ in range(min(number, len(self.waiting)))]
        for row in taken:
            self.positions[row[0]] = self.behind.pop(row, row[1] + 1)
        return taken

    def discard(self, partition: int) -> None:
        self.waiting = deque(row for row in self.waiting if row[0] != partition)
        self.behind = {row: end for row, end in self.behind.items() if row[0] != partition}
        self.positions.pop(partition, None)


@settings(deadline=None, max_examples=150)
@given(st.lists(steps, max_size=40))
def test_every_history_gives_the_rows_and_positions_of_the_model(history: list[tuple[str, int, int, Codec]]) -> None:
    decoder, model = ArrowDecoder(), Model()
    for step, partition, number, codec in history:
        lo = model.log_end[partition]
        if step == "records":
            model.feed_records(partition, number)
            encoded = encode_batch(plain(number, offset=lo), codec=codec)
            assert decoder.feed(encoded, topic="t", partition=partition, lo=lo) == model.log_end[partition]
        elif step == "marker":
            model.feed_marker(partition)
            marker = encode_marker(offset=lo, timestamp=NOW, producer=Producer(producer_id=1), commit=True)
            assert decoder.feed(marker, topic="t", partition=partition, lo=lo) == model.log_end[partition]
        elif step == "take":
            batch = decoder.take(max_rows=number)
            columns = [] if batch is None else [batch.column(name).to_pylist() for name in ("partition", "offset")]
            assert list(zip(*columns, strict=True)) == model.take(number)
        else:
            decoder.discard("t", partition)
            model.discard(partition)
        assert decoder.positions == {TopicPartition("t", key): model.positions[key] for key in sorted(model.positions)}
        waiting = {key for key, _ in model.waiting}
        assert [decoder.waits("t", key) for key in range(3)] == [key in waiting for key in range(3)]
        assert (decoder.buffered_bytes > 0) == bool(waiting)


def test_decoders_in_several_threads_do_not_disturb_each_other() -> None:
    """The kernel runs without the GIL, so this is where shared state would show."""
    records = plain(5000, size=100)
    answer = encode_batch(records, codec=Codec.LZ4)
    wrong: list[str] = []

    def read(number: int) -> None:
        for _ in range(20):
            decoder = ArrowDecoder(max_rows=700 + number)
            decoder.feed(answer, topic=f"t{number}", partition=number, lo=0)
            values = [value for batch in decoder.drain() for value in batch.column("value").to_pylist()]
            if values != [record.value for record in records]:
                wrong.append(f"thread {number}")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
