"""Which of several claims on a partition counts. `scan` has the same rule as a kernel, for large groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

P = TypeVar("P", bound=Hashable)
M = TypeVar("M")


def newest_claims(claims: Iterable[tuple[P, int, M]]) -> dict[P, M]:
    """Who holds each partition, by claims (partition, generation, member), each once: the newest generation counts; two
    claims of the same generation lose both (KAFKA-12984)."""
    best: dict[P, tuple[int, list[M]]] = {}
    for partition, generation, member in claims:
        known = best.get(partition)
        if known is None or generation > known[0]:
            best[partition] = (generation, [member])
        elif generation == known[0]:
            known[1].append(member)
    return {partition: members[0] for partition, (_, members) in best.items() if len(members) == 1}
