"""PKCS#12 keystores (`ssl.keystore.location`), which Python's ssl module can't read.

OpenSSL can, and Python's ssl module is linked with it: its functions are called directly, without another package.
Where they can't be reached the error says how to turn the keystore into PEM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError

MAX_KEYSTORE_BYTES = 10_000_000
"""A keystore is some kilobytes; something larger is the wrong file."""

JAVA_KEYSTORE = b"\xfe\xed\xfe\xed"
MEMORY_CONTENT = 3
"""BIO_CTRL_INFO: where a memory BIO keeps what was written to it."""


def read_pkcs12(location: str, password: str) -> tuple[str, str]:
    """The certificates, our own first, and the private key, both as PEM. Raises HoldfastError."""
    try:
        with Path(location).open("rb") as file:
            content = file.read(MAX_KEYSTORE_BYTES + 1)
    except OSError as error:
        raise _bad(location, f"can't be read: {error.strerror}", "Check the path and its permissions.") from None
    if len(content) > MAX_KEYSTORE_BYTES:
        raise _bad(location, f"is larger than {MAX_KEYSTORE_BYTES} bytes", "Is it the right file?")
    if content.startswith(JAVA_KEYSTORE):
        raise _bad(
            location,
            "is a JKS keystore, which only Java reads",
            "Convert it: keytool -importkeystore -srckeystore … -destkeystore client.p12 -deststoretype PKCS12.",
        )
    try:
        return _Crypto().read(content, password)
    except (_Unreadable, AttributeError, OSError):
        raise _bad(
            location,
            "can't be opened as PKCS#12",
            "Check ssl.keystore.password; or convert it: openssl pkcs12 -in … -out client.pem -nodes, and use "
            "ssl.certificate.location and ssl.key.location.",
        ) from None


class _Unreadable(Exception):
    """OpenSSL said no."""


class _Crypto:
    """The few functions of libcrypto that this needs."""

    def __init__(self) -> None:
        import _ssl  # the part of Python that is linked with OpenSSL

        library = ctypes.CDLL(_ssl.__file__)
        pointer, number = ctypes.c_void_p, ctypes.c_int

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found  # type: ignore[no-any-return]  # ctypes does not say what it finds

        self.reading = function("BIO_new_mem_buf", pointer, ctypes.c_char_p, number)
        self.memory = function("BIO_s_mem", pointer)
        self.new = function("BIO_new", pointer, pointer)
        self.control = function("BIO_ctrl", ctypes.c_long, pointer, number, ctypes.c_long, pointer)
        self.free = function("BIO_free", number, pointer)
        self.decode = function("d2i_PKCS12_bio", pointer, pointer, pointer)
        self.parse = function("PKCS12_parse", number, pointer, ctypes.c_char_p, pointer, pointer, pointer)
        self.free_store = function("PKCS12_free", None, pointer)
        self.write_key = function("PEM_write_bio_PrivateKey", number, *([pointer] * 4), number, pointer, pointer)
        self.write_certificate = function("PEM_write_bio_X509", number, pointer, pointer)
        self.count = function("OPENSSL_sk_num", number, pointer)
        self.item = function("OPENSSL_sk_value", pointer, pointer, number)
        self.free_list = function("OPENSSL_sk_free", None, pointer)
        self.free_key = function("EVP_PKEY_free", None, pointer)
        self.free_certificate = function("X509_free", None, pointer)

    def read(self, content: bytes, password: str) -> tuple[str, str]:
        key, certificate, others = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        with self._store(content) as store:
            places = (ctypes.byref(key), ctypes.byref(certificate), ctypes.byref(others))
            if not self.parse(store, password.encode(), *places):
                raise _Unreadable
        chain = [self.item(others, at) for at in range(self.count(others))] if others.value else []
        try:
            if not key.value or not certificate.value:
                raise _Unreadable
            pems = [self._written(partial(self._write_certificate, one)) for one in (certificate, *chain)]
            return "".join(pems), self._written(lambda out: self.write_key(out, key, None, None, 0, None, None))
        finally:
            self.free_key(key)
            for one in (certificate, *chain):
                self.free_certificate(one)
            self.free_list(others)

    def _write_certificate(self, certificate: Any, out: Any) -> int:
        return int(self.write_certificate(out, certificate))

    @contextmanager
    def _store(self, content: bytes) -> Iterator[int]:
        source = self.reading(content, len(content))
        store = self.decode(source, None)
        self.free(source)
        if not store:
            raise _Unreadable
        try:
            yield store
        finally:
            self.free_store(store)

    def _written(self, write: Callable[[Any], int]) -> str:
        out = self.new(self.memory())
        try:
            if not write(out):
                raise _Unreadable
            where = ctypes.c_void_p()
            size = self.control(out, MEMORY_CONTENT, 0, ctypes.byref(where))
            return ctypes.string_at(where.value or 0, size).decode()
        finally:
            self.free(out)


def _bad(location: str, what: str, do: str) -> HoldfastError:
    return HoldfastError("TLS_CONFIG_INVALID", f"ssl.keystore.location ({location}) {what}.", do)
