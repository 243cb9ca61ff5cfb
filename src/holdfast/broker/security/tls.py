"""TLS as the broker offers it: 1.2 or later, the system's ciphers, and certificates from files."""

from __future__ import annotations

import ipaddress
import ssl

from holdfast.broker.settings import Security
from holdfast.model import HoldfastError


def server_context(security: Security) -> ssl.SSLContext | None:
    """The context to serve with, None when no certificate is given."""
    if security.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(security.certificate, security.key)
        if security.client_ca is not None:
            context.load_verify_locations(security.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise HoldfastError(
            "TLS_FILES_INVALID",
            f"The TLS files can't be used: {error}.",
            "Give PEM files: --tls-cert with the chain, --tls-key with the private key, --tls-client-ca if wanted.",
        ) from error
    return context


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
