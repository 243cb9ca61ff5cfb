"""`holdfast produce`: sends lines from standard input, or generated orders at a rate, and reports every failure.

Records are sent with acks=all. A run ends only when each record is acknowledged or has failed, also after Ctrl-C. The
exit code is 0 if all were acknowledged. Keys go to the partitions that Java's producer would choose.

Standard output has only the summary of `-o json`; progress and the plain summary go to standard error.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    SILENCE_S,
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    Patience,
    client_settings,
    kafka_error,
    librdkafka_settings,
    show_error,
    wrong_use,
)
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from confluent_kafka import Producer

TICK_S = 0.02
"""How often due records are sent and acknowledgements taken: often enough to look smooth, without load."""

BURST = 1_000
"""Records between two looks at the clock with --rate 0."""

PROGRESS_S = 1.0

FLUSH_S = 60.0
"""How long the end waits for outstanding records. Each has a shorter limit of its own; this is for a client that
hangs."""

MESSAGE_TIMEOUT_MS = 30_000
"""When an unacknowledged record counts as failed. librdkafka's default of 5 minutes is for services."""

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Far more than any broker accepts: an endless line must not fill the memory."""

MAX_REASONS = 5
"""Different errors that are shown; the others are only counted."""


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: Annotated[str, typer.Argument(help="Where the records go.")],
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text between key and value in a line.")
    ] = None,
    compression: Annotated[Compression, typer.Option(help="Of record batches.")] = Compression.NONE,
    rate: Annotated[
        float | None, typer.Option(help="Generate so many orders a second; 0: as many as possible.")
    ] = None,
    keys: Annotated[
        int, typer.Option(min=1, max=1_000_000_000, help="With --rate: how many customers there are.")
    ] = 100,
    duration: Annotated[float | None, typer.Option(min=0.0, help="With --rate: seconds to run.")] = None,
    count: Annotated[int | None, typer.Option(min=0, help="With --rate: orders to send.")] = None,
    seed: Annotated[int, typer.Option(help="With --rate: the same seed gives the same orders.")] = 0,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send records to a topic: one for each line of standard input, or with --rate generated orders.

    An order is JSON: {"order": 17, "key": "customer-4", "amount": 31.07, "time": "2026-01-01T12:00:00.000Z"}.
    """
    if rate is None and (duration is not None or count is not None):
        wrong_use("RATE_MISSING", "--duration and --count are for generated orders.", "Give --rate too.")
    if rate is not None and not 0 <= rate <= 10_000_000:
        wrong_use("RATE_INVALID", f"{rate:g} records a second can't be sent.", "Give 0 to 10,000,000.")
    if rate is not None and key_separator is not None:
        wrong_use("KEY_SEPARATOR_UNUSED", "Generated orders have their keys.", "Leave --key-separator out.")
    if key_separator == "":
        wrong_use("KEY_SEPARATOR_INVALID", "An empty text separates nothing.", "Give --key-separator a character.")
    settings = librdkafka_settings(client_settings(bootstrap_server, command_config))
    problem: HoldfastError | None = None
    with Interrupt() as interrupt:
        sender = Sender(topic, settings, compression.value, interrupt)
        try:
            if rate is None:
                _send_lines(sender, None if key_separator is None else key_separator.encode())
            else:
                orders = Orders(keys=keys, seed=seed)
                _send_orders(sender, orders, rate=rate, duration_s=duration, count=count)
        except HoldfastError as error:
            problem = error  # raised below, when the records sent before it are acknowledged
        sender.finish()
    _report(sender, output)
    if problem is not None:
        raise problem
    if sender.failed:
        raise typer.Exit(1)


class Sender:
    """Hands records to librdkafka and counts acknowledgements and failures."""

    def __init__(self, topic: str, settings: dict[str, Any], compression: str, interrupt: Interrupt) -> None:
        from confluent_kafka import KafkaException, Producer

        self.topic = topic
        self._interrupt = interrupt
        self.sent = self.acknowledged = self.failed = 0
        self.reasons: dict[str, HoldfastError] = {}
        self.began = time.monotonic()
        self._last_heard: Any = None
        self._login_refused = False
        self._silent = True
        self._refusal = KafkaException
        config = {"message.timeout.ms": MESSAGE_TIMEOUT_MS, "partitioner": "murmur2_random", "linger.ms": 5} | settings
        config |= {"acks": "all", "compression.type": compression, "log_level": 2, "error_cb": self._heard}
        try:
            self._producer: Producer = Producer(config)
        except KafkaException as error:
            raise kafka_error(error.args[0], "The producer can't be made.", "Check the settings.") from None
        # librdkafka has accepted the settings, so this is a number.
        limit_s = int(str(config["message.timeout.ms"])) / 1000
        self._patience = Patience(str(config.get("bootstrap.servers")), limit_s)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def send(self, value: bytes, key: bytes | None) -> None:
        """Returns when librdkafka has the record. Waits while its queue is full, unless the run is over."""
        while not self._login_refused:
            try:
                self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
            except BufferError:
                if self._interrupt.asked():
                    return
                self.listen(0.1)
            except self._refusal as error:
                self.sent += 1
                self._fail(error.args[0])
                return
            else:
                self.sent += 1
                return

    def over(self) -> bool:
        """Whether nothing more is to be sent: after Ctrl-C, or if the brokers refuse the login."""
        return self._interrupt.asked() or self._login_refused

    def listen(self, seconds: float = 0.0) -> None:
        """Take acknowledgements, waiting for them at most this long."""
        self._producer.poll(seconds)
        self._break_silence()

    def finish(self) -> None:
        """Wait until every record is acknowledged or has failed. A second Ctrl-C gives up."""
        deadline = time.monotonic() + FLUSH_S
        while time.monotonic() < deadline and not self._login_refused:
            if not self._producer.flush(0.2):
                return
            self._break_silence()
        self.failed = self.sent - self.acknowledged

    def _break_silence(self) -> None:
        if self._silent and self.seconds >= SILENCE_S:
            self._silent = False
            if not self.acknowledged and self._last_heard is not None:
                self._patience.heard(f"{self._last_heard.str()}.")
                self._patience.tell()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._fail(error)

    def _fail(self, error: Any) -> None:
        self.failed += 1
        if not self._login_refused and len(self.reasons) < MAX_REASONS:
            cause = "" if self._last_heard is None else f" {self._last_heard.str()}."
            do = f"Check the topic, the brokers and your rights.{cause}"
            self.reasons.setdefault(error.name(), kafka_error(error, "Records were not acknowledged.", do))

    def _heard(self, error: Any) -> None:
        """Remember why brokers can't be reached: it explains a record's timeout better than the timeout itself."""
        if error.name() != "_ALL_BROKERS_DOWN" or self._last_heard is None:
            self._last_heard = error
        if error.name() == "_AUTHENTICATION" and not self.acknowledged:
            self._login_refused = True
            do = "Check sasl.mechanism, user and password, and that the broker knows them."
            self.reasons = {error.name(): kafka_error(error, "Nothing was sent: the login failed.", do)}


# -- lines


def _send_lines(sender: Sender, separator: bytes | None) -> None:
    for number, line in enumerate(_lines(sender), start=1):
        if separator is None:
            sender.send(line, None)
        else:
            key, found, value = line.partition(separator)
            if not found:
                raise HoldfastError(
                    "KEY_SEPARATOR_NOT_FOUND",
                    f"Line {number} has no {separator.decode()!r} between key and value.",
                    "The lines before it were sent; correct this one and send the rest.",
                )
            sender.send(value, key)


def _lines(sender: Sender) -> Iterator[bytes]:
    """Standard input line by line. While it waits, it takes acknowledgements and obeys Ctrl-C."""
    source = sys.stdin.fileno()
    rest = b""
    while not sender.over():
        sender.listen()
        ready = select.select([source], [], [], TICK_S)[0]
        if not ready or sender.over():
            continue
        chunk = os.read(source, 1 << 16)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if not chunk:
            if rest:
                yield rest
            return
        if len(rest) > MAX_LINE_BYTES:
            raise HoldfastError(
                "LINE_TOO_LONG", f"A line is longer than {MAX_LINE_BYTES} bytes.", "Is the input text with lines?"
            )


# -- orders


class Orders:
    """An endless stream of orders, with the current time in each."""

    def __init__(self, *, keys: int, seed: int) -> None:
        self._keys = keys
        self._random = random.Random(seed)
        self._number = 0

    def next(self) -> tuple[bytes, bytes]:
        """Key and value."""
        self._number += 1
        key = f"customer-{self._random.randrange(self._keys)}"
        order = {
            "order": self._number,
            "key": key,
            "amount": self._random.randrange(100, 100_000) / 100,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        return key.encode(), json.dumps(order).encode()


def _send_orders(sender: Sender, orders: Orders, *, rate: float, duration_s: float | None, count: int | None) -> None:
    """Send as many as are due, again and again. What a slow broker delays is sent later, so the rate is kept."""
    progress = Progress(sender)
    limit_s = float("inf") if duration_s is None else duration_s
    most = sys.maxsize if count is None else count
    while not sender.over():
        elapsed_s = min(sender.seconds, limit_s)
        over = elapsed_s >= limit_s
        if rate > 0:
            due = int(elapsed_s * rate)
        else:
            due = sender.sent if over else sender.sent + BURST
        for _ in range(sender.sent, min(due, most)):
            key, value = orders.next()
            sender.send(value, key)
            if sender.over():
                break
        progress.show()
        if over or sender.sent >= most:
            break
        sender.listen(TICK_S if rate > 0 else 0.0)
    progress.end()


class Progress:
    """One line on standard error: rewritten in place on a terminal, otherwise one line a second."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._terminal = sys.stderr.isatty()
        self._shown_at = sender.began
        self._sent_then = 0
        self._open = False

    def show(self) -> None:
        now = time.monotonic()
        if now - self._shown_at < PROGRESS_S:
            return
        sender = self._sender
        rate = (sender.sent - self._sent_then) / (now - self._shown_at)
        line = f"{rate:,.0f} records/s  {sender.acknowledged:,} acknowledged  {sender.failed:,} errors"
        sys.stderr.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._open = self._terminal
        self._shown_at, self._sent_then = now, sender.sent

    def end(self) -> None:
        if self._open:
            sys.stderr.write("\n")


def _report(sender: Sender, output: Output) -> None:
    for reason in sender.reasons.values():
        show_error(reason)
    if output is Output.JSON:
        told = {
            "acknowledged": sender.acknowledged,
            "failed": sender.failed,
            "seconds": round(sender.seconds, 3),
            "topic": sender.topic,
        }
        print(json.dumps(told, sort_keys=True))
    else:
        failed = f", {sender.failed:,} failed" if sender.failed else ""
        typer.echo(f"{sender.acknowledged:,} acknowledged{failed} in {sender.seconds:.1f} s", err=True)
