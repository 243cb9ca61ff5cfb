"""Reports broken broker connections to error_cb and to the log.

As librdkafka does: an error for each broker that can't be reached or refuses the login, and `_ALL_BROKERS_DOWN` once
until one is back. librdkafka repeats the first kind every 50 ms; here the same error is repeated once a second.
Connections are retried in any case. The log is for people, so an outage that lasts is logged once a minute.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.net.cluster import Address
from holdfast.net.errors import NetError

log = logging.getLogger("holdfast")

AGAIN_S = 1.0
"""How often an unchanged error is repeated: often enough for applications that count them."""

OUTAGE_S = 2.0
"""How long all brokers must be unreachable before it is logged: a broker that restarts is often back by then."""

MINUTE_S = 60.0
"""How often the log repeats something that lasts."""

MOST_LINES = 100
"""How many different lines are remembered: a client has a handful of brokers, with an error or two each."""

CODES = {"AUTHENTICATION_FAILED": ck.KafkaError._AUTHENTICATION, "TLS_FAILED": ck.KafkaError._SSL}


class Health:
    """One client's view of its brokers, for error_cb. Called on one thread; `tell` gets each error to report."""

    def __init__(
        self,
        tell: Callable[[ck.KafkaError], object],
        known: Callable[[], Collection[Address]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._known = known
        self._clock = clock
        self._down: dict[Address, tuple[int, float]] = {}
        """Brokers that can't be used: the error number, and when it was reported."""
        self._all_told = False

    @property
    def down(self) -> frozenset[Address]:
        return frozenset(self._down)

    def heard(self, address: Address, error: NetError | None) -> None:
        """The result of an attempt to connect."""
        if error is None:
            self._down.pop(address, None)
            self._all_told = False
            return
        number, now = _number(error), self._clock()
        before = self._down.get(address)
        news = before is None or before[0] != number or now - before[1] >= AGAIN_S
        self._down[address] = (number, now if before is None or news else before[1])
        if news:
            host, port = address
            self._tell(ck.KafkaError(number, f"{host}:{port}: {error.what} {error.do}"))
        known = set(self._known()) or {address}
        if not self._all_told and known <= self._down.keys():
            self._all_told = True
            count = len(known)
            self._tell(ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN, f"{count}/{count} brokers are down"))


class Outage:
    """Logs that no broker can be reached. Without that line a consumer with a wrong bootstrap.servers looks idle: its
    polls just return nothing, as librdkafka's do."""

    def __init__(self, who: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._who = who
        self._clock = clock
        self._down: set[Address] = set()
        self._since: float | None = None
        self._told_at: float | None = None

    def heard(self, address: Address, error: NetError | None, known: Collection[Address]) -> None:
        """The result of an attempt to connect to one of the `known` brokers."""
        if error is None:
            self._down.discard(address)
            self.over()
            return
        self._down.add(address)
        if error.retriable and (set(known) or {address}) <= self._down:
            self.lasts(f"{error.what} {error.do}")
        # else: poll returns a refused login as an error; or there are other brokers to try

    def lasts(self, why: str) -> None:
        """No broker can be reached."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= OUTAGE_S and (self._told_at is None or now - self._told_at >= MINUTE_S):
            self._told_at = now
            log.warning("%s can't reach any broker: %s It goes on trying.", self._who, why)

    def over(self) -> None:
        """A broker can be reached again."""
        if self._told_at is not None and self._since is not None:
            log.info("%s reaches a broker again, after %.0f s.", self._who, self._clock() - self._since)
        self._since = self._told_at = None


class BrokersSeen:
    """Watches librdkafka's connections through error_cb, for the log of a consumer that only assigns.

    librdkafka reports once that all brokers are down, and does not report that one is back. So while they are down it
    is asked once a second. Used by the polling thread only.
    """

    def __init__(self, outage: Outage, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self._outage = outage
        self._clock = clock
        self._look_at = 0.0
        self._why = "it does not say why."

    def with_our_error_cb(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, with an error_cb that reports to us too. If theirs is not callable, librdkafka refuses
        it."""
        theirs = config.get("error_cb")
        if not callable(theirs) and "error_cb" in config:
            return dict(config)

        def error_cb(error: ck.KafkaError) -> None:
            self.heard(error)
            if callable(theirs):
                theirs(error)

        return {**config, "error_cb": error_cb}

    def heard(self, error: ck.KafkaError) -> None:
        if error.code() in BROKER_ERRORS:
            self._why = f"{error.str()}."
        elif error.code() == ck.KafkaError._ALL_BROKERS_DOWN:
            self.down = True

    def look(self, handle: cimpl.Consumer) -> None:
        """While all brokers are down: check whether they still are."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + AGAIN_S
        if _reaches_a_broker(handle):
            self.down = False
            self._outage.over()
        else:
            self._outage.lasts(f"{self._why} Check that the brokers run, bootstrap.servers, and the login.")


BROKER_ERRORS = frozenset(
    {ck.KafkaError._TRANSPORT, ck.KafkaError._RESOLVE, ck.KafkaError._SSL, ck.KafkaError._AUTHENTICATION}
)


def _reaches_a_broker(handle: cimpl.Consumer) -> bool:
    """Asks for metadata without waiting. With a connection that times out; without one it fails with another error."""
    try:
        handle.list_topics(timeout=0)
    except ck.KafkaException as failed:
        return bool(failed.args[0].code() == ck.KafkaError._TIMED_OUT)
    return True


class OncePerMinute:
    """Warnings in the log, each text at most once a minute."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, text: str) -> None:
        now = self._clock()
        self._said = {said: at for said, at in self._said.items() if now - at < MINUTE_S}
        if text not in self._said and len(self._said) < MOST_LINES:
            self._said[text] = now
            log.warning("%s", text)


def _number(error: NetError) -> int:
    if isinstance(error.__cause__, socket.gaierror):
        return int(ck.KafkaError._RESOLVE)
    return int(CODES.get(error.code, ck.KafkaError._TRANSPORT))
