"""What a reader must not see, and where it reads on: control records, aborted transactions, gaps, cut answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_world import CODECS, NOW, decode, plain, rows

from holdfast.model import HoldfastError, TopicPartition
from holdfast.records.arrow import ArrowDecoder
from holdfast.records.batch import Record, iter_records
from holdfast.records.compression import Codec
from holdfast.records.encode import Producer, encode_batch, encode_marker

WHERE = TopicPartition("t", 0)


def written(producer_id: int, offset: int, number: int = 2) -> bytes:
    """A batch of a transaction."""
    return encode_batch(plain(number, offset=offset), producer=Producer(producer_id=producer_id), transactional=True)


def ended(producer_id: int, offset: int, *, commit: bool) -> bytes:
    return encode_marker(offset=offset, timestamp=NOW, producer=Producer(producer_id=producer_id), commit=commit)


def offsets(records: bytes, aborted: list[tuple[int, int]] | None) -> list[int]:
    """Read by both paths, which must agree."""
    found = decode(records, aborted=aborted)
    assert found == list(iter_records(records, aborted=aborted))
    return [record.offset for record in found]


INTERLEAVED = (
    written(1, 0)  # aborted at 7
    + written(2, 2)  # committed at 6
    + encode_batch(plain(1, offset=4))
    + written(1, 5, 1)
    + ended(2, 6, commit=True)
    + ended(1, 7, commit=False)
    + written(1, 8)  # the same producer's next transaction, committed at 10
    + ended(1, 10, commit=True)
    + written(1, 11)  # and one more, aborted at 13
    + ended(1, 13, commit=False)
)


def test_records_of_aborted_transactions_are_left_out() -> None:
    assert offsets(INTERLEAVED, [(1, 0), (1, 11)]) == [2, 3, 4, 8, 9]


def test_the_order_of_the_list_of_aborted_transactions_does_not_matter() -> None:
    assert offsets(INTERLEAVED, [(1, 11), (1, 0)]) == [2, 3, 4, 8, 9]


def test_without_the_list_everything_but_control_records_is_read() -> None:
    assert offsets(INTERLEAVED, None) == [0, 1, 2, 3, 4, 5, 8, 9, 11, 12]


def test_an_aborted_producer_id_does_not_hide_records_without_a_transaction() -> None:
    """An id may be re-used by an idempotent producer that has no transactions."""
    idempotent = encode_batch(plain(2, offset=0), producer=Producer(producer_id=1, epoch=0, base_sequence=0))
    assert offsets(idempotent + written(1, 2) + ended(1, 4, commit=False), [(1, 0)]) == [0, 1]


def test_an_abort_marker_before_the_position_still_ends_its_transaction() -> None:
    answer = written(1, 0) + ended(1, 2, commit=False) + written(1, 3)
    assert [record.offset for record in decode(answer, lo=3, aborted=[(1, 0)])] == [3, 4]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["write", "commit", "abort", "plain"])), max_size=40),
    st.integers(1, 9),
)
def test_every_history_of_transactions_gives_what_was_committed(steps: list[tuple[int, str]], max_rows: int) -> None:
    """A model of the broker's side: transactions open on the first write, and end by a marker."""
    answer, position, visible = b"", 0, set()
    open_since: dict[int, int] = {}
    written_by: dict[int, list[int]] = {}
    aborted = []
    for producer, step in steps:
        if step == "plain":
            answer += encode_batch(plain(1, offset=position), codec=Codec.LZ4)
            visible.add(position)
            position += 1
        elif step == "write":
            answer += written(producer, position)
            open_since.setdefault(producer, position)
            written_by.setdefault(producer, []).extend((position, position + 1))
            position += 2
        elif producer in open_since:
            answer += ended(producer, position, commit=step == "commit")
            first, offsets_written = open_since.pop(producer), written_by.pop(producer)
            if step == "commit":
                visible.update(offsets_written)
            else:
                aborted.append((producer, first))
            position += 1
    # A broker answers read_committed only up to the last stable offset: the first open transaction.
    stable = min(open_since.values(), default=position)
    found = decode(answer, hi=stable, aborted=aborted, max_rows=max_rows)
    assert [record.offset for record in found] == sorted(offset for offset in visible if offset < stable)
    assert found == list(iter_records(answer, hi=stable, aborted=aborted))


# --- positions ---


def test_the_position_passes_what_is_filtered() -> None:
    """Symptom: lag of 1 for ever on a topic with transactions. Cause: the marker at the end has no row to move by."""
    decoder = ArrowDecoder()
    answer = written(1, 0) + ended(1, 2, commit=True) + written(2, 3) + ended(2, 5, commit=False)
    assert decoder.feed(answer, topic="t", partition=0, lo=0, aborted=[(2, 3)]) == 6
    assert decoder.positions == {WHERE: 0}
    assert [record.offset for record in rows(decoder.drain())] == [0, 1]
    assert decoder.positions == {WHERE: 6}


def test_an_answer_with_nothing_for_users_moves_the_position_at_once() -> None:
    decoder = ArrowDecoder()
    assert decoder.feed(ended(1, 9, commit=True), topic="t", partition=0, lo=9) == 10
    assert decoder.positions == {WHERE: 10}
    assert decoder.take() is None


def test_what_is_filtered_behind_rows_that_wait_moves_the_position_with_them() -> None:
    decoder = ArrowDecoder()
    decoder.feed(encode_batch(plain(3)), topic="t", partition=0, lo=0)
    assert decoder.feed(ended(1, 3, commit=True), topic="t", partition=0, lo=3) == 4
    assert decoder.positions == {WHERE: 0}
    decoder.take(max_rows=2)
    assert decoder.positions == {WHERE: 2}
    decoder.take()
    assert decoder.positions == {WHERE: 4}


def test_a_batch_emptied_by_compaction_moves_the_position() -> None:
    decoder = ArrowDecoder()
    answer = encode_batch([], base_offset=0, last_offset=41) + encode_batch(plain(1, offset=50), last_offset=99)
    assert decoder.feed(answer, topic="t", partition=0, lo=10) == 100
    assert decoder.positions == {WHERE: 42}
    assert [record.offset for record in rows(decoder.drain())] == [50]
    assert decoder.positions == {WHERE: 100}


def test_the_end_of_the_range_is_reached_also_where_compaction_left_a_gap_over_it() -> None:
    decoder = ArrowDecoder()
    answer = encode_batch(plain(2, offset=3)) + encode_batch(plain(5, offset=200))
    assert decoder.feed(answer, topic="t", partition=0, lo=3, hi=100) == 100
    assert [record.offset for record in rows(decoder.drain())] == [3, 4]
    assert decoder.positions == {WHERE: 100}


def test_a_range_that_ends_within_a_batch_ends_there() -> None:
    decoder = ArrowDecoder()
    assert decoder.feed(encode_batch(plain(10), codec=Codec.ZSTD), topic="t", partition=0, lo=2, hi=7) == 7
    assert [record.offset for record in rows(decoder.drain())] == [2, 3, 4, 5, 6]
    assert decoder.positions == {WHERE: 7}


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_last_batch_is_left_for_the_next_fetch(codec: Codec) -> None:
    first, second = encode_batch(plain(3), codec=codec), encode_batch(plain(3, offset=3), codec=codec)
    for size in range(len(second)):
        decoder = ArrowDecoder()
        assert decoder.feed(first + second[:size], topic="t", partition=0, lo=0) == 3
        assert [record.offset for record in rows(decoder.drain())] == [0, 1, 2]
        assert len(list(iter_records(first + second[:size]))) == 3


def test_an_empty_answer_changes_nothing() -> None:
    decoder = ArrowDecoder()
    assert decoder.feed(b"", topic="t", partition=0, lo=17) == 17
    assert decoder.take() is None
    assert decoder.positions == {WHERE: 17}


def test_discarded_rows_do_not_come_and_the_others_do() -> None:
    """A partition is revoked while its rows are buffered, half of a batch handed out and others unpacked beside it."""
    decoder = ArrowDecoder()
    for partition in (0, 1, 2):
        decoder.feed(encode_batch(plain(4), codec=Codec.LZ4), topic="t", partition=partition, lo=0)
    first = decoder.take(max_rows=6)
    assert first is not None
    decoder.discard("t", 1)
    assert TopicPartition("t", 1) not in decoder.positions
    rest = decoder.take()
    assert rest is not None
    assert list(zip(*(rest.column(name).to_pylist() for name in ("partition", "offset")), strict=True)) == [
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert decoder.positions == {TopicPartition("t", 0): 4, TopicPartition("t", 2): 4}
    assert decoder.buffered_bytes == 0


def test_a_batch_half_handed_out_goes_on_where_it_was_after_another_is_discarded() -> None:
    decoder = ArrowDecoder()
    for partition in (0, 1):
        decoder.feed(encode_batch(plain(4), codec=Codec.LZ4), topic="t", partition=partition, lo=0)
    decoder.take(max_rows=3)
    decoder.discard("t", 1)
    assert [record.offset for record in rows(decoder.drain())] == [3]


def test_seeking_back_after_a_discard_reads_again() -> None:
    decoder = ArrowDecoder()
    decoder.feed(encode_batch(plain(4)), topic="t", partition=0, lo=0)
    list(decoder.drain())
    decoder.discard("t", 0)
    decoder.feed(encode_batch(plain(4)), topic="t", partition=0, lo=1)
    assert decoder.positions == {WHERE: 1}
    assert [record.offset for record in rows(decoder.drain())] == [1, 2, 3]


def test_messages_of_the_old_formats_are_refused_with_the_reason() -> None:
    old = bytearray(encode_batch(plain(1)))
    old[16] = 1
    with pytest.raises(HoldfastError, match=r"UNSUPPORTED_MESSAGE_FORMAT.*magic 1"):
        list(iter_records(bytes(old)))
    with pytest.raises(HoldfastError, match=r"UNSUPPORTED_MESSAGE_FORMAT.*t-0 at offset 0.*magic 1"):
        decode(bytes(old))


def test_encoding_refuses_what_readers_would_refuse() -> None:
    for records in ([], [Record(1, NOW, None, None), Record(1, NOW, None, None)], [Record(-1, NOW, None, None)]):
        with pytest.raises(HoldfastError, match="UNENCODABLE_BATCH"):
            encode_batch(records)
    with pytest.raises(HoldfastError, match="UNENCODABLE_BATCH"):
        encode_batch([Record(5, NOW, None, None)], last_offset=4)


def test_a_decoder_tells_which_partitions_need_no_fetch() -> None:
    decoder = ArrowDecoder()
    decoder.feed(encode_batch(plain(4)), topic="t", partition=0, lo=0)
    decoder.feed(ended(1, 0, commit=True), topic="t", partition=1, lo=0)
    assert (decoder.waits("t", 0), decoder.waits("t", 1)) == (True, False)
    decoder.take(max_rows=3)
    assert decoder.waits("t", 0)
    decoder.take(max_rows=3)
    assert not decoder.waits("t", 0)
