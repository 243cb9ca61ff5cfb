"""What a request names, and what it names more than once.

Of two orders about the same thing neither is carried out, as in Kafka: which of them is meant can't be known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from holdfast.broker.slices import ITEMS_AT_A_TIME, PAUSE, Steps

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def by_key(items: Iterable[T], key: Callable[[T], K]) -> Steps:
    """Returns what is asked for by its key, each once and in the order of asking, and the keys that come more than
    once."""
    asked: dict[K, T] = {}
    repeated: set[K] = set()
    for number, item in enumerate(items, 1):
        name = key(item)
        if name in asked:
            repeated.add(name)
        else:
            asked[name] = item
        if number % ITEMS_AT_A_TIME == 0:
            yield PAUSE
    return asked, repeated
