"""TLS and SASL settings under Kafka's and librdkafka's own keys.

Rules. Certificates and host names are verified unless the user says otherwise; TLS 1.2 is the minimum. Secrets are kept
in `Secret`, which never shows them: not in a repr, an error or a log. No class named in a configuration is ever loaded:
of `sasl.jaas.config` only user and password are read.

This module opens no connection; `login` speaks SASL.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_NOT_HERE = {
    "ssl.sigalgs.list": "Python's ssl module can't limit signature algorithms",
    "ssl.engine.location": "OpenSSL's engines are not used",
    "ssl.providers": "OpenSSL's providers can't be chosen from Python",
}
"""Settings that librdkafka would apply, but our own connections would not."""

_CURVES = {"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1"}
"""Names that OpenSSL takes in a list of groups, as the names that it takes for a single curve."""

LOGIN_KEY = "holdfast.login"
"""The key under which a consumer puts its `Login` into a configuration, for all connections made in its name."""

_TRUE = ("true", "1", "t", "yes", "on")
_FALSE = ("false", "0", "f", "no", "off")


class Secret:
    """A text that is shown only by `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Login:
    """A user and a password, which may be changed for future connections (`set_sasl_credentials`).

    Two are equal if they began with the same values: equal configurations share connections.
    """

    __slots__ = ("_began", "_heard", "_now")

    def __init__(self, user: str, password: str) -> None:
        self._began = self._now = (user, Secret(password))
        self._heard: list[Callable[[str, str], None]] = []

    @property
    def user(self) -> str:
        return self._now[0]

    @property
    def password(self) -> Secret:
        return self._now[1]

    def change(self, user: str, password: str) -> None:
        self._now = (user, Secret(password))
        for heard in self._heard:
            heard(user, password)

    def tell(self, heard: Callable[[str, str], None]) -> None:
        """Pass on every change from now on, to whoever has connections of its own."""
        self._heard.append(heard)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Login) and other._began == self._began

    def __hash__(self) -> int:
        return hash(self._began)

    def __repr__(self) -> str:
        return f"Login({self.user!r}, …)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a TLS connection needs."""

    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: Secret | None = None
    key_password: Secret | None = None
    verify_certificate: bool = True
    verify_host_name: bool = True
    crl_location: str | None = None
    """Revoked certificates: a broker with one of these is refused."""
    ciphers: str | None = None
    """OpenSSL's list for TLS 1.2, as librdkafka's ssl.cipher.suites."""
    curve: str | None = None

    def context(self) -> ssl.SSLContext:
        """Reads the files. Raises HoldfastError for what can't be read or does not fit together."""
        try:
            return self._context()
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
            raise HoldfastError(
                "TLS_CONFIG_INVALID",
                f"The certificates or keys can't be used: {reason}.",
                "Check ssl.ca.location, ssl.certificate.location, ssl.key.location and ssl.key.password (PEM files), "
                "ssl.crl.location, ssl.cipher.suites and ssl.curves.list.",
            ) from None  # the original may quote the key

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_certificate and self.verify_host_name
        context.verify_mode = ssl.CERT_REQUIRED if self.verify_certificate else ssl.CERT_NONE
        if self.ca_location is not None:
            folder = Path(self.ca_location).is_dir()
            context.load_verify_locations(**{"capath" if folder else "cafile": self.ca_location})
        if self.ca_pem is not None:
            context.load_verify_locations(cadata=self.ca_pem)
        if self.ca_location is None and self.ca_pem is None:
            context.load_default_certs()
        if self.crl_location is not None:
            context.load_verify_locations(cafile=self.crl_location)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if self.ciphers is not None:
            context.set_ciphers(self.ciphers)
        if self.curve is not None:
            context.set_ecdh_curve(self.curve)
        if self.certificate_location is not None or self.certificate_pem is not None:
            self._load_certificate(context)
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        password = None if self.key_password is None else self.key_password.reveal()
        with _as_file(self.certificate_pem, self.certificate_location) as certificate:
            key_pem = None if self.key_pem is None else self.key_pem.reveal()
            with _as_file(key_pem, self.key_location) as key:
                # Without a password OpenSSL would ask on the terminal, and a service would hang there.
                context.load_cert_chain(str(certificate), key, password=password or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """What a login needs."""

    mechanism: str
    login: Login = field(default_factory=lambda: Login("", ""))
    token: Callable[[], tuple[Any, ...]] | None = field(default=None, repr=False)
    """For OAUTHBEARER: gives (token, expiry in seconds[, principal[, extensions]]), as confluent-kafka's oauth_cb."""

    @property
    def user(self) -> str:
        return self.login.user

    @property
    def password(self) -> Secret:
        return self.login.password


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How to connect: plainly, over TLS, with a login, or both."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()


def security_from(config: Mapping[str, Any]) -> Security:
    """Reads `security.protocol` and the keys that belong to it."""
    protocol = str(config.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise HoldfastError(
            "SECURITY_PROTOCOL_UNKNOWN", f"security.protocol is {protocol!r}.", f"Use one of {', '.join(PROTOCOLS)}."
        )
    return Security(
        protocol=protocol,
        tls=_tls(config) if protocol.endswith("SSL") else None,
        sasl=_sasl(config) if protocol.startswith("SASL") else None,
    )


def _tls(config: Mapping[str, Any]) -> Tls:
    _check_tls(config)
    algorithm = str(config.get("ssl.endpoint.identification.algorithm", "https") or "none").lower()
    if algorithm not in ("https", "none"):
        raise HoldfastError(
            "TLS_CONFIG_INVALID", f"ssl.endpoint.identification.algorithm is {algorithm!r}.", "Use https or none."
        )
    keystore, password = config.get("ssl.keystore.location"), config.get("ssl.key.password")
    key_pem = config.get("ssl.key.pem", config.get("ssl.keystore.key"))
    certificate_pem = config.get("ssl.certificate.pem", config.get("ssl.keystore.certificate.chain"))
    if keystore is not None and str(config.get("ssl.keystore.type", "PKCS12")).upper() != "PEM":
        certificate_pem, key_pem = _keystore(config, str(keystore))
        keystore = None
    ca_location = config.get("ssl.ca.location", config.get("ssl.truststore.location"))
    return Tls(
        ca_location=None if ca_location == "probe" else ca_location,  # the system's own are looked for anyway
        ca_pem=config.get("ssl.ca.pem", config.get("ssl.truststore.certificates")),
        certificate_location=config.get("ssl.certificate.location", keystore),
        certificate_pem=certificate_pem,
        key_location=config.get("ssl.key.location"),
        key_pem=None if key_pem is None else Secret(key_pem),
        key_password=None if password is None else Secret(str(password)),
        verify_certificate=_boolean(config, "enable.ssl.certificate.verification", default=True),
        verify_host_name=algorithm == "https",
        crl_location=config.get("ssl.crl.location"),
        ciphers=config.get("ssl.cipher.suites") or None,
        curve=_curve(config),
    )


def _check_tls(config: Mapping[str, Any]) -> None:
    store = config.get("ssl.truststore.location")
    kind = str(config.get("ssl.truststore.type", "JKS")).upper()
    if store is not None and kind != "PEM":
        raise HoldfastError(
            "TLS_CONFIG_INVALID",
            f"ssl.truststore.location names a {kind} store, which only Java reads.",
            "Export it as PEM and use ssl.ca.location.",
        )
    for key, why in _NOT_HERE.items():
        if config.get(key):
            raise HoldfastError("TLS_CONFIG_INVALID", f"{key} is set, and {why}.", "Leave it out.")


def _keystore(config: Mapping[str, Any], location: str) -> tuple[str, str]:
    password = config.get("ssl.keystore.password")
    if password is None:
        raise HoldfastError(
            "TLS_CONFIG_INVALID", "ssl.keystore.location is set without ssl.keystore.password.", "Set it too."
        )
    from holdfast.net.keystore import read_pkcs12  # imported late: the watchdog's start must be quick

    return read_pkcs12(location, str(password))


def _curve(config: Mapping[str, Any]) -> str | None:
    """The one curve to offer: Python's ssl module offers one, or all of them."""
    named = str(config.get("ssl.curves.list") or "").strip()
    if ":" in named:
        raise HoldfastError(
            "TLS_CONFIG_INVALID",
            "ssl.curves.list names several curves, and Python's ssl module can offer one, or all.",
            "Name one, or leave the key out.",
        )
    return _CURVES.get(named, named) or None


def _sasl(config: Mapping[str, Any]) -> Sasl:
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", "PLAIN"))).upper()
    if mechanism not in MECHANISMS:
        raise HoldfastError(
            "SASL_MECHANISM_UNKNOWN", f"sasl.mechanism is {mechanism!r}.", f"Use one of {', '.join(MECHANISMS)}."
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism=mechanism, token=_token_source(config))
    user, password = config.get("sasl.username"), config.get("sasl.password")
    if user is None and config.get("sasl.jaas.config"):
        user, password = _jaas(str(config["sasl.jaas.config"]))
    if not user or password is None:
        raise HoldfastError(
            "SASL_LOGIN_MISSING",
            f"{mechanism} needs a user and a password.",
            "Set sasl.username and sasl.password.",
        )
    return Sasl(mechanism=mechanism, login=config.get(LOGIN_KEY) or Login(str(user), str(password)))


def _token_source(config: Mapping[str, Any]) -> Callable[[], tuple[Any, ...]]:
    callback = config.get("oauth_cb")
    if callback is None:
        from holdfast.net.token_sources import built_in  # imported late: most clients don't need it

        source = built_in(config)
        if source is not None:
            return source
    if not callable(callback):
        raise HoldfastError(
            "SASL_LOGIN_MISSING",
            "OAUTHBEARER needs a source of tokens.",
            "Set oauth_cb to a function that returns (token, expiry in seconds since the epoch), or "
            "sasl.oauthbearer.method=oidc and its settings.",
        )
    return _Callback(callback, str(config.get("sasl.oauthbearer.config", "")))


@dataclass(frozen=True, slots=True)
class _Callback:
    """Asks the application's callback for a token. Equal for the same callback, so that connections are shared."""

    callback: Callable[[str], Any] = field(repr=False)
    argument: str

    def __call__(self) -> tuple[Any, ...]:
        return tuple(self.callback(self.argument))


def _jaas(text: str) -> tuple[str | None, str | None]:
    """User and password from a login module's line; the module itself is for Java only."""
    options = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', text))
    unescaped = {name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()}
    return unescaped.get("username"), unescaped.get("password")


def _boolean(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    found = as_boolean(config.get(key, default))
    if found is None:
        raise HoldfastError("CONFIG_INVALID", f"{key} is neither true nor false.", "Use true or false.")
    return found


def as_boolean(value: object) -> bool | None:
    """A boolean as librdkafka (true, t, 1) or a properties file writes it; None if it is neither true nor false."""
    word = str(value).lower()
    return True if word in _TRUE else False if word in _FALSE else None


@contextmanager
def _as_file(pem: str | None, location: str | None) -> Iterator[str | None]:
    """PEM text as a file, which OpenSSL wants. The file is in memory if the system allows, to keep keys off the
    disk."""
    if pem is None:
        yield location
        return
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast-pem")
        try:
            os.write(descriptor, pem.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem.encode())
        file.flush()
        yield file.name
