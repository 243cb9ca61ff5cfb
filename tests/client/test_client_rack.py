"""Where a consumer stands: configuration, environment, callback, and `auto` against stand-ins on loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import cimpl
from unwarned import no_warning

import holdfast
from holdfast.client.config import rack
from holdfast.client.config import settings as config
from holdfast.client.config.rack import Places, ask, places, resolve
from holdfast.client.config.warning import PitfallWarning
from holdfast.model import HoldfastError
from holdfast.model.consumer_protocol import decode_subscription
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

Answer = Callable[[str, str, dict[str, str]], tuple[int, str]]
NOWHERE = Places(aws=None, google=None, azure=None, pod_labels="/nonexistent/labels")


class StandIn:
    """A metadata service on loopback."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.command, self.path, headers))
                status, text = answer(self.command, self.path, headers)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_PUT = do_GET

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def aws(method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    if method == "PUT" and path == "/latest/api/token":
        return (200, "a-token") if "x-aws-ec2-metadata-token-ttl-seconds" in headers else (400, "")
    if headers.get("x-aws-ec2-metadata-token") != "a-token":
        return 401, ""
    return (200, "eu-west-1b") if path == "/latest/meta-data/placement/availability-zone" else (404, "")


def google(_method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    if headers.get("metadata-flavor") != "Google":
        return 403, ""
    return (200, "projects/12/zones/us-central1-a\n") if path == "/computeMetadata/v1/instance/zone" else (404, "")


def azure(_method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    if headers.get("metadata") != "true" or not path.startswith("/metadata/instance/compute?api-version="):
        return 400, ""
    return 200, json.dumps({"location": "westeurope", "zone": "2", "name": "vm"})


# -- where it comes from


def test_the_configuration_comes_before_the_environment_and_both_before_the_callback() -> None:
    environment = {"KAFKA_CLIENT_RACK": "from-environment"}
    callback = {"rack_cb": lambda: "from-callback"}
    assert resolve({"client.rack": "mine", **callback}, environment) == "mine"
    assert resolve(callback, environment) == "from-environment"
    assert resolve(callback, {}) == "from-callback"
    assert resolve({}, {}) is None


def test_a_callback_that_knows_no_rack_gives_none_and_one_that_gives_nonsense_is_refused() -> None:
    assert resolve({"rack_cb": lambda: None}, {}) is None
    with pytest.raises(HoldfastError, match="rack_cb returned int"):
        resolve({"rack_cb": lambda: 7}, {})
    with pytest.raises(HoldfastError, match="rack_cb is not callable"):
        resolve({"rack_cb": "zone-a"}, {})


def test_the_environment_says_whom_auto_asks() -> None:
    environment = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
        "GCE_METADATA_HOST": "127.0.0.1:2",
        "HOLDFAST_AZURE_METADATA_ENDPOINT": "http://127.0.0.1:3",
        "HOLDFAST_POD_LABELS": "/labels",
        "KUBERNETES_SERVICE_HOST": "::1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "NODE_NAME": "node-7",
    }
    found = places(environment)
    assert (found.aws, found.google, found.azure) == ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3")
    assert (found.pod_labels, found.kubernetes_api, found.node_name) == ("/labels", "https://[::1]:6443", "node-7")
    assert places({"AWS_EC2_METADATA_DISABLED": "true"}).aws is None
    assert places({}).aws == places({}).google == "http://169.254.169.254", "link-local: no name is looked up"


# -- auto


@pytest.mark.parametrize(
    ("cloud", "answer", "zone"),
    [("aws", aws, "eu-west-1b"), ("google", google, "us-central1-a"), ("azure", azure, "westeurope-2")],
)
def test_each_cloud_is_asked_the_way_it_wants_to_be_asked(cloud: str, answer: Answer, zone: str) -> None:
    with StandIn(answer) as service:
        assert ask(replace(NOWHERE, **{cloud: service.url})) == zone


def test_on_one_address_the_headers_tell_the_clouds_apart() -> None:
    with StandIn(aws) as service:
        assert ask(replace(NOWHERE, aws=service.url, google=service.url, azure=service.url)) == "eu-west-1b"


def test_a_pod_reads_its_zone_from_the_labels_that_kubernetes_copied(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('app="billing"\ntopology.kubernetes.io/region="eu"\ntopology.kubernetes.io/zone="eu-1c"\n')
    assert ask(replace(NOWHERE, pod_labels=str(labels))) == "eu-1c"


def test_a_pod_that_may_asks_the_api_for_its_node(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("account-token\n")

    def api(_method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        assert headers["authorization"] == "Bearer account-token"
        assert path == "/api/v1/nodes/node-7"
        return 200, json.dumps({"metadata": {"labels": {"topology.kubernetes.io/zone": "zone-k"}}})

    with StandIn(api) as service:
        whom = replace(NOWHERE, kubernetes_api=service.url, node_name="node-7", service_account=str(tmp_path))
        assert ask(whom) == "zone-k"


@pytest.fixture
def mute() -> Iterator[str]:
    """A service that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_one_that_knows_is_enough_and_the_silent_ones_cost_nothing(mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack, "LIMIT_S", 30.0)
    with StandIn(google) as service:
        began = time.monotonic()
        assert ask(replace(NOWHERE, aws=mute, google=service.url, azure=mute)) == "us-central1-a"
        assert time.monotonic() - began < 25, "it did not wait for the mute ones"


def test_where_nobody_answers_there_is_no_rack_and_one_warning(mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rack.LIMIT_S == 2.0
    monkeypatch.setattr(rack, "LIMIT_S", 0.2)
    with StandIn(lambda *_: (404, "")) as service:
        whom = replace(NOWHERE, aws=mute, google=service.url)
        with pytest.warns(PitfallWarning, match="client.rack=auto found no rack") as told:
            assert ask(whom) is None
        assert "Google: it answered 404" in str(told[0].message)
        assert "AWS: " in str(told[0].message)
        with no_warning():
            assert ask(whom) is None, "asked once a process, and warned once"


def test_a_page_of_somebody_elses_is_no_rack() -> None:
    """A captive portal answers everything with 200 and a page."""
    portal = StandIn(lambda *_: (200, "<html>please log in</html>"))
    with portal as service, pytest.warns(PitfallWarning, match="not the name of a zone"):
        assert ask(replace(NOWHERE, google=service.url)) is None


def test_a_token_of_the_service_account_is_not_in_the_warning(tmp_path: Path) -> None:
    """http.client quotes a header that it can't send: a token with a line break in it would be in the warning."""
    (tmp_path / "token").write_text("sesame\nopen")
    whom = replace(NOWHERE, kubernetes_api="http://127.0.0.1:9", node_name="n", service_account=str(tmp_path))
    with pytest.warns(PitfallWarning) as told:
        assert ask(whom) is None
    assert "sesame" not in str(told[0].message)


# -- where it goes


def test_auto_reaches_the_subscription_and_librdkafka(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def remember(settings: dict[str, Any], **more: Any) -> Any:
        given.append(settings)
        return real(settings, **more)

    real = cimpl.Consumer
    monkeypatch.setattr(cimpl, "Consumer", remember)
    with StandIn(aws) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        monkeypatch.setenv("GCE_METADATA_HOST", service.url.removeprefix("http://"))
        monkeypatch.setenv("HOLDFAST_AZURE_METADATA_ENDPOINT", service.url)
        group = f"racked-{topic}"
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.rack": "auto"}
        with holdfast.Consumer(settings) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(0.05)
            (member,) = broker.group(group).members
            assert decode_subscription(member.metadata).rack == "eu-west-1b"
    assert [settings["client.rack"] for settings in given] == ["eu-west-1b"]


def test_without_a_rack_librdkafka_is_told_of_none() -> None:
    parsed = config.parse({"group.id": "g", "bootstrap.servers": "127.0.0.1:1", "client.rack": "south"}, {})
    assert parsed.rack == parsed.librdkafka()["client.rack"] == "south"
    unset = config.parse({"group.id": "g", "bootstrap.servers": "127.0.0.1:1"}, {})
    assert "client.rack" not in unset.librdkafka()


def test_records_are_fetched_from_the_replica_in_the_consumers_own_rack() -> None:
    """KIP-392: the leader is in another rack, and names the follower that is nearer."""
    with Broker(racks=("north", "south")) as broker:
        broker.topics.create("orders", assignments=[[0, 1]])  # led from the north
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(10):
            producer.produce("orders", b"x")
        assert producer.flush(PATIENCE_S) == 0
        asked: list[int] = []
        broker.faults.call(Api.FETCH, lambda exchange: asked.append(exchange.client.node_id))
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nearby",
            "auto.offset.reset": "earliest",
            "rack_cb": lambda: "south",
            "holdfast.watchdog": False,
        }
        with holdfast.Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            seen, deadline = 0, time.monotonic() + PATIENCE_S
            while seen < 10:
                assert time.monotonic() < deadline
                message = consumer.poll(0.05)
                seen += message is not None and message.error() is None
        assert asked[0] == 0 and set(asked[1:]) == {1}, "the leader was asked once, and sent us next door"
