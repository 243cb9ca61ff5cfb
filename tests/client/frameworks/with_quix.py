"""A Quix Streams application over a consumer class. Writes one line for every record: partition, offset, value.

python with_quix.py BOOTSTRAP TOPIC GROUP LOG confluent|holdfast
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import confluent_kafka

import holdfast

bootstrap, topic, group, log, base = sys.argv[1:6]
if base == "holdfast":  # before the framework asks for it
    confluent_kafka.Consumer = holdfast.Consumer  # type: ignore[misc, assignment]

from quixstreams import Application, message_context  # noqa: E402


def main() -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        commit_interval=0.5,
        loglevel="INFO",
    )
    with Path(log).open("a", buffering=1) as out:

        def handle(value: Any) -> None:
            where = message_context()
            out.write(f"{where.partition} {where.offset} {value}\n")

        frame = application.dataframe(application.topic(topic, value_deserializer="str"))
        frame.update(handle)
        application.run()  # until SIGTERM


if __name__ == "__main__":
    main()
