"""Tokens for OAUTHBEARER without an oauth_cb: from an identity provider (OIDC), or unsigned ones for development.

librdkafka has both built in, under the same keys, and gets its own tokens. A token is used for four fifths of its life,
so that the identity provider is asked once per token and not with every connection.

Not supported, and refused by name: signed assertions (jwt-bearer) and the metadata services of clouds.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.model import HoldfastError
from holdfast.net.security import as_boolean

Token = tuple[str, float, str, dict[str, str]]
"""Token, expiry in seconds since the epoch, principal and extensions, as confluent-kafka's oauth_cb returns them."""

TIMEOUT_S = 10.0
"""Time limit for the identity provider's answer; a connection waits for it."""

MAX_ANSWER_BYTES = 1_000_000
"""A token is some kilobytes."""

RENEW_AT = 0.8
"""The share of its life for which a token is used for logins."""

SHORT_LIFE_S = 300.0
"""The life of a token that does not say when it expires."""

GRANT = "client_credentials"
_PREFIX = "sasl.oauthbearer."
_CLIENT = _PREFIX + "client.credentials.client."


def built_in(config: Mapping[str, Any]) -> Callable[[], Token] | None:
    """The built-in source that the configuration asks for, if any. Raises HoldfastError."""
    method = str(config.get(_PREFIX + "method") or "default").lower()
    if method == "oidc":
        return CachedToken(_oidc(config))
    if method != "default":
        raise _bad(_PREFIX + "method", f"is {method!r}", "Use default or oidc.")
    if as_boolean(config.get("enable.sasl.oauthbearer.unsecure.jwt")):
        return _unsecured(str(config.get(_PREFIX + "config") or ""))
    return None


class CachedToken:
    """Keeps a source's token, and asks for a new one when it nears its end."""

    __slots__ = ("_ask", "_last", "_lock", "_until")

    def __init__(self, ask: Callable[[], Token]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._last: Token | None = None
        self._until = 0.0

    def __call__(self) -> Token:
        with self._lock:
            now = time.time()
            if self._last is None or now >= self._until:
                self._last = self._ask()
                self._until = now + (self._last[1] - now) * RENEW_AT
            return self._last

    def __repr__(self) -> str:
        return "CachedToken(…)"


def _oidc(config: Mapping[str, Any]) -> Callable[[], Token]:
    """An identity provider asked with the client's own id and secret."""
    for key, only in (("grant.type", GRANT), ("metadata.authentication.type", "none")):
        value = str(config.get(_PREFIX + key) or only).lower()
        if value != only:
            raise _bad(_PREFIX + key, f"is {value}", f"Use {only}, or get the token in an oauth_cb.")
    url = _needed(config, _PREFIX + "token.endpoint.url")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise _bad(_PREFIX + "token.endpoint.url", "is not an http or https address", "Give the full address.")
    client = _needed(config, _PREFIX + "client.id", _CLIENT + "id")
    secret = _needed(config, _PREFIX + "client.secret", _CLIENT + "secret")
    scope = config.get(_PREFIX + "scope")
    form = {"grant_type": GRANT} | ({"scope": str(scope)} if scope else {})
    extensions = _pairs(str(config.get(_PREFIX + "extensions") or ""))
    login = base64.b64encode(f"{client}:{secret}".encode()).decode()
    location, pem = config.get("https.ca.location"), config.get("https.ca.pem")
    trusted = None if location in (None, "probe") else str(location)

    def ask() -> Token:
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked above
            url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {login}", "Accept": "application/json"},
        )
        context = ssl.create_default_context(cafile=trusted, cadata=None if pem is None else str(pem))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310
            given = json.loads(answer.read(MAX_ANSWER_BYTES))
        return (*_read(given), extensions)

    return ask


def _read(answer: Any) -> tuple[str, float, str]:
    """The token in a provider's answer, its expiry and its principal."""
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise HoldfastError("SASL_LOGIN_MISSING", "the provider's answer has no access_token.", "Check its log.")
    claims = _claims(token)
    ends = claims.get("exp")
    if not isinstance(ends, int | float):
        lasts = answer.get("expires_in")
        ends = time.time() + (float(lasts) if isinstance(lasts, int | float) else SHORT_LIFE_S)
    return token, float(ends), str(claims.get("sub", ""))


def _claims(token: str) -> dict[str, Any]:
    """The claims in a token, if it is a JWT. Nothing is verified here: the broker does that."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _unsecured(text: str) -> Callable[[], Token]:
    """Unsigned tokens, for development: `principal=admin scope=a,b lifeSeconds=600 extension_k=v`."""
    options = dict(pair.partition("=")[::2] for pair in text.split())
    principal = options.get("principal", "")
    if not principal:
        raise _bad(_PREFIX + "config", "names no principal", "Write for instance principal=admin.")
    try:
        life_s = int(options.get("lifeSeconds", "3600"))
    except ValueError:
        raise _bad(_PREFIX + "config", "has a lifeSeconds that is not a number", "Give seconds.") from None
    extensions = {key.removeprefix("extension_"): v for key, v in options.items() if key.startswith("extension_")}

    def make() -> Token:
        now = time.time()
        claims: dict[str, Any] = {options.get("principalClaimName", "sub"): principal, "iat": now, "exp": now + life_s}
        if options.get("scope"):
            claims[options.get("scopeClaimName", "scope")] = options["scope"].split(",")
        return f"{_part({'alg': 'none'})}.{_part(claims)}.", now + life_s, principal, extensions

    return make


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _pairs(text: str) -> dict[str, str]:
    """`key=value,key=value`."""
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in text.split(",")) if key}


def _needed(config: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if config.get(name):
            return str(config[name])
    raise HoldfastError("SASL_LOGIN_MISSING", f"OIDC needs {names[0]}.", "Set it; the provider has it.")


def _bad(key: str, what: str, do: str) -> HoldfastError:
    return HoldfastError("CONFIG_INVALID", f"{key} {what}.", do)
