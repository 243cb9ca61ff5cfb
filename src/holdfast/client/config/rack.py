"""A consumer's rack, which its subscription and its fetches carry.

It comes from `client.rack`, KAFKA_CLIENT_RACK or `rack_cb`, in this order. `client.rack=auto` asks every source that
may know, in parallel and for two seconds at most: the Kubernetes environment, and the metadata services of AWS
(IMDSv2), Google and Azure. If none knows, that is not an error: there is no rack, and one warning says so.

Rules. Nothing is asked unless `auto` says so. For the clouds no proxy, redirect or name look-up is used: their
addresses are link-local. An answer is used only if it looks like the name of a zone. A replacement for a service is
named in the environment, under the variables that the clouds' own tools read.
"""

from __future__ import annotations

import functools
import http.client
import json
import queue
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.client.config.warning import warn
from holdfast.model import HoldfastError

AUTO = "auto"
LIMIT_S = 2.0
"""Time limit for all of them: a metadata service answers in milliseconds, or does not exist."""

MAX_ANSWER = 1_048_576
"""A Kubernetes node object is a hundred kilobytes where many images are cached; the others are a line."""

LINK_LOCAL = "http://169.254.169.254"
"""The metadata service of AWS, Google and Azure alike; the headers of a request tell them apart."""

ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ZONE_LABEL = "topology.kubernetes.io/zone"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class NoZone(Exception):
    """This source does not know the zone. The text quotes no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The sources that `auto` asks."""

    aws: str | None = LINK_LOCAL
    google: str | None = LINK_LOCAL
    azure: str | None = LINK_LOCAL
    pod_labels: str = "/etc/podinfo/labels"
    """The pod's labels from a downward API volume. Kubernetes 1.35 copies the node's zone into them."""
    kubernetes_api: str | None = None
    node_name: str | None = None
    """With the API's address, the node whose zone label is read; the service account needs `get` on nodes."""
    service_account: str = SERVICE_ACCOUNT


def places(environ: Mapping[str, str]) -> Places:
    """The sources, as the environment names them. The clouds' variables are those that their own tools read."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    bracketed = f"[{host}]" if host and ":" in host else host
    aws = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or LINK_LOCAL
    google = environ.get("GCE_METADATA_HOST")
    return Places(
        aws=None if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true" else aws,
        google=f"http://{google}" if google else LINK_LOCAL,
        azure=environ.get("HOLDFAST_AZURE_METADATA_ENDPOINT") or LINK_LOCAL,
        pod_labels=environ.get("HOLDFAST_POD_LABELS") or "/etc/podinfo/labels",
        kubernetes_api=environ.get("HOLDFAST_KUBERNETES_API") or (f"https://{bracketed}:{port}" if host else None),
        node_name=environ.get("NODE_NAME") or environ.get("KUBERNETES_NODE_NAME") or None,
        service_account=environ.get("HOLDFAST_SERVICE_ACCOUNT") or SERVICE_ACCOUNT,
    )


def resolve(raw: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The rack of a consumer with this configuration."""
    given = raw.get("client.rack") or environ.get("KAFKA_CLIENT_RACK") or None
    if given is not None and str(given).strip().lower() == AUTO:
        return ask(places(environ))
    if given is not None:
        return str(given)
    callback = raw.get("rack_cb")
    if callback is None:
        return None
    if not callable(callback):
        raise HoldfastError("CONFIG_INVALID", "rack_cb is not callable.", "Give a function that returns a rack.")
    found = callback()
    if found is not None and not isinstance(found, str):
        raise HoldfastError(
            "CONFIG_INVALID",
            f"rack_cb returned {type(found).__name__}.",
            "Return the rack as a string, or None where there is none.",
        )
    return found or None


@functools.lru_cache(maxsize=16)
def ask(sources: Places) -> str | None:
    """The first zone that a source names. Asked, and warned about, once per process: a process does not move."""
    asked = _questions(sources)
    answers: queue.Queue[tuple[str, str | None, str]] = queue.Queue()
    for name, question in asked.items():
        threading.Thread(target=_put, args=(answers, name, question), name=f"rack-{name}", daemon=True).start()
    deadline = time.monotonic() + LIMIT_S
    silent = dict.fromkeys(sorted(asked), f"no answer within {LIMIT_S:g} s")
    for _ in asked:
        try:
            name, zone, why = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if zone is not None:
            return zone
        silent[name] = why
    told = "; ".join(f"{name}: {why}" for name, why in silent.items())
    warn(
        f"client.rack=auto found no rack ({told}). This consumer reads from leaders, and is assigned partitions, "
        "wherever they are. Set client.rack or KAFKA_CLIENT_RACK where the zone is known."
    )
    return None


def _put(answers: queue.Queue[tuple[str, str | None, str]], name: str, question: Callable[[], str]) -> None:
    try:
        zone = question().strip()
        if not ZONE.fullmatch(zone):
            raise NoZone("the answer is not the name of a zone")
        answers.put((name, zone, ""))
    except NoZone as error:
        answers.put((name, None, str(error)))
    except Exception as error:  # noqa: BLE001  # this source does not know, for whatever reason; the text may quote a token
        answers.put((name, None, getattr(error, "strerror", None) or type(error).__name__))


def _questions(sources: Places) -> dict[str, Callable[[], str]]:
    asked: dict[str, Callable[[], str]] = {}
    if Path(sources.pod_labels).exists():
        asked["the pod's labels"] = lambda: _from_labels(Path(sources.pod_labels).read_text("utf-8"))
    api, node = sources.kubernetes_api, sources.node_name
    if api and node:
        asked["the Kubernetes API"] = lambda: _from_node(api, node, Path(sources.service_account))
    clouds = (
        ("AWS", sources.aws, _from_aws),
        ("Google", sources.google, _from_google),
        ("Azure", sources.azure, _from_azure),
    )
    for name, endpoint, question in clouds:
        if endpoint:
            asked[name] = functools.partial(question, endpoint)
    return asked


# -- the sources


def _from_aws(endpoint: str) -> str:
    """IMDSv2: first a token, then the question."""
    token = _http(endpoint, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    path = "/latest/meta-data/placement/availability-zone"
    return _http(endpoint, "GET", path, {"X-aws-ec2-metadata-token": token.strip()})


def _from_google(endpoint: str) -> str:
    """It answers projects/1234/zones/us-central1-a: the last part is the zone."""
    said = _http(endpoint, "GET", "/computeMetadata/v1/instance/zone", {"Metadata-Flavor": "Google"})
    return said.strip().rpartition("/")[2]


def _from_azure(endpoint: str) -> str:
    """A number within a region; node labels have it as "westeurope-1", and so do we."""
    path = "/metadata/instance/compute?api-version=2021-02-01&format=json"
    compute = json.loads(_http(endpoint, "GET", path, {"Metadata": "true"}))
    if not compute.get("zone"):
        raise NoZone("this machine has no zone")
    return f"{compute['location']}-{compute['zone']}"


def _from_labels(text: str) -> str:
    """Lines of key="value", as a downward API volume has them."""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == ZONE_LABEL:
            return value.strip().strip('"')
    raise NoZone(f"there is no label {ZONE_LABEL}")


def _from_node(api: str, node: str, account: Path) -> str:
    token = (account / "token").read_text("utf-8").strip()
    authority = account / "ca.crt"
    context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    said = _http(api, "GET", f"/api/v1/nodes/{node}", {"Authorization": f"Bearer {token}"}, context)
    labels = json.loads(said)["metadata"].get("labels", {})
    if ZONE_LABEL not in labels:
        raise NoZone(f"the node {node} has no label {ZONE_LABEL}")
    return str(labels[ZONE_LABEL])


def _http(
    endpoint: str, method: str, path: str, headers: Mapping[str, str], context: ssl.SSLContext | None = None
) -> str:
    where = urlsplit(endpoint)
    if where.hostname is None:
        raise NoZone(f"{endpoint!r} is not an address")
    link: http.client.HTTPConnection
    if where.scheme == "https":
        link = http.client.HTTPSConnection(where.hostname, where.port, timeout=LIMIT_S, context=context)
    else:
        link = http.client.HTTPConnection(where.hostname, where.port, timeout=LIMIT_S)
    try:
        link.request(method, f"{where.path.rstrip('/')}{path}", headers=dict(headers))
        answer = link.getresponse()
        if answer.status != 200:
            raise NoZone(f"it answered {answer.status}")
        return answer.read(MAX_ANSWER).decode("utf-8", "replace")
    finally:
        link.close()
