"""The names of all files under a sink's path. Topics and partitions are folders; nothing here reads or writes.

_holdfast/sink.json                                   the columns that the sink was created with
_holdfast/fed_by.json                                 the state whose results it gets; other sinks have none
_holdfast/schemas/4be1….json                          every schema it was ever written with
_holdfast/ledger/orders/3/entries/000000000017.json   the chain of orders-3
_holdfast/ledger/orders/3/snapshots/000000000002.json
data/orders/3/5d0c….parquet                           rows of orders-3; they count when the ledger names them
data/orders/3/country=de/77e1….parquet                the same with partitionBy
_README                                               for people who look into the folder
"""

from __future__ import annotations

import re
import uuid

from holdfast.model import HoldfastError, TopicPartition

SINK = "_holdfast/sink.json"
FED_BY = "_holdfast/fed_by.json"
README = "_README"
"""Parquet readers ignore names that start with an underscore."""
SCHEMAS = "_holdfast/schemas"
LEDGER = "_holdfast/ledger"
DATA = "data"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's own rule for names; it also makes them safe as folder names."""


def checked_topic(topic: object) -> str:
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return topic
    raise HoldfastError(
        "NOT_A_TOPIC",
        f"A row's topic is {topic!r}, which is not a valid name of a Kafka topic.",
        "Let the rows keep the columns topic, partition and offset as the source gives them.",
    )


def folder_of(partition: TopicPartition) -> str:
    return f"{LEDGER}/{checked_topic(partition.topic)}/{partition.partition}"


def data_folder_of(partition: TopicPartition) -> str:
    return f"{DATA}/{checked_topic(partition.topic)}/{partition.partition}"


def new_data_name(partition: TopicPartition, folder: str = "") -> str:
    """A new name. `folder` holds the values of its rows; see `folders`."""
    return f"{data_folder_of(partition)}/{folder}{'/' if folder else ''}{uuid.uuid4().hex}.parquet"


def new_name_beside(name: str) -> str:
    """A new name in the same folder, for rows that were in that file."""
    return f"{parent_of(name)}/{uuid.uuid4().hex}.parquet"


def parent_of(name: str) -> str:
    return name.rpartition("/")[0]
