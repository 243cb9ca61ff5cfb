"""A FastStream application over our consumer. Writes one line for every record: partition, offset, value.

python with_faststream.py BOOTSTRAP TOPIC GROUP LOG
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import confluent_kafka

import holdfast

confluent_kafka.Consumer = holdfast.Consumer  # type: ignore[misc, assignment]  # before the framework asks for it

from faststream import FastStream  # noqa: E402
from faststream.confluent import KafkaBroker, KafkaMessage  # noqa: E402


def main() -> None:
    bootstrap, topic, group, log = sys.argv[1:5]
    broker = KafkaBroker(bootstrap)
    with Path(log).open("a", buffering=1) as out:

        @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
        async def handle(value: str, message: KafkaMessage) -> None:
            raw = message.raw_message
            out.write(f"{raw.partition()} {raw.offset()} {value}\n")

        asyncio.run(FastStream(broker).run())  # until SIGTERM


if __name__ == "__main__":
    main()
