"""`holdfast broker` on the command line: the ready line, wrong use, users, and a clean end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from typer.testing import CliRunner

from holdfast.broker.security.users import load_users
from holdfast.cli.broker import app
from holdfast.model import HoldfastError


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def run(*args: str, stdin: str = "") -> Ended:
    """A command that ends by itself, in this process: starting one takes ten times as long as what it does."""
    result = CliRunner().invoke(app, list(args), input=stdin, prog_name="holdfast broker")
    if isinstance(result.exception, HoldfastError):
        return Ended(1, result.stdout, f"{result.stderr}holdfast: {result.exception}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def test_the_ready_line_says_where_and_who_and_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as broker:
        assert broker.ready == {
            "bootstrap": f"127.0.0.1:{broker.port}",
            "host": "127.0.0.1",
            "pid": broker.pid,
            "port": broker.port,
        }
        assert broker.port > 0

        assert broker.stop() == 0
    assert (tmp_path / "data" / "clean").exists()


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path), "--listen", "127.0.0.1:0"):
        refused = run("--data", str(tmp_path), "--listen", "127.0.0.1:0")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "DATA_FOLDER_IN_USE" in refused.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with BrokerProcess("--memory", "--listen", "127.0.0.1:0") as broker:
        refused = run("--memory", "--listen", f"127.0.0.1:{broker.port}")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "CANNOT_LISTEN" in refused.stderr


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--memory", "--data", "x"],
        ["--memory", "--listen", "9092"],
        ["--memory", "--listen", "localhost:"],
        ["--memory", "--listen", "localhost:99999"],
        ["--memory", "--partitions", "0"],
        ["--memory", "--flush", "sometimes"],
        ["--no-such-option"],
    ],
)
def test_wrong_use_ends_with_2_and_says_why(args: list[str]) -> None:
    refused = run(*args)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert ("Error" in refused.stderr) or refused.stderr.startswith("holdfast: ")


def test_an_exposed_broker_is_refused_unless_one_insists() -> None:
    refused = run("--memory", "--listen", "0.0.0.0:0")

    assert refused.returncode == 1
    assert "EXPOSED_WITHOUT_PROTECTION" in refused.stderr
    with BrokerProcess("--memory", "--listen", "0.0.0.0:0", "--insecure", "--advertise", "127.0.0.1") as broker:
        assert broker.ready["host"] == "127.0.0.1"


def test_listening_everywhere_needs_an_address_to_tell_clients() -> None:
    refused = run("--memory", "--listen", "0.0.0.0:0", "--insecure")

    assert refused.returncode == 1
    assert "ADVERTISE_NEEDED" in refused.stderr


def test_an_ipv6_address_is_written_in_brackets_both_ways() -> None:
    with BrokerProcess("--memory", "--listen", "[::1]:0") as broker:
        assert broker.bootstrap == f"[::1]:{broker.port}"
        with socket.create_connection(("::1", broker.port), timeout=20):
            pass


def test_users_are_added_listed_changed_and_removed(tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")

    added = run(
        "user", "add", "alice", "--users", str(users), "--allow", "read:topic:a*", "--password-file", str(secret)
    )
    assert (added.returncode, added.stderr) == (0, "")
    assert run("user", "add", "bob", "--users", str(users), "--allow", "all", stdin="wonderland\n").returncode == 0
    listed = run("user", "list", "--users", str(users), "-o", "json")
    assert json.loads(listed.stdout) == {"alice": ["read:topic:a*"], "bob": ["all"]}
    assert "bob  all" in run("user", "list", "--users", str(users)).stdout
    assert run("user", "remove", "alice", "--users", str(users)).returncode == 0
    assert list(load_users(users).by_name) == ["bob"]
    assert run("user", "remove", "alice", "--users", str(users)).returncode == 1
    wrong = run("user", "add", "eve", "--users", str(users), "--allow", "fly", stdin="x\n")
    assert wrong.returncode == 1 and "RULE_INVALID" in wrong.stderr
    assert users.stat().st_mode & 0o777 == 0o600


def test_a_users_file_without_users_does_not_leave_the_broker_open(tmp_path: Path) -> None:
    refused = run("--memory", "--listen", "127.0.0.1:0", "--users", str(tmp_path / "a-typing-error.json"))

    assert refused.returncode == 1
    assert "NO_USERS" in refused.stderr


def test_a_broker_with_users_asks_for_a_login(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    users = tmp_path / "users.json"
    run("user", "add", "alice", "--users", str(users), "--allow", "all", stdin="open sesame\n")
    with BrokerProcess("--memory", "--listen", "127.0.0.1:0", "--users", str(users)) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": "open sesame",
            }
        )
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0


def test_a_broker_imports_nothing_heavy() -> None:
    """A broker that serves is small and quick to start because numpy, confluent-kafka and the like stay out of it."""
    program = (
        "import sys, holdfast.cli.broker, holdfast.broker.apis as apis\n"
        "for api in apis.SERVED: apis.module(api)\n"
        "print(','.join(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    heavy = {"numpy", "numba", "confluent_kafka", "pyarrow", "pyspark", "cramjam", "hypothesis", "kafka", "aiokafka"}
    assert not heavy & set(loaded.stdout.strip().split(","))


def test_an_idle_broker_is_small(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as broker:
        pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])

    assert pages * os.sysconf("SC_PAGE_SIZE") < 100 * 1024 * 1024, "it takes about 40 MB"
