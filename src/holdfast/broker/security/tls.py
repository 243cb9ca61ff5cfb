"""TLS as the broker offers it: 1.2 or later, the system's ciphers, and certificates from files."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

from holdfast.broker.settings import Security
from holdfast.model import HoldfastError


def check_given(security: Security) -> None:
    """A certificate turns TLS on, and the other files mean nothing without it. Giving only those is refused: the user
    would believe that the broker is protected, while it spoke plaintext."""
    if security.certificate is not None:
        return
    for option, path in (("--tls-key", security.key), ("--tls-client-ca", security.client_ca)):
        if path is not None:
            raise HoldfastError(
                "TLS_FILES_INVALID",
                f"{option} was given without --tls-cert, and without a certificate there is no TLS.",
                "Give --tls-cert with the certificate chain, or none of the three.",
            )


def server_context(security: Security) -> ssl.SSLContext | None:
    """The context to serve with, None when no certificate is given."""
    check_given(security)
    if security.certificate is None:
        return None
    key = security.key or security.certificate
    _check_file("--tls-cert", security.certificate, "CERTIFICATE-----", "certificate")
    _check_file("--tls-key", key, "PRIVATE KEY-----", "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(security.certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise _invalid(f"{security.certificate} and {key} can't be used together: {_reason(error)}.") from error
    if security.client_ca is not None:
        _check_file("--tls-client-ca", security.client_ca, "CERTIFICATE-----", "certificate")
        try:
            context.load_verify_locations(security.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise _invalid(f"{security.client_ca} can't be used: {_reason(error)}.") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_file(option: str, path: Path, mark: str, what: str) -> None:
    """OpenSSL says neither which file it means nor what it missed in it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _invalid(f"{path} ({option}) can't be read: {error.strerror or error}.") from error
    if mark not in text:
        raise _invalid(f"{path} ({option}) holds no {what}.")
    if what == "private key" and "ENCRYPTED" in text:
        raise _invalid(f"The private key in {path} ({option}) is locked by a password.")


def _reason(error: OSError) -> str:
    """OpenSSL's words without its line numbers, as `KEY_VALUES_MISMATCH`."""
    return (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or str(error)


def _invalid(what: str) -> HoldfastError:
    return HoldfastError(
        "TLS_FILES_INVALID",
        what,
        "Give PEM files: --tls-cert with the chain, --tls-key with its private key, without a password, and "
        "--tls-client-ca if wanted.",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may mean anything, so it does not
    count."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, security: Security, *, users: bool) -> None:
    """Refuse to listen to the world without TLS and a login, unless the user insists."""
    if security.insecure or is_loopback(host) or (security.certificate is not None and users):
        return
    raise HoldfastError(
        "EXPOSED_WITHOUT_PROTECTION",
        f"{host} can be reached from other machines, and there is no TLS with a login to protect it.",
        "Give --tls-cert and --users, or listen on 127.0.0.1; --insecure says that you know better.",
    )
