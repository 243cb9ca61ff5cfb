"""`holdfast run -- COMMAND`: drained before it is stopped, killed when it must be, restarted when it fails."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from cli_world import Commands, Ended, end, fresh

from holdfast.testing import Broker
from patience import PATIENCE_S, wait_for

CONSUMER = """
import sys
import holdfast
consumer = holdfast.Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 200, **({"group.instance.id": sys.argv[4]} if len(sys.argv) > 4 else {}),
})
consumer.subscribe([sys.argv[3]], on_assign=lambda c, partitions: print("assigned", len(partitions), flush=True))
while True:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        print("record", message.partition(), message.offset(), flush=True)
"""

HUNG = CONSUMER.replace('print("assigned", len(partitions), flush=True)', "hang(len(partitions))").replace(
    "import holdfast", "import holdfast, time\ndef hang(n):\n    print('assigned', n, flush=True); time.sleep(60)"
)
"""The same, hanging in its callback."""


def events(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]


def names(ended: Ended) -> list[str]:
    return [one["event"] for one in events(ended)]


def python(code: str, *args: str) -> list[str]:
    return ["--", sys.executable, "-c", code, *args]


def read_until(process: subprocess.Popen[bytes], word: bytes) -> bytes:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError(f"it ended before it said {word!r}")


# -- a plain process


def test_the_exit_code_is_the_processs_own(commands: Commands) -> None:
    ended = end(commands.start("run", *python("import sys; print('hello'); sys.exit(3)")))
    assert (ended.code, ended.lines()) == (3, ["hello"])
    started, over = ended.err.splitlines()
    assert started.startswith(f"holdfast run: started {Path(sys.executable).name} (pid ")
    assert "hello" not in started, "arguments may hold secrets"
    assert over == "holdfast run: ended with code 3"


@pytest.mark.slow
def test_a_process_that_dies_of_a_signal_ends_as_a_shell_would_tell_it(commands: Commands) -> None:
    ended = end(commands.start("run", *python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")))
    assert ended.code == 128 + signal.SIGKILL


def test_sigterm_reaches_a_process_without_consumers_at_once(commands: Commands) -> None:
    running = commands.start("run", "-o", "json", *python("import time; print('up', flush=True); time.sleep(60)"))
    read_until(running, b"up")
    running.send_signal(signal.SIGTERM)
    ended = end(running)
    assert ended.code == 128 + signal.SIGTERM
    assert names(ended) == ["started", "signalled", "stopping", "ended"]
    assert events(ended)[2]["why"] == "it has no holdfast consumers: there is nothing to drain"


def test_a_process_that_does_not_end_is_killed_when_its_grace_is_over(commands: Commands) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    running = commands.start("run", "-o", "json", "--grace", "0.2", *python(stubborn))
    read_until(running, b"up")
    running.send_signal(signal.SIGTERM)
    ended = end(running)
    assert ended.code == 128 + signal.SIGKILL
    assert names(ended) == ["started", "signalled", "stopping", "killed", "ended"]


@pytest.mark.slow
def test_what_the_process_started_ends_with_it(commands: Commands, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(note)!r}, 'w').write(str(child.pid))"
    )
    assert end(commands.start("run", *python(parent))).code == 0
    pid = int(note.read_text())
    wait_for(lambda: not _alive(pid), "the grandchild ends")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_other_signals_are_passed_on(commands: Commands) -> None:
    listening = (
        "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9)); print('up', flush=True);"
        "time.sleep(60)"
    )
    running = commands.start("run", *python(listening))
    read_until(running, b"up")
    running.send_signal(signal.SIGUSR1)
    assert end(running).code == 9


# -- restarts


@pytest.mark.slow
def test_a_process_that_fails_is_restarted_until_it_is_well(commands: Commands, tmp_path: Path) -> None:
    marker = tmp_path / "failed-once"
    code = (
        f"import pathlib, sys; marker = pathlib.Path({str(marker)!r}); seen = marker.exists(); marker.touch();"
        "sys.exit(0 if seen else 5)"
    )
    ended = end(commands.start("run", "-o", "json", "--restart", "on-failure", *python(code)))
    assert ended.code == 0
    assert names(ended) == ["started", "ended", "restarting", "started", "ended"]
    assert events(ended)[2] == {"event": "restarting", "restart": 1, "wait_s": 1.0}


@pytest.mark.slow
def test_a_process_that_keeps_failing_is_given_up(commands: Commands) -> None:
    ended = end(
        commands.start(
            "run", "-o", "json", "--restart", "always", "--max-restarts", "1", *python("raise SystemExit(4)")
        )
    )
    assert ended.code == 4
    assert names(ended) == ["started", "ended", "restarting", "started", "ended", "given-up"]


@pytest.mark.slow
def test_sigterm_in_the_pause_before_a_restart_ends_the_run(commands: Commands) -> None:
    running = commands.start("run", "--restart", "on-failure", *python("print('bye', flush=True); raise SystemExit(4)"))
    read_until(running, b"bye")
    time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    assert end(running).code == 4


# -- a process with consumers


@pytest.fixture
def topic(broker: Broker) -> str:
    name = fresh("work")
    broker.topics.create(name, 3)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30):
        producer.produce(name, b"x", partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.mark.slow
def test_sigterm_drains_the_consumers_before_the_process_hears_of_it(
    commands: Commands, broker: Broker, topic: str
) -> None:
    """An unmodified program, which would die of the signal: it hands over first, and has committed what it did."""
    group = fresh("drained")
    running = commands.start("run", "-o", "json", *python(CONSUMER, broker.bootstrap, group, topic))
    read_until(running, b"assigned 3")
    running.send_signal(signal.SIGTERM)
    ended = end(running)
    assert ended.code == 128 + signal.SIGTERM
    assert names(ended) == ["started", "signalled", "draining", "drained", "stopping", "ended"]
    assert broker.group(group).members == (), "it left by itself; nobody waits for a session timeout"
    with ck_consumer(broker, group) as next_one:
        committed = next_one.committed([ck.TopicPartition(topic, p) for p in range(3)], timeout=PATIENCE_S)
    done = {(int(p), int(o)) for word, p, o in (line.split() for line in ended.lines() if line.startswith("record"))}
    for partition in committed:
        seen = [offset for number, offset in done if number == partition.partition]
        assert partition.offset == max(seen) + 1 if seen else partition.offset < 0


class ck_consumer:
    def __init__(self, broker: Broker, group: str) -> None:
        self._consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


@pytest.mark.slow
def test_a_prestop_hook_drains_a_static_member_too_and_sigterm_then_finds_it_done(
    commands: Commands, broker: Broker, topic: str, tmp_path: Path
) -> None:
    group, control = fresh("hooked"), str(tmp_path / "control")
    running = commands.start(
        "run", "-o", "json", "--control", control, *python(CONSUMER, broker.bootstrap, group, topic, "pod-0")
    )
    read_until(running, b"assigned 3")
    assert [one.instance_id for one in broker.group(group).members] == ["pod-0"]
    assert commands.run("run", "--drain", "--control", control).code == 0
    assert broker.group(group).members == ()
    assert running.poll() is None, "it runs until it is told to end"
    running.send_signal(signal.SIGTERM)
    ended = end(running)
    assert names(ended) == ["started", "draining", "drained", "signalled", "stopping", "ended"]
    assert not Path(control).exists()


@pytest.mark.slow
def test_a_drain_that_takes_too_long_is_not_waited_for(commands: Commands, broker: Broker, topic: str) -> None:
    """A program that hangs makes no calls: its consumer can't hand over, and the end must come all the same."""
    running = commands.start(
        "run", "-o", "json", "--drain-timeout", "0.3", *python(HUNG, broker.bootstrap, fresh("hung"), topic)
    )
    read_until(running, b"assigned 3")
    running.send_signal(signal.SIGTERM)
    ended = end(running)
    assert names(ended) == ["started", "signalled", "draining", "drain-timed-out", "stopping", "ended"]


@pytest.mark.slow
def test_a_second_sigterm_does_not_wait_for_the_drain(commands: Commands, broker: Broker, topic: str) -> None:
    running = commands.start("run", "-o", "json", *python(HUNG, broker.bootstrap, fresh("hung"), topic))
    read_until(running, b"assigned 3")
    running.send_signal(signal.SIGTERM)
    assert running.stderr is not None
    for line in running.stderr:
        if json.loads(line)["event"] == "draining":
            break
    running.send_signal(signal.SIGINT)
    ended = end(running)
    assert names(ended) == ["signalled", "stopping", "ended"]
    assert events(ended)[1]["why"] == "asked twice"


@pytest.mark.slow
def test_the_process_does_not_outlive_a_supervisor_that_was_killed(commands: Commands) -> None:
    running = commands.start("run", *python("import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"))
    pid = int(read_until(running, b"pid").split()[1])
    running.kill()
    wait_for(lambda: not _alive(pid), "it gets a SIGTERM from the kernel")


# -- wrong use, and strangers


def test_wrong_use_is_one_line_and_code_2(commands: Commands) -> None:
    assert commands.run("run").code == 2
    assert commands.run("run", "--drain").code == 2
    missing = commands.run("run", "--", "/no/such/program")
    assert missing.code == 1 and "COMMAND_NOT_STARTED" in missing.err
    nobody = commands.run("run", "--drain", "--control", "/nonexistent/socket")
    assert nobody.code == 1 and "NO_SUPERVISOR" in nobody.err


@pytest.mark.slow
def test_a_socket_left_behind_is_taken_over_and_one_in_use_is_not(commands: Commands, tmp_path: Path) -> None:
    control = str(tmp_path / "control")
    first = commands.start("run", "--control", control, *python("import time; print('up', flush=True); time.sleep(60)"))
    read_until(first, b"up")
    second = end(commands.start("run", "--control", control, *python("pass")))
    assert second.code == 1 and "another holdfast run listens" in second.err
    assert oct(Path(control).stat().st_mode & 0o777) == "0o600"
    first.kill()
    first.wait()
    assert Path(control).exists()
    assert end(commands.start("run", "--control", control, *python("pass"))).code == 0


@pytest.mark.slow
def test_what_a_stranger_says_on_the_socket_is_ignored(commands: Commands, tmp_path: Path) -> None:
    control = str(tmp_path / "control")
    running = commands.start(
        "run", "--control", control, *python("import time; print('up', flush=True); time.sleep(60)")
    )
    read_until(running, b"up")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(control)
        stranger.sendall(b'\xff\xfe\n[1]\n{}\n{"say": 7}\n' + b"x" * 20_000)
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b"", "a line without end is hung up on"
    assert commands.run("run", "--drain", "--control", control).code == 0
    running.send_signal(signal.SIGTERM)
    assert end(running).code == 128 + signal.SIGTERM
