"""The names of all files under a sink's path. Topics and partitions are folders; nothing here reads or writes.

Whatever has another name is somebody else's (Spark's `part-…` and `_SUCCESS`, an editor's copy): it is neither read nor
removed.

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
from collections.abc import Iterable

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


_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBERED = re.compile(r"([0-9]{12}|[1-9][0-9]{12,})\.json")
_SCHEMA = re.compile(r"[0-9a-f]{16}\.json")
_PARQUET = re.compile(r"[0-9a-f]{32}\.parquet")


def is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def is_partition(name: str) -> bool:
    """Whether a folder has a partition's name. `str.isdigit` would also take 03 and ²."""
    return _PARTITION.fullmatch(name) is not None


def numbered_name(number: int) -> str:
    """The name of an entry or a snapshot."""
    return f"{number:012d}.json"


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of the entries or snapshots among these names, lowest first."""
    return sorted(int(name.removesuffix(".json")) for name in names if _NUMBERED.fullmatch(name))


def schema_names(names: Iterable[str]) -> list[str]:
    """The names of the schemas among these files."""
    return [name.removesuffix(".json") for name in names if _SCHEMA.fullmatch(name)]


def is_data_file(name: str) -> bool:
    """Whether a file has the kind of name that `new_data_name` makes."""
    return _PARQUET.fullmatch(name) is not None


def checked_topic(topic: object) -> str:
    if isinstance(topic, str) and is_topic(topic):
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
