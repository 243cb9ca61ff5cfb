"""Object-store servers on loopback that are not made of Python: MinIO, which keeps to S3's conditional puts; Azurite,
Microsoft's emulator of Azure's blobs; and s3rver, an S3 that does not know the condition. `make store-servers` brings
them.

There is none for Google Cloud Storage: fake-gcs-server takes no puts of Google's XML API, which obstore speaks. That
API is S3's but for a few headers, so a `gs://` place is MinIO behind a proxy that says the condition in S3's words. It
shows that our part fits to obstore's client for Google, and nothing about Google's servers.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faulty_proxy import Proxy, faulty_proxy

from patience import PATIENCE_S

SERVERS = Path(__file__).parent / ".servers"
MINIO = SERVERS / "bin" / "minio"
AZURITE = SERVERS / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
S3RVER = SERVERS / "node_modules" / "s3rver" / "bin" / "s3rver.js"
MISSING = "run `make store-servers`, as `make nightly` does"

KEY, SECRET = "AKIDHOLDFAST", "s3cret-that-is-nowhere"
ACCOUNT = "holdfast"
ACCOUNT_KEY = base64.b64encode(b"an account key of some length, 32").decode()

_numbers = itertools.count(1)


@dataclass
class StoreServer:
    """A server behind a proxy, as tests see it."""

    kind: str
    proxy: Proxy
    direct: str
    """Its address without the proxy."""

    @property
    def options(self) -> dict[str, str]:
        """What a sink is told of it."""
        found = {"endpoint_url": self.proxy.url}
        if self.kind == "s3":
            found |= {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
        elif self.kind == "az":
            found |= {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        else:
            # obstore asks for a token even where it is told to sign nothing, but for a key that says so itself.
            key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
            found |= {"service_account_key": json.dumps(key)}
        return _options(found)

    def new_place(self) -> str:
        """The address of a sink in a bucket of its own."""
        name = f"bucket{next(_numbers)}"  # obstore encodes a hyphen for Google, and MinIO takes that for another name
        if self.kind == "az":
            _make_container(self.direct, name)
        else:
            _make_bucket(self.direct, name)
        return f"{self.kind}://{name}/sinks/orders"


def _options(told: dict[str, str]) -> dict[str, str]:
    return {f"holdfast.store.{name}": value for name, value in told.items()}


def _make_bucket(url: str, name: str) -> None:
    """Open to everybody, as for a client that signs nothing."""
    import boto3

    told = {"region_name": "us-east-1", "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    client = boto3.client("s3", endpoint_url=url, **told)
    client.create_bucket(Bucket=name)
    where = [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
    allowed = {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["s3:*"], "Resource": where}
    client.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
    client.close()


def _make_container(url: str, name: str) -> None:
    import hashlib
    import hmac
    from email.utils import formatdate

    date, version = formatdate(usegmt=True), "2021-08-06"
    said = [f"x-ms-date:{date}", f"x-ms-version:{version}"]
    # The account stands in the path too, so it is in the signed path twice.
    path = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signed = "\n".join(["PUT", *[""] * 11, *said, path])
    key = base64.b64decode(ACCOUNT_KEY)
    signature = base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(f"{url}/{name}?restype=container", method="PUT")
    for header, value in (("x-ms-date", date), ("x-ms-version", version), ("Content-Length", "0")):
        request.add_header(header, value)
    request.add_header("Authorization", f"SharedKey {ACCOUNT}:{signature}")
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()


@contextmanager
def minio_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Its address. It ends like a machine that loses its power; with the same folder and port it is back."""
    assert MINIO.exists(), f"MinIO is not here: {MISSING}"
    port = port or free_port()
    command = [str(MINIO), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "data")]
    environ = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    # It refuses to be a drive of the system's disk, unless it is told that this is a test.
    environ |= {"MINIO_CI_CD": "1", "HOME": str(folder), "MINIO_CALLHOME_ENABLE": "off"}
    with _running(command, environ, folder, f"http://127.0.0.1:{port}/minio/health/live"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def azurite_server(folder: Path) -> Iterator[str]:
    assert AZURITE.exists(), f"Azurite is not here: {MISSING}"
    port = free_port()
    command = ["node", str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    environ = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    with _running(command, environ, folder, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


@contextmanager
def s3rver(folder: Path) -> Iterator[dict[str, str]]:
    """The options of a sink in its bucket `shop`."""
    assert S3RVER.exists(), f"s3rver is not here: {MISSING}"
    port = free_port()
    command = ["node", str(S3RVER), "-d", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port)]
    with _running([*command, "--configure-bucket", "shop"], {}, folder, f"http://127.0.0.1:{port}/"):
        told = {"access_key_id": "S3RVER", "secret_access_key": "S3RVER", "region": "us-east-1"}
        yield _options(told | {"endpoint_url": f"http://127.0.0.1:{port}"})


@contextmanager
def store_server(kind: str, url: str) -> Iterator[StoreServer]:
    """A server that runs, with a proxy of its own before it. `kind` is the scheme of its addresses."""
    with faulty_proxy(url) as proxy:
        proxy.speaks_google = kind == "gs"
        yield StoreServer(kind, proxy, url)


@contextmanager
def _running(command: list[str], environ: dict[str, str], folder: Path, health: str) -> Iterator[None]:
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, env={**os.environ, **environ}, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(health):
            assert server.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < deadline, log.read_text()[-2_000:]
            time.sleep(0.1)
        yield
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
        return error.code < 500
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
