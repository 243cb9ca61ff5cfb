"""Makes an obstore client from an address (`s3://bucket/orders`) and finds its credentials.

Credentials come from the query's options, else from where each cloud's own tools look: environment variables, web
identity, the instance. boto3, if installed, reads the profiles in `~/.aws`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError
from holdfast.spark.files.store_options import PREFIX, StoreOptions

SCHEMES: Mapping[str, str] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
"""Known schemes and the kind of store. s3a, abfs and abfss are Hadoop's."""

PATIENCE_S = 180.0
"""How long a request is retried, so that a short outage fails no batch."""
AT_START_S = 5.0
"""How long while a query is planned: somebody waits, and the address may be wrong."""
REQUEST_S = 60.0
CONNECT_S = 5.0

INSTALL = "pip install 'holdfast[object-store]'"

_ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "azure": ("AZURE_STORAGE_ENDPOINT",),
}
_OTHER_AWS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_OTHER_OPTIONS = ("access_key_id", "skip_signature", "role_arn")


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a bucket (a container, on Azure)."""

    url: str
    kind: str
    bucket: str
    prefix: str
    account: str = ""
    """Only on Azure, and only if the address contains it."""


def parse_address(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    kind, account = SCHEMES[scheme], ""
    bucket = host
    if kind == "azure" and "@" in host:
        bucket, _, server = host.partition("@")
        account = server.partition(".")[0]
    if "@" in bucket or ":" in bucket or not bucket:
        raise HoldfastError(
            "STORE_ADDRESS",
            f"An address of {scheme} is {scheme}://bucket/path, and here is something else before the path.",
            "Addresses are shown and logged. Give keys by the environment or by options, never in the address.",
        )
    prefix = path.strip("/")
    return Address(f"{scheme}://{host}/{prefix}".rstrip("/"), kind, bucket, prefix, account)


def open_bucket(address: Address, options: StoreOptions, patience_s: float = PATIENCE_S) -> Any:
    """An obstore client. It does not contact the server yet."""
    try:
        from obstore import store as clients
        from obstore.exceptions import BaseError
    except ImportError as error:
        raise HoldfastError(
            "STORE_PACKAGE_MISSING",
            f"{address.url} is in an object store, and the package obstore is not installed here ({error}).",
            f"{INSTALL}, on the driver and on all executors.",
        ) from error
    config = {name: value for name, value in options.items() if name not in ("endpoint_url", "endpoint", "profile")}
    endpoint = _endpoint(address.kind, options)
    if endpoint:
        config["base_url" if address.kind == "gs" else "endpoint"] = endpoint
    if address.account:
        config.setdefault("account_name", address.account)
    told: dict[str, Any] = {
        "prefix": address.prefix or None,
        "client_options": {
            "allow_http": endpoint.startswith("http://"),
            "timeout": timedelta(seconds=min(REQUEST_S, patience_s)),
            "connect_timeout": timedelta(seconds=CONNECT_S),
        },
        "retry_config": {"max_retries": 1_000, "retry_timeout": timedelta(seconds=patience_s)},
    }
    if address.kind == "s3" and _profile_wanted(options):
        told["credential_provider"] = _by_profile(options)
    made: Any = {"s3": clients.S3Store, "gs": clients.GCSStore, "azure": clients.AzureStore}[address.kind]
    try:
        return made(address.bucket, config=config, **told)
    except (BaseError, ValueError, TypeError) as error:
        raise HoldfastError(
            "INVALID_OPTION",
            f"The store of {address.url} can't be opened: {options.without_secrets(str(error))}",
            f"See the options {PREFIX}… in docs/spark-sinks.md, and the environment.",
        ) from None


def _endpoint(kind: str, options: StoreOptions) -> str:
    given = options.get("endpoint_url") or options.get("endpoint")
    found = given or next((os.environ[name] for name in _ENDPOINTS[kind] if os.environ.get(name)), "")
    return found.rstrip("/")


def _profile_wanted(options: StoreOptions) -> bool:
    """Whether the credentials are in the AWS tools' files, which obstore does not read."""
    if "profile" in options:
        return True
    if any(name in options for name in _OTHER_OPTIONS) or any(os.environ.get(name) for name in _OTHER_AWS):
        return False
    if os.environ.get("AWS_PROFILE"):
        return True
    keys = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    # ~/.aws/config alone may hold just a region, while the credentials come from the machine's role.
    return keys.exists() or (Path("~/.aws/config").expanduser().exists() and find_spec("boto3") is not None)


def _by_profile(options: StoreOptions) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise HoldfastError(
            "STORE_PACKAGE_MISSING",
            f"The credentials are in a profile of the AWS tools, which boto3 reads, and it is not here ({error}).",
            "pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from error
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=options.get("profile")))
    except Exception as error:  # noqa: BLE001 - boto3 has an error for each way in which a file can be wrong
        raise HoldfastError(
            "STORE_DENIED",
            f"boto3 finds no credentials ({type(error).__name__}: {options.without_secrets(str(error))}).",
            "See the profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from None
