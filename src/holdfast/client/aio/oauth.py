"""Calls `oauth_cb` for a consumer without librdkafka: when the consumer is created, and before a token expires.

As in librdkafka, the constructor gets the first token, or raises. A token is renewed after four fifths of its life, and
a failed renewal is repeated after ten seconds. Connections use the token at hand. A constructor can't await a coroutine
function, so such a callback is called with the first connection.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.aio.on_loop import on_loop

if TYPE_CHECKING:
    from holdfast.client.member.engine import Engine

RENEW_AT = 0.8
"""A token is renewed after this part of its life."""

AGAIN_S = 10.0
"""How long after a failure the callback is called again."""

LEAST_S = 1.0
"""Shortest time between two renewals, for tokens that have expired when they arrive."""


def wants_token(config: Mapping[str, Any]) -> bool:
    """Whether this client logs in with tokens from the application's callback."""
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))).upper()
    protocol = str(config.get("security.protocol", "")).upper()
    return mechanism == "OAUTHBEARER" and protocol.startswith("SASL") and callable(config.get("oauth_cb"))


class KeptToken:
    """Replaces the application's oauth_cb, and keeps its newest token."""

    def __init__(self, callback: Callable[[str], Any], config: Mapping[str, Any]) -> None:
        self._callback = callback
        self._argument = str(config.get("sasl.oauthbearer.config", ""))
        self._lock = threading.Lock()
        self._given: tuple[Any, ...] | None = None
        self._renewed_at = 0.0
        self._keeping: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where a coroutine function is run; None for a plain function."""
        if inspect.iscoroutinefunction(callback):
            self.move_to(asyncio.get_running_loop())
            return
        try:
            self._renew()
        except Exception as error:
            text = f"oauth_cb gave no token: it raised {type(error).__name__}. Fix it: no login works without a token."
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._AUTHENTICATION, text)) from error

    def __call__(self, _argument: str) -> tuple[Any, ...]:
        """A token that has not expired; a new one if need be. Blocks."""
        with self._lock:
            given = self._given
        if given is None or float(given[1]) <= time.time():
            given = self._renew()
        return given

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """The application's loop is another one from now on."""
        if inspect.iscoroutinefunction(self._callback):
            self._loop = loop

    def keep(self, engine: Engine) -> None:
        """Start renewing it, in the background."""
        self._keeping = engine.submit(self._keep())

    def end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._due_in_s())
            try:
                if self._given is not None:
                    await asyncio.to_thread(self._renew)
            except Exception:  # noqa: BLE001  # tried again below; a login without a token reports the failure
                await asyncio.sleep(AGAIN_S)

    def _due_in_s(self) -> float:
        given = self._given
        if given is None:  # nobody has logged in yet
            return AGAIN_S
        life_s = float(given[1]) - self._renewed_at
        return max(LEAST_S, self._renewed_at + RENEW_AT * life_s - time.time())

    def _renew(self) -> tuple[Any, ...]:
        asked_at = time.time()
        given = tuple(self._ask())
        with self._lock:
            self._given, self._renewed_at = given, asked_at
        return given

    def _ask(self) -> Any:
        loop = self._loop
        if loop is None:
            return self._callback(self._argument)
        return on_loop(loop, self._callback(self._argument), gone=lambda: self._loop is not loop)

    def __repr__(self) -> str:
        return "KeptToken(…)"
