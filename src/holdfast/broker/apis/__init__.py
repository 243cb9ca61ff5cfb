"""The APIs, one module each, named as in Kafka's schemas, loaded when first asked for.

A module has `handle(exchange, state)` and `refuse(exchange, error)`: the answer (or steps towards it, where the work
grows with the request, see `slices`), and the answer that refuses everything that was asked. Those with their own codec
also have `decode`. The versions that are served are listed here and nowhere else; a module's notes say what its
versions add and what is not implemented.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.broker.exchange import Body, Exchange, Result
from holdfast.broker.slices import Steps
from holdfast.model import ErrorCode
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.frames import RequestHeader

_NOT_SERVED = frozenset({Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS})
"""Known to `wire` for the client's sake. Groups are classic ones, rules are kept in the users file."""

_LOWEST = {Api.SASL_HANDSHAKE: 1}
"""Version 0 of the hand-shake is followed by bytes without a frame, which no current client sends."""

SERVED: Mapping[Api, range] = {
    api: range(_LOWEST.get(api, api.lowest), api.highest + 1) for api in Api if api not in _NOT_SERVED
}

ADVERTISED_LOWEST: Mapping[Api, int] = {Api.PRODUCE: 0}
"""As Kafka 4 does: librdkafka before 2.8 takes a broker without Produce v0 for one that can't compress (KAFKA-18659).
It never sends those versions."""

Decode = Callable[[memoryview, RequestHeader, Api], Any]


@dataclass(frozen=True, slots=True)
class Module:
    """One API's functions."""

    handle: Callable[[Exchange, Any], Result | Steps]
    refuse: Callable[[Exchange | None, ErrorCode], Body]
    decode: Decode
    refused: Callable[[Exchange, Any, ErrorCode], None] | None = None
    """Called with a request that is refused as a whole, if the API has to know."""


loaded_modules: dict[Api, Module] = {}


def is_served(api: Api, version: int) -> bool:
    return api in SERVED and version in SERVED[api]


def module(api: Api) -> Module:
    """The module of an API that is served."""
    found = loaded_modules.get(api)
    if found is None:
        loaded = importlib.import_module(f"{__name__}.{api.schema}")
        decode = getattr(loaded, "decode", codec.decode_body)
        found = Module(loaded.handle, loaded.refuse, decode, getattr(loaded, "refused", None))
        loaded_modules[api] = found
    return found
