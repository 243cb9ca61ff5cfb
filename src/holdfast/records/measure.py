"""How fast the Arrow path is on this machine, and where the time goes: `python -m holdfast.records.measure`.

Records have 8-byte keys and 100-byte values of JSON with random parts, which LZ4 halves. One decoder reads the same
answers again and again, as a consumer does; the best of many rounds in processor time counts, so that other work on the
machine disturbs little. Parts, in nanoseconds a record: `feed` walks headers and verifies checksums, `unpack`
decompresses, `decode` is kernel and Arrow together (measured on the same records uncompressed).
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from holdfast.records.arrow import ArrowDecoder, warm_up
from holdfast.records.batch import Record, iter_headers
from holdfast.records.compression import LIMITS, Codec, decompress_into
from holdfast.records.encode import encode_batch
from holdfast.records.header import HEADER_BYTES

ROUNDS = 40
_ANSWER_BYTES = 1024 * 1024
"""What one partition gives to a Fetch by default (max.partition.fetch.bytes)."""


def make_records(number: int, *, seed: int = 429) -> list[Record]:
    """Orders as JSON, 100 bytes each."""
    rng = random.Random(seed)
    records = []
    for offset in range(number):
        text = f'{{"order":{offset},"customer":"c{rng.randrange(100_000):05}","amount":{rng.randrange(100_000) / 100},'
        text += f'"status":"{rng.choice(["new", "paid", "sent"])}","note":"'
        value = (text + "".join(rng.choices("abcdefgh ijklmno", k=100)))[:98] + '"}'
        records.append(Record(offset, 1_760_000_000_000 + offset // 7, b"key%05d" % (offset % 100_000), value.encode()))
    return records


def make_answers(records: Sequence[Record], *, codec: int, per_batch: int) -> list[bytes]:
    """The records as Fetch answers of about a megabyte."""
    answers, answer = [], b""
    for at in range(0, len(records), per_batch):
        answer += encode_batch(records[at : at + per_batch], codec=codec)
        if len(answer) >= _ANSWER_BYTES:
            answers.append(answer)
            answer = b""
    return [*answers, answer] if answer else answers


def best_ns(work: Callable[[], None], records: int) -> float:
    """Nanoseconds a record in the quickest round."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - begin) / records)
    return best


def read_all(decoder: ArrowDecoder, answers: Sequence[bytes]) -> int:
    """Feed and take everything, as a consumer does. Returns the rows."""
    rows = position = 0
    for answer in answers:
        position = decoder.feed(answer, topic="orders", partition=0, lo=position)
        while (batch := decoder.take()) is not None:
            rows += batch.num_rows
    decoder.discard("orders", 0)
    return rows


def measure(records: Sequence[Record], *, codec: int, per_batch: int) -> dict[str, float]:
    """Nanoseconds a record for the parts and the whole; page faults per 1,000 records."""
    answers = make_answers(records, codec=codec, per_batch=per_batch)
    plain = make_answers(records, codec=Codec.NONE, per_batch=per_batch)
    decoder, scratch = ArrowDecoder(), np.empty(LIMITS.max_bytes, np.uint8)

    def feed(which: Sequence[bytes]) -> None:
        for answer in which:
            decoder.feed(answer, topic="orders", partition=0, lo=0)
        decoder.discard("orders", 0)

    def unpack() -> None:
        for answer in answers:
            for header in iter_headers(answer):
                decompress_into(codec, memoryview(answer)[header.start + HEADER_BYTES : header.end], scratch)

    assert read_all(decoder, answers) == len(records)
    number = len(records)
    parts = {"feed": best_ns(lambda: feed(answers), number)}
    parts["unpack"] = best_ns(unpack, number) if codec else 0.0
    plain_feed = best_ns(lambda: feed(plain), number)
    parts["decode"] = best_ns(lambda: _ignore(read_all(decoder, plain)), number) - plain_feed
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts["whole"] = best_ns(lambda: _ignore(read_all(decoder, answers)), number)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    parts["faults"] = 1000 * faults / (ROUNDS * number)
    return parts


def _ignore(_: int) -> None:
    """A round's rows were counted once, before measuring."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per codec and size of batch."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.records.measure", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--per-batch", type=int, nargs="*", default=[9000, 1000, 140], help="9000 is about 1 MB")
    parser.add_argument("--codec", nargs="*", default=[codec.name.lower() for codec in Codec])
    options = parser.parse_args(arguments)
    warm_up()
    records = make_records(options.records)
    for per_batch in options.per_batch:
        for name in options.codec:
            parts = measure(records, codec=Codec[name.upper()], per_batch=per_batch)
            shares = "  ".join(f"{part} {parts[part]:6.1f}" for part in ("feed", "unpack", "decode", "whole"))
            speed = f"{1000 / parts['whole']:6.2f} M records/s"
            line = f"{name:>6} {per_batch:>6} a batch  {speed}  ns a record: {shares}"
            sys.stdout.write(f"{line}  page faults per 1,000: {parts['faults']:.2f}\n")


if __name__ == "__main__":
    main()
