"""Answers that are there at once, and may be awaited all the same.

Programs written for confluent-kafka's AIOConsumer await everything; those written for aiokafka call seek or pause
plainly. Both are right here.
"""

from __future__ import annotations

from collections.abc import Generator

import confluent_kafka as ck


class Done:
    """Nothing to wait for; awaiting it is allowed."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class Listed(list[ck.TopicPartition]):
    """A list; awaiting it gives it."""

    def __await__(self) -> Generator[None, None, list[ck.TopicPartition]]:
        yield from ()
        return self


DONE = Done()
