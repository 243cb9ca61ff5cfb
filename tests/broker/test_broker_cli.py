"""`holdfast broker` on the command line: the ready line, wrong use, users, and a clean end."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from certificates import make_certificates
from raw_client import RawClient
from typer.testing import CliRunner

from holdfast.broker.security.users import load_users
from holdfast.broker.storage.files import Lock, RealFiles
from holdfast.cli.broker import app
from holdfast.model import HoldfastError
from holdfast.wire.api import Api
from patience import PATIENCE_S


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def run(*args: str, stdin: str = "") -> Ended:
    """A command that ends by itself, in this process: starting one takes ten times as long as what it does. A broker
    that starts although it should not is stopped after a while, so that the test fails."""
    stop = threading.Timer(PATIENCE_S, os.kill, (os.getpid(), signal.SIGINT))
    stop.daemon = True
    stop.start()
    try:
        result = CliRunner().invoke(app, list(args), input=stdin, prog_name="holdfast broker")
    finally:
        stop.cancel()
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


def test_a_closed_terminal_ends_it_in_order(tmp_path: Path) -> None:
    """Symptom: who closed the terminal of a broker found its folder as after a crash. Cause: SIGHUP ended the process
    where it was."""
    with BrokerProcess("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as broker:
        assert broker.hang_up() == 0
    assert (tmp_path / "data" / "clean").exists()


def test_under_nohup_it_outlives_its_terminal(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; the process inherits it
    try:
        broker = BrokerProcess("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    finally:
        signal.signal(signal.SIGHUP, before)
    with broker:
        broker.send(signal.SIGHUP)
        with RawClient(broker) as client:
            assert client.ask(Api.API_VERSIONS, version=0).error_code == 0
        assert broker.stop() == 0


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
        ["--data", ""],
        ["--memory", "--advertise", ""],
        ["--memory", "--rack", ""],
        ["--memory", "--min-session-timeout-ms", "1800001"],
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


@pytest.mark.parametrize("host", ["kafka.example.org:9093", "http://kafka.example.org", "[::1]", "a b"])
def test_what_is_advertised_is_a_host_and_nothing_more(host: str) -> None:
    """Symptom: with `--advertise kafka.example.org:9093`, as Kafka's setting is written, the broker was ready, and no
    client ever got further than its first connection. Cause: the port became a part of the name."""
    refused = run("--memory", "--listen", "127.0.0.1:0", "--advertise", host)

    assert refused.returncode == 1
    assert "ADVERTISE_INVALID" in refused.stderr and "the host alone" in refused.stderr


def test_racks_beyond_the_last_port_are_refused() -> None:
    """Symptom: the second rack after port 65535 was ready on a port that nobody had asked for. Cause: 65536 is 0 to the
    system, and 0 takes any."""
    refused = run("--memory", "--listen", "127.0.0.1:65535", "--rack", "a", "--rack", "b")

    assert refused.returncode == 1
    assert "CANNOT_LISTEN" in refused.stderr and "65534 at most" in refused.stderr


def test_a_host_that_can_t_be_one_is_one_line() -> None:
    """It was a traceback of Python's codec for names."""
    refused = run("--memory", "--insecure", "--listen", "a..b:9092")

    assert refused.returncode == 1
    assert "CANNOT_LISTEN: a..b:9092 can't be listened on: no host can have this name" in refused.stderr


def test_the_folder_of_a_kafka_is_left_alone(tmp_path: Path) -> None:
    """Symptom: `--data` with a Kafka's own folder was ready, without topics, and that Kafka did not start any more: it
    takes every folder in its own for a partition."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    refused = run("--data", str(tmp_path), "--listen", "127.0.0.1:0")

    assert refused.returncode == 1
    assert "belongs to an Apache Kafka" in refused.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["meta.properties"]


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
    assert (added.returncode, added.stdout, added.stderr) == (0, "", "alice was added, and may: read:topic:a*\n")
    nothing = run("user", "add", "bob", "--users", str(users), stdin="wonderland\n")
    assert nothing.stderr == "bob was added, and may do nothing yet: add the user again with --allow.\n"
    assert run("user", "add", "bob", "--users", str(users), "--allow", "all", stdin="wonderland\n").returncode == 0
    listed = run("user", "list", "--users", str(users), "-o", "json")
    assert json.loads(listed.stdout) == {"alice": ["read:topic:a*"], "bob": ["all"]}
    assert "bob  all" in run("user", "list", "--users", str(users)).stdout
    assert run("user", "remove", "alice", "--users", str(users)).stderr == "alice was removed.\n"
    assert list(load_users(users).by_name) == ["bob"]
    assert run("user", "remove", "alice", "--users", str(users)).returncode == 1
    wrong = run("user", "add", "eve", "--users", str(users), "--allow", "fly", stdin="x\n")
    assert wrong.returncode == 1 and "RULE_INVALID" in wrong.stderr
    assert users.stat().st_mode & 0o777 == 0o600


def test_a_misspelt_users_file_is_not_taken_for_one_without_users(tmp_path: Path) -> None:
    """`user list --users users.jso` printed nothing and ended with 0."""
    for args in (["list"], ["remove", "alice"]):
        refused = run("user", *args, "--users", str(tmp_path / "users.jso"))
        assert refused.returncode == 1 and "There is no file" in refused.stderr


def test_a_users_file_without_users_does_not_leave_the_broker_open(tmp_path: Path) -> None:
    refused = run("--memory", "--listen", "127.0.0.1:0", "--users", str(tmp_path / "a-typing-error.json"))

    assert refused.returncode == 1
    assert "NO_USERS" in refused.stderr and "There is no file" in refused.stderr


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
        assert producer.flush(PATIENCE_S) == 0


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


@pytest.mark.parametrize("option", ["--tls-key", "--tls-client-ca"])
def test_tls_files_without_a_certificate_do_not_start_a_plaintext_broker(tmp_path: Path, option: str) -> None:
    """`--tls-key server.key` with --tls-cert forgotten started, said "ready", and spoke plaintext with everybody: the
    certificate alone turned TLS on. Whoever names a TLS file means TLS, so the broker does not start without it."""
    (tmp_path / "server.key").write_text("whatever is in it")

    refused = run("--memory", "--listen", "127.0.0.1:0", option, str(tmp_path / "server.key"))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "TLS_FILES_INVALID" in refused.stderr and option in refused.stderr and "--tls-cert" in refused.stderr


def test_a_tls_file_that_cant_be_used_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    """Swapped files were told as "[SSL] PEM lib (_ssl.c:3905)", a missing one without its name."""
    make_certificates(tmp_path)
    pem, key, other = (str(tmp_path / name) for name in ("server.pem", "server.key", "client.key"))
    absent = str(tmp_path / "absent.pem")

    def told(*args: str) -> str:
        refused = run("--memory", "--listen", "127.0.0.1:0", *args)
        assert refused.returncode == 1 and "TLS_FILES_INVALID" in refused.stderr
        return refused.stderr

    assert f"{absent} (--tls-cert) can't be read: No such file" in told("--tls-cert", absent, "--tls-key", key)
    assert f"{key} (--tls-cert) holds no certificate" in told("--tls-cert", key, "--tls-key", pem)
    assert f"{pem} (--tls-key) holds no private key" in told("--tls-cert", pem)
    assert "MISMATCH" in told("--tls-cert", pem, "--tls-key", other)
    assert f"{key} (--tls-client-ca) holds no certificate" in told(
        "--tls-cert", pem, "--tls-key", key, "--tls-client-ca", key
    )


def test_a_data_folder_that_is_none_or_not_ours_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were tracebacks of forty lines, where the docs promise one that says why and what to do."""
    file = tmp_path / "a-file"
    file.write_text("")
    refused = run("--data", str(file), "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert f"DATA_FOLDER_UNUSABLE: {file} can't be used as the data folder: it is not a folder" in refused.stderr

    def denied(self: RealFiles, path: str) -> Lock:
        raise PermissionError(errno.EACCES, "Permission denied", f"{tmp_path}/{path}")

    # Tests may run as root, whom no mode keeps out; so the system's answer is played.
    monkeypatch.setattr(RealFiles, "lock", denied)
    refused = run("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert f"Permission denied ({tmp_path}/lock)" in refused.stderr and "chown" in refused.stderr

    def full(self: RealFiles, path: str) -> Lock:
        raise OSError(errno.ENOSPC, "No space left on device", f"{tmp_path}/{path}")

    monkeypatch.setattr(RealFiles, "lock", full)
    refused = run("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "No space left on device" in refused.stderr and "Free some space" in refused.stderr
    assert "chown" not in refused.stderr


def test_a_folder_and_memory_at_once_are_told_apart_from_neither() -> None:
    assert "Give one of the two" in run("--memory", "--data", "x").stderr
    assert "Give --data or --memory" in run().stderr


def test_every_line_of_the_log_has_its_time_in_front(tmp_path: Path) -> None:
    """At night nobody can tell from a line without a time when it was written."""
    log = tmp_path / "log"
    with BrokerProcess("--memory", "--listen", "127.0.0.1:0", log=log) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S) as stranger:
            stranger.sendall(b"\xff\xff\xff\xff")
            assert stranger.recv(1) == b""
        assert broker.stop() == 0

    told = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z holdfast broker: 127\.0\.0\.1: connection closed: .*\n"
    assert re.fullmatch(told, log.read_text())
