"""ApiVersions, 0 to 4. Every client's first question: what do you serve?

Version notes: 1 throttle time · 3 the client's name, compact (the answer's header never is, KIP-511) · 4 features from
0. Not implemented: features. There is nothing to finalize, so none are listed.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.broker.apis import ADVERTISED_LOWEST, SERVED
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.state import State
from holdfast.model import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""What KIP-511 allows a client to call itself: the name goes into logs."""


def handle(exchange: Exchange, state: State) -> Body:
    names = [getattr(exchange.body, name, "") for name in ("client_software_name", "client_software_version")]
    if exchange.version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return refuse(exchange, ErrorCode.INVALID_REQUEST)
    return _answer(ErrorCode.NONE)


def refuse(exchange: Exchange | None, error: ErrorCode) -> dict[str, Any]:
    """Also the answer to a version we don't know, which must list what we do (KIP-511)."""
    return _answer(error)


def _answer(error: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": error,
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": ADVERTISED_LOWEST.get(api, versions[0]),
                "max_version": versions[-1],
            }
            for api, versions in sorted(SERVED.items(), key=lambda item: item[0].key)
        ],
    }
