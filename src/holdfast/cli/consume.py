"""`holdfast consume`: print the records of topics, one per line, as they come.

With --group it is a member (`holdfast.Consumer`): only what was printed is committed, at intervals and at the end.
Without a group it reads every partition by itself and leaves no trace on the cluster.

Lines have the form of Kafka's console consumer: the fields of --print, separated by tabs, then the value.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    ask,
    client_settings,
    kafka_error,
    librdkafka_settings,
    show_error,
    wrong_use,
)
from holdfast.model import ErrorCode, HoldfastError, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.net.cluster import Cluster

FIELDS = ("topic", "timestamp", "partition", "offset", "headers", "key")
"""What --print may name; lines show them in this order, which is Kafka's."""

BATCH = 1_000
"""Records taken at a time. They are written and flushed together, without waiting for more."""

SLICE_S = 0.1
"""How long one call waits for records, and so how quickly Ctrl-C and --timeout-ms take effect."""

NOTICE_S = 10.0
"""How often the same problem is reported."""

TIMESTAMPS = {0: "NoTimestamp", 1: "CreateTime", 2: "LogAppendTime"}


class Source(Protocol):
    """What both kinds of consumer offer."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]: ...

    def store_offsets(self, message: Message) -> None: ...

    def close(self) -> None: ...


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Which; in a group, ^… is a pattern.")],
    group: Annotated[str | None, typer.Option(help="Be a member of this group.")] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record; in a group, where it has no offset.")
    ] = False,
    max_messages: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
    timeout_ms: Annotated[int | None, typer.Option(min=0, help="End when no record has come for this long.")] = None,
    print_: Annotated[
        str, typer.Option("--print", metavar="FIELDS", help=f"Before the value: {', '.join(FIELDS)}; commas between.")
    ] = "",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print records as they come, one a line; with -o json as one JSON object a line."""
    fields = _fields(print_)
    if group == "":
        wrong_use("GROUP_INVALID", "A group has a name.", "Give --group a name, or leave it out.")
    settings = client_settings(bootstrap_server, command_config)
    line = _json_line if output is Output.JSON else _plain_line(fields)
    named = topics if group is None else [topic for topic in topics if not topic.startswith("^")]
    starts = ask(settings, lambda cluster: _starts(cluster, named, from_beginning=from_beginning))
    with Interrupt() as interrupt, _once():
        if group is None:
            source: Source = _reader(settings, starts)
        else:
            source = _member(settings, topics, group, from_beginning=from_beginning)
        try:
            count = _print(
                source, line, interrupt, max_messages=max_messages, timeout_ms=timeout_ms, stored=bool(group)
            )
        except BrokenPipeError:  # `holdfast consume … | head`: the reader may end first, which is no error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        finally:
            source.close()
    typer.echo(f"{count:,} record{'' if count == 1 else 's'}", err=True)


@contextlib.contextmanager
def _once() -> Iterator[None]:
    """Keep errors out of the log that poll also reports: they end the command with the same text."""

    def unheard(record: logging.LogRecord) -> bool:
        return getattr(record, "holdfast_step", "") != "told"

    log = logging.getLogger("holdfast")
    log.addFilter(unheard)
    try:
        yield
    finally:
        log.removeFilter(unheard)


def _print(
    source: Source,
    line: Callable[[Message], bytes],
    interrupt: Interrupt,
    *,
    max_messages: int | None,
    timeout_ms: int | None,
    stored: bool,
) -> int:
    out = sys.stdout.buffer
    count = 0
    heard_at = time.monotonic()
    while not interrupt.asked() and (max_messages is None or count < max_messages):
        room = BATCH if max_messages is None else min(BATCH, max_messages - count)
        messages = [_checked(message) for message in _some(source, room)]
        if messages:
            out.write(b"".join(map(line, messages)))
            out.flush()
            count += len(messages)
            if stored:
                _store(source, messages)
            heard_at = time.monotonic()
        elif timeout_ms is not None and (time.monotonic() - heard_at) * 1_000 >= timeout_ms:
            break
    return count


def _some(source: Source, room: int) -> list[Message]:
    """The first record when it comes, and those that are already there: no line waits for the next record."""
    from confluent_kafka import KafkaException

    try:
        first = source.consume(1, SLICE_S)
        return first + source.consume(room - 1, 0.0) if first and room > 1 else first
    except KafkaException as error:
        raise kafka_error(error.args[0], "Reading ended.", "Check the cluster and the settings.") from None


def _checked(message: Message) -> Message:
    error = message.error()
    if error is not None:
        at = f" of {message.topic()}-{message.partition()}" if message.topic() is not None else ""
        look = "your rights to the group" if error.name().startswith("GROUP_") else "the topic, and your rights to it"
        raise kafka_error(error, f"Records{at} can't be read.", f"Check {look}.")
    return message


def _store(source: Source, messages: Sequence[Message]) -> None:
    """Only what was printed may be committed. Partitions that were revoked meanwhile are skipped."""
    from confluent_kafka import KafkaError, KafkaException

    last = {(message.topic(), message.partition()): message for message in messages}
    for message in last.values():
        try:
            source.store_offsets(message)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise


# -- where records come from


def _member(settings: dict[str, Any], topics: list[str], group: str, *, from_beginning: bool) -> Source:
    from confluent_kafka import KafkaException

    from holdfast import Consumer

    config = librdkafka_settings(settings) | {
        "group.id": group,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "error_cb": Notices(),
        "log_level": 2,
    }
    try:
        consumer = Consumer(config)
        consumer.subscribe(topics)
    except KafkaException as error:
        raise kafka_error(error.args[0], "The consumer can't be made.", "Check the settings.") from None
    return consumer


def _reader(settings: dict[str, Any], starts: Mapping[TopicPartition, int]) -> Source:
    """Read every partition by manual assignment, from known offsets, so that no record is missed at the start."""
    import confluent_kafka as ck

    config = librdkafka_settings(settings) | {
        "group.id": "holdfast-consume",  # librdkafka requires one; nothing is committed to it
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",  # if retention overtakes a slow reader, read what is left
        "error_cb": Notices(),
        "log_level": 2,
    }
    try:
        consumer = ck.Consumer(config)
        consumer.assign([ck.TopicPartition(at.topic, at.partition, offset) for at, offset in sorted(starts.items())])
    except ck.KafkaException as error:
        raise kafka_error(error.args[0], "The consumer can't be made.", "Check the settings.") from None
    found: Source = consumer
    return found


class Notices:
    """Reports errors that librdkafka retries: brokers that can't be reached, logins that fail."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def __call__(self, error: Any) -> None:
        now = time.monotonic()
        if now - self._told_at.get(error.name(), -NOTICE_S) >= NOTICE_S:
            self._told_at[error.name()] = now
            show_error(kafka_error(error, "The cluster is in trouble.", "Trying again."))


async def _starts(cluster: Cluster, topics: list[str], *, from_beginning: bool) -> dict[TopicPartition, int]:
    from holdfast.net.admin import EARLIEST, LATEST, Admin

    place = EARLIEST if from_beginning else LATEST
    found = await Admin(cluster).list_offsets(dict.fromkeys(await _partitions(cluster, topics), place))
    return {at: one.offset for at, one in found.items()}


async def _partitions(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    """The partitions of these topics. A topic that does not exist is an error; asking does not create it."""
    found = (await cluster.refresh(topics)).topics
    for topic in sorted(set(topics)):
        error = found[topic].error if topic in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise HoldfastError(
                error.name,
                f"There is no topic {topic}, or this user may not see it.",
                "Check the name, create it with `holdfast topics create`, or ask for the right to describe it.",
            )
        if error is not ErrorCode.NONE:
            raise HoldfastError(
                error.name, f"The topic {topic} can't be read.", "Check its name, and your rights to it."
            )
    return sorted(TopicPartition(topic, number) for topic in set(topics) for number in found[topic].partitions)


# -- lines


def _fields(text: str) -> frozenset[str]:
    asked = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in FIELDS]
    if unknown:
        wrong_use("FIELD_UNKNOWN", f"--print does not know {unknown[0]!r}.", f"Name some of {', '.join(FIELDS)}.")
    return frozenset(asked)


def _plain_line(fields: frozenset[str]) -> Callable[[Message], bytes]:
    parts = [PLAIN[name] for name in FIELDS if name in fields]
    parts.append(_value)
    return lambda message: b"\t".join([part(message) for part in parts]) + b"\n"


def _value(message: Message) -> bytes:
    return _or_null(message.value())


def _time(message: Message) -> bytes:
    kind, when_ms = message.timestamp()
    return f"{TIMESTAMPS[kind]}:{when_ms}".encode()


def _headers(message: Message) -> bytes:
    return b",".join(name.encode() + b":" + _or_null(value) for name, value in _header_pairs(message)) or b"NO_HEADERS"


def _header_pairs(message: Message) -> list[tuple[str, bytes | None]]:
    found: Any = message.headers()  # the stubs also allow what only producers may write
    return list(found or [])


def _or_null(data: bytes | str | None) -> bytes:
    if data is None:
        return b"null"
    return data if isinstance(data, bytes) else data.encode()


PLAIN: dict[str, Callable[[Message], bytes]] = {
    "topic": lambda message: f"Topic:{message.topic()}".encode(),
    "timestamp": _time,
    "partition": lambda message: f"Partition:{message.partition()}".encode(),
    "offset": lambda message: f"Offset:{message.offset()}".encode(),
    "headers": _headers,
    "key": lambda message: _or_null(message.key()),
}


def _json_line(message: Message) -> bytes:
    kind, when_ms = message.timestamp()
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": when_ms,
        "timestamp_type": TIMESTAMPS[kind],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in _header_pairs(message)],
    }
    return json.dumps(record).encode() + b"\n"


def _text(data: bytes | str | None) -> str | dict[str, str] | None:
    """Text as text; other bytes as {"base64": …}."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
