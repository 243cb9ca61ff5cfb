"""A FastStream application over a consumer class. Writes one line for every record: partition, offset, value.

python with_faststream.py BOOTSTRAP TOPIC GROUP LOG confluent|holdfast

Whichever class it is, what it polled and committed goes to LOG.polled: see `recorded`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import confluent_kafka

import holdfast

sys.path.insert(0, str(Path(__file__).parents[2]))
from recorded import recorded

BASES = {"confluent": confluent_kafka.Consumer, "holdfast": holdfast.Consumer}
bootstrap, topic, group, log, base = sys.argv[1:6]
# Before the framework asks for it.
confluent_kafka.Consumer = recorded(BASES[base], Path(f"{log}.polled"))  # type: ignore[misc]

from faststream import FastStream  # noqa: E402
from faststream.confluent import KafkaBroker, KafkaMessage  # noqa: E402


def main() -> None:
    broker = KafkaBroker(bootstrap)
    with Path(log).open("a", buffering=1) as out:

        @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
        async def handle(value: str, message: KafkaMessage) -> None:
            raw = message.raw_message
            out.write(f"{raw.partition()} {raw.offset()} {value}\n")

        asyncio.run(FastStream(broker).run())  # until SIGTERM


if __name__ == "__main__":
    main()
