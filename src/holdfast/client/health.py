"""What error_cb and the log hear of brokers: which can't be reached or don't let us in, and that all of them are gone.

As librdkafka tells it: one error for a broker that failed, and `_ALL_BROKERS_DOWN` once until one is back. It tells the
first again every fifty milliseconds; here an error that stays the same is told once a second. Whatever is told, the
connections are tried again. The log is read by people, so it hears of what lasts once a minute.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.net.cluster import Address
from holdfast.net.errors import NetError

log = logging.getLogger("holdfast")

AGAIN_S = 1.0
"""How often an error is told that stays the same: often enough for whoever counts them."""

OUTAGE_S = 2.0
"""How long nobody may be reached before the log says so: a broker that restarts is often back by then."""

MINUTE_S = 60.0
"""How often the log says again what still lasts."""

MOST_LINES = 100
"""Different lines that are remembered as said: a client has a handful of brokers, with a trouble or two each."""

CODES = {"AUTHENTICATION_FAILED": ck.KafkaError._AUTHENTICATION, "TLS_FAILED": ck.KafkaError._SSL}


class Health:
    """One client's view of its brokers. Fed on one thread; `tell` gets what the application should hear."""

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
        """Who can't be used: the error, and when it was told."""
        self._all_told = False

    @property
    def down(self) -> frozenset[Address]:
        return frozenset(self._down)

    def heard(self, address: Address, error: NetError | None) -> None:
        """How a try to connect went."""
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
    """Tells the log that no broker can be reached. Without it a consumer that is pointed at the wrong place looks like
    one that has nothing to do: its polls return nothing, as librdkafka's do."""

    def __init__(self, who: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._who = who
        self._clock = clock
        self._down: set[Address] = set()
        self._since: float | None = None
        self._told_at: float | None = None

    def heard(self, address: Address, error: NetError | None, known: Collection[Address]) -> None:
        """How a try to connect went, to one of those that are known."""
        if error is None:
            self._down.discard(address)
            self.over()
            return
        self._down.add(address)
        if error.retriable and (set(known) or {address}) <= self._down:
            self.lasts(f"{error.what} {error.do}")
        # else: who is not let in hears that from poll; or there are others to try

    def lasts(self, why: str) -> None:
        """Nobody can be reached."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= OUTAGE_S and (self._told_at is None or now - self._told_at >= MINUTE_S):
            self._told_at = now
            log.warning("%s can't reach any broker: %s It goes on trying.", self._who, why)

    def over(self) -> None:
        """Somebody can."""
        if self._told_at is not None and self._since is not None:
            log.info("%s reaches a broker again, after %.0f s.", self._who, self._clock() - self._since)
        self._since = self._told_at = None


class BrokersSeen:
    """librdkafka's connections, by what it tells error_cb: for the log of a consumer that only assigns.

    That all are gone it tells once, and not that one is back: so it is asked, once a second for as long. Only the
    polling thread comes here.
    """

    def __init__(self, outage: Outage, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self._outage = outage
        self._clock = clock
        self._look_at = 0.0
        self._why = "it does not say why."

    def heeding(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, with an error_cb that we hear too. One that can't be called librdkafka refuses itself."""
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

    def look(self, handle: Any) -> None:
        """While they are down: whether they still are."""
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


def _reaches_a_broker(handle: Any) -> bool:
    """Without waiting: a question that has no time is not even asked where there is nobody to ask."""
    try:
        handle.list_topics(timeout=0)
    except ck.KafkaException as failed:
        return bool(failed.args[0].code() == ck.KafkaError._TIMED_OUT)
    return True


class Sparingly:
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
