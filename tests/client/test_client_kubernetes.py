"""The Kubernetes example keeps its own rules: ids, racks, and times that fit into each other."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import confluent_kafka as ck
import pytest
from unwarned import no_warning

from holdfast.client.config.settings import parse
from holdfast.model import RebalanceProtocol
from holdfast.testing import Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes"


@pytest.fixture(scope="module")
def items() -> dict[str, Any]:
    return {item["kind"]: item for item in json.loads((EXAMPLE / "statefulset.yaml").read_text())["items"]}


@pytest.fixture(scope="module")
def pod(items: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = items["StatefulSet"]["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kubernetes_consumer", EXAMPLE / "consumer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(container: dict[str, Any]) -> dict[str, str]:
    """What the pod order-processor-0 in zone a would see."""
    fields = {"metadata.name": "order-processor-0", "metadata.labels['topology.kubernetes.io/zone']": "zone-a"}
    return {
        one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in container["env"]
    }


def seconds_after(words: list[str], option: str) -> float:
    return float(words[words.index(option) + 1])


def test_the_instance_id_is_the_pods_name_and_only_a_stateful_set_keeps_that(
    items: dict[str, Any], container: dict[str, Any]
) -> None:
    assert "StatefulSet" in items and "Deployment" not in items
    stateful = items["StatefulSet"]
    assert stateful["spec"]["serviceName"] == items["Service"]["metadata"]["name"]
    assert items["Service"]["spec"]["clusterIP"] == "None"
    assert stateful["spec"]["selector"]["matchLabels"] == stateful["spec"]["template"]["metadata"]["labels"]
    sources = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert sources["KAFKA_GROUP_INSTANCE_ID"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    zone = "metadata.labels['topology.kubernetes.io/zone']"
    assert sources["KAFKA_CLIENT_RACK"] == {"fieldRef": {"fieldPath": zone}}


def test_the_pod_ends_only_after_the_hook_the_drain_and_the_grace(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    hook = container["lifecycle"]["preStop"]["exec"]["command"]
    run = container["command"]
    assert hook[:3] == ["holdfast", "run", "--drain"] and run[:2] == ["holdfast", "run"]
    needed = (
        seconds_after(hook, "--drain-timeout") + seconds_after(run, "--drain-timeout") + seconds_after(run, "--grace")
    )
    assert pod["terminationGracePeriodSeconds"] > needed


def test_hook_and_supervisor_find_each_other_where_the_pod_may_write(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    control = Path(environment(container)["HOLDFAST_CONTROL"])
    (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == str(control.parent)]
    assert "emptyDir" in next(one for one in pod["volumes"] if one["name"] == mount["name"])
    assert len(str(control)) < 100, "the path of a unix socket"


def test_its_configuration_is_one_that_holdfast_has_nothing_to_say_about(
    container: dict[str, Any], program: ModuleType, tmp_path: Path
) -> None:
    seen = environment(container)
    password = tmp_path / "password"
    password.write_text("hush\n")
    with no_warning():
        parsed = parse(program.settings({**seen, "KAFKA_PASSWORD_FILE": str(password)}), seen)
    assert (parsed.instance_id, parsed.rack) == ("order-processor-0", "zone-a")
    assert parsed.protocol is RebalanceProtocol.COOPERATIVE
    assert 3 * parsed.heartbeat_interval_ms <= parsed.session_timeout_ms < parsed.max_poll_interval_ms
    assert parsed.raw["sasl.password"] == "hush"
    assert not any("password" in name.lower() and "FILE" not in name for name in seen), "no secret in the environment"


def test_on_a_cluster_that_copies_no_zone_there_is_no_rack(container: dict[str, Any], program: ModuleType) -> None:
    seen = {**environment(container), "KAFKA_CLIENT_RACK": ""}
    assert parse(program.settings(seen), seen).rack is None


@pytest.mark.slow
def test_the_example_runs_as_the_manifest_runs_it(
    broker: Broker, topic: str, container: dict[str, Any], tmp_path: Path
) -> None:
    seen = environment(container) | {
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "KAFKA_GROUP_ID": f"pods-{topic}",
        "KAFKA_TOPICS": topic,
        "HOLDFAST_CONTROL": str(tmp_path / "control"),
    }
    words = {
        "holdfast": [sys.executable, "-c", "from holdfast.cli.main import main; main()"],
        "/app/consumer.py": [str(EXAMPLE / "consumer.py")],
    }
    words["python"] = [sys.executable]

    def command(given: list[str]) -> list[str]:
        return [word for one in given for word in words.get(one, [one])]

    pod = subprocess.Popen(
        command(container["command"]), env={**os.environ, **seen}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pod.stdout is not None
    for line in pod.stdout:
        if line == b"done 15\n":
            break
    hook = command(container["lifecycle"]["preStop"]["exec"]["command"])
    subprocess.run(hook, env={**os.environ, **seen}, check=True, timeout=60)
    assert broker.group(f"pods-{topic}").members == (), "the static member left, and nobody waits for its session"
    pod.send_signal(signal.SIGTERM)
    pod.communicate(timeout=60)
    assert pod.returncode == 0, "it ended in order"
    reader = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"pods-{topic}"})
    found = reader.committed([ck.TopicPartition(topic, number) for number in range(3)], timeout=20)
    reader.close()
    assert [one.offset for one in found] == [5, 5, 5]
