"""Certificates for tests, made once a run by openssl: an authority, one for localhost, and one for a client."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificates(folder: Path) -> None:
    """Leaves ca.pem, server.pem, server.key, client.pem and client.key in `folder`. Valid for two days."""
    _openssl(
        folder,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-authority "
        "-keyout ca.key -out ca.pem",
    )
    _signed(folder, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _signed(folder, "client", "extendedKeyUsage=clientAuth")


def _signed(folder: Path, name: str, extension: str) -> None:
    _openssl(
        folder,
        f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr",
    )
    (folder / f"{name}.ext").write_text(f"{extension}\n")
    _openssl(
        folder,
        f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
        f"-extfile {name}.ext -out {name}.pem",
    )


def _openssl(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True, timeout=60)
