"""`oauth_cb` for a consumer without librdkafka: asked when the consumer is made, and again before a token ends.

As librdkafka does: the first token is there, or the reason why not is raised, when the constructor returns; a token is
renewed after four fifths of its life, and ten seconds after a failure. A connection takes the token that is there.
A coroutine function can't be waited for in a constructor: it is asked with the first connection.
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

if TYPE_CHECKING:
    from holdfast.client.engine import Engine

RENEW_AT = 0.8
"""Part of its life after which a token is renewed."""

AGAIN_S = 10.0
"""How soon after a failure the application is asked again."""

LEAST_S = 1.0
"""A token that is over when it comes is not asked for without pause."""


def wants_token(config: Mapping[str, Any]) -> bool:
    """Whether this client logs in with tokens of the application's."""
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))).upper()
    protocol = str(config.get("security.protocol", "")).upper()
    return mechanism == "OAUTHBEARER" and protocol.startswith("SASL") and callable(config.get("oauth_cb"))


class KeptToken:
    """Stands in for the application's callback."""

    def __init__(self, callback: Callable[[str], Any], config: Mapping[str, Any]) -> None:
        self._callback = callback
        self._argument = str(config.get("sasl.oauthbearer.config", ""))
        self._lock = threading.Lock()
        self._given: tuple[Any, ...] | None = None
        self._renewed_at = 0.0
        self._keeping: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if inspect.iscoroutinefunction(callback):
            self._loop = asyncio.get_running_loop()
            return
        try:
            self._renew()
        except Exception as error:
            text = f"oauth_cb gave no token: it raised {type(error).__name__}. Mend it: nobody can log in without one."
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._AUTHENTICATION, text)) from error

    def __call__(self, _argument: str) -> tuple[Any, ...]:
        """A token that holds; asks for one if there is none. On a thread that may wait."""
        with self._lock:
            given = self._given
        if given is None or float(given[1]) <= time.time():
            given = self._renew()
        return given

    def keep(self, engine: Engine) -> None:
        """Renew it from now on."""
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
            except Exception:  # noqa: BLE001  # the application's own; it is asked again, and a login tells if there is none
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
        if self._loop is None:
            return self._callback(self._argument)
        return asyncio.run_coroutine_threadsafe(self._callback(self._argument), self._loop).result()

    def __repr__(self) -> str:
        return "KeptToken(…)"
