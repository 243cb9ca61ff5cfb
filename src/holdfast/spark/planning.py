"""How much of each partition a batch takes, and which ranges share a task. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from holdfast.model import TopicPartition
from holdfast.spark.offsets import Ranges

Piece = tuple[TopicPartition, int, int]
"""A partition, and the offsets [from, to) of it."""

SHARED_TASK_OFFSETS = 50_000
"""Ranges share a task up to this many offsets. A task costs 20–40 ms in Spark and its Python worker, and in that time a
worker reads about this many records: for fewer, a task of their own costs more than it saves."""


def ranges_up_to(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int | None
) -> Ranges:
    """The ranges of a batch of at most `limit` offsets: of each partition in proportion to what it has, sorted.

    What rounding leaves over goes to the partitions with most still waiting. So even a limit below the number of
    partitions is kept, and no partition waits for ever, because what is not taken grows.
    """
    waiting = {p: (start, ends[p]) for p, start in sorted(positions.items()) if ends.get(p, start) > start}
    total = sum(end - start for start, end in waiting.values())
    if limit is None or total <= limit:
        return waiting
    taken = {p: (end - start) * limit // total for p, (start, end) in waiting.items()}
    spare = limit - sum(taken.values())
    hungry = sorted(waiting, key=lambda p: (taken[p] - (waiting[p][1] - waiting[p][0]), p))
    for partition in hungry[:spare]:
        taken[partition] += 1
    return {p: (start, start + taken[p]) for p, (start, _) in waiting.items() if taken[p]}


def tasks(ranges: Ranges, *, at_least: int | None = None, at_most_records: int | None = None) -> list[list[Piece]]:
    """The batch's tasks. Small ranges share a task; large ones are cut if the options ask for it."""
    pieces = [(p, start, end) for p, (start, end) in sorted(ranges.items()) if end > start]
    if at_most_records is not None:
        pieces = [cut for piece in pieces for cut in _cut(piece, -(-(piece[2] - piece[1]) // at_most_records))]
    if at_least is not None and pieces:
        total = sum(end - start for _, start, end in pieces)
        if len(pieces) < at_least:
            pieces = [
                cut for piece in pieces for cut in _cut(piece, max(1, round(at_least * (piece[2] - piece[1]) / total)))
            ]
        return [[piece] for piece in pieces]
    return _packed(pieces)


def _packed(pieces: Sequence[Piece]) -> list[list[Piece]]:
    filled: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        size = piece[2] - piece[1]
        if size > room:
            filled.append([])
            room = max(SHARED_TASK_OFFSETS, size)
        filled[-1].append(piece)
        room -= size
    return filled


def _cut(piece: Piece, parts: int) -> list[Piece]:
    partition, start, end = piece
    parts = min(parts, end - start)
    marks = [start + (end - start) * number // parts for number in range(parts + 1)]
    return [(partition, begin, stop) for begin, stop in pairwise(marks)]
