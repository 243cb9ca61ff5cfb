"""The watchdog's notes and its life: it speaks for one member, truthfully, and for nobody else."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from committed import LONG_MS, reached
from polling import COUNTER, take

import holdfast
import inside
from holdfast.assign import by_name
from holdfast.client.watchdog.child import MAX_SLOTS, REASON, SLOT, Ears, leave_frame, poke, read_note, read_positions
from holdfast.client.watchdog.guard import CHILD, Watchdog
from holdfast.doctor.causes import WATCHDOG, of_leave
from holdfast.group import member as mb
from holdfast.model import Membership, RebalanceProtocol, TopicPartition
from holdfast.net.security import Security
from holdfast.testing import Broker
from holdfast.wire.codec import decode_request
from inside import plane_of, watchdog_of
from patience import PATIENCE_S

SESSION_MS = 300_000
"""So long that nobody but the watchdog can have left."""


def settings(broker: Broker, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "auto.commit.interval.ms": LONG_MS,
    }


def epochs(broker: Broker, group: str, topic: str) -> dict[int, int | None]:
    """The leader epochs that the group's offsets were committed with."""
    looker = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        found = looker.committed([ck.TopicPartition(topic, number) for number in range(3)], PATIENCE_S)
        return {one.partition: one.leader_epoch for one in found}
    finally:
        looker.close()


def wait_until_empty(broker: Broker, group: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while broker.group(group).members:
        assert time.monotonic() < deadline, "nobody left in the member's name"
        time.sleep(0.05)


def test_a_watchdog_that_can_not_be_started_leaves_no_memory_behind(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: where no process could be started (a limit of the container, say), each try kept a descriptor. Cause:
    the memory's was closed only after a start."""

    def memories() -> int:
        return sum("holdfast-watchdog" in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())

    before = memories()
    with holdfast.Consumer(settings(broker, f"g-{next(COUNTER)}")) as consumer:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/nowhere/python")
            for _ in range(3):
                consumer.subscribe([topic])
        assert memories() == before
        consumer.subscribe([topic])
        take(consumer, 15)


def test_a_slot_is_not_used_again_before_the_note_is_written() -> None:
    """Symptom: a member killed in the middle of a round committed one partition at another's offset. Cause: the slot of
    what it had given up went to what it got, and the note of before still named the old one for it."""
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    config = mb.MemberConfig(
        group="g", assignors=(by_name("cooperative-sticky"),), protocol=RebalanceProtocol.COOPERATIVE
    )
    state = mb.MemberState(config=config, membership=Membership("m-1", 1))
    watchdog = Watchdog(Security())

    def would_commit() -> dict[tuple[str, int], int]:
        note = read_note(watchdog.memory)
        assert note is not None
        found = read_positions(watchdog.memory, note["slots"])
        return {where: offset for where, (offset, _) in found.items()}

    try:
        watchdog.own([first])
        watchdog.position(first, 7)
        watchdog.note(state, ("127.0.0.1", 1), commits=True)
        assert would_commit() == {("orders", 0): 7}

        watchdog.own([second])
        watchdog.position(second, 99)
        assert would_commit() == {}, "killed here, it must not commit orders-0 at 99"

        watchdog.note(state, ("127.0.0.1", 1), commits=True)
        assert would_commit() == {("orders", 1): 99}
        watchdog.own([first, second])
        watchdog.note(state, ("127.0.0.1", 1), commits=True)
        watchdog.own([TopicPartition("all", number) for number in range(MAX_SLOTS - 2)] + [first, second])
        assert sorted(watchdog.slots.values()) == list(range(MAX_SLOTS)), "none was lost, none is used twice"
    finally:
        watchdog.dismiss()


def test_an_offset_never_has_another_ones_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit with the epoch of an older leader makes the next reader believe that records were lost, and go back.
    Offset and epoch are two words, and a kill falls between them: then the offset must have its own epoch, or none."""
    where = TopicPartition("orders", 0)
    watchdog = Watchdog(Security())

    class Killed:
        """Writes, and is killed then."""

        @staticmethod
        def pack_into(memory: Any, at: int, offset: int) -> None:
            SLOT.pack_into(memory, at, offset)
            raise KeyboardInterrupt

    def would_commit() -> tuple[int, int]:
        (found,) = read_positions(watchdog.memory, [(watchdog.slots[where], "orders", 0)]).values()
        return found

    try:
        watchdog.own([where])
        watchdog.position(where, 7, 1)
        watchdog.position(where, 8, 1)
        assert would_commit() == (8, 1)
        with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
            killing.setattr("holdfast.client.watchdog.guard.SLOT", Killed)
            watchdog.position(where, 9, 2)
        assert would_commit() == (9, -1)
        watchdog.position(where, 10, 2)
        assert would_commit() == (10, 2)
        watchdog.position(where, 3)  # by an offset that came without one
        assert would_commit() == (3, -1)
    finally:
        watchdog.dismiss()


HALF_A_START = [b"", struct.pack("=I", 100)[:2], struct.pack("=I", 100) + b'{"memory": 1']


def child_of(pid: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-I", "-S", str(CHILD), str(pid)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("heard", HALF_A_START)
def test_a_watchdog_whose_member_dies_while_it_starts_it_ends(heard: bytes) -> None:
    """Symptom: a watchdog took a whole core for ever. Cause: its member had died while it sent the first message, and
    the end of the pipe read as nothing, again and again."""
    child = child_of(os.getpid())
    assert child.stdin is not None
    try:
        child.stdin.write(heard)
        child.stdin.close()
        assert child.wait(60) != 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("heard", HALF_A_START)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_watchdog_ends_with_its_member_even_if_a_copy_of_it_keeps_the_pipe_open(heard: bytes, when: str) -> None:
    """Symptom: watchdogs of processes that had forked lived on for hours. Cause: whoever was killed before its watchdog
    had read who it is was never looked for, and the forked copy kept the pipe open. Here the test holds the pipe."""
    member = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    if when == "before":
        member.kill()
        member.wait()
    child = child_of(member.pid)
    assert child.stdin is not None and member.stdin is not None
    try:
        child.stdin.write(heard)
        child.stdin.flush()
        if when == "after":
            time.sleep(0.2)  # it waits for the rest of the message, or will: both must end
            member.kill()
            member.wait()
        assert child.wait(PATIENCE_S) == 1
    finally:
        for process in (child, member):
            assert process.stdin is not None
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()


def test_where_the_system_does_not_tell_a_watchdog_looks_for_its_member_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> int:
        raise PermissionError("the sandbox does not allow it")

    monkeypatch.setattr(os, "pidfd_open", refused)
    monkeypatch.setattr("holdfast.client.watchdog.child.LOOK_AGAIN_MS", 10)
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    member = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert member.stdin is not None
    try:
        ears = Ears(member.pid)
        os.write(writing, struct.pack("=I", 2) + b"{}")
        assert ears.message() == b"{}"
        member.kill()
        member.wait()
        os.write(writing, b"x")
        assert ears.read(1) == b"x", "its last message counts"
        assert ears.read(1) == b""
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, reading, writing):
            os.close(descriptor)
        member.kill()
        member.wait()
        member.stdin.close()


def test_whoever_only_asks_has_no_watchdog(broker: Broker, topic: str) -> None:
    consumer = holdfast.Consumer(settings(broker, f"asks-{next(COUNTER)}"))
    consumer.committed([ck.TopicPartition(topic, 0)], timeout=PATIENCE_S)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    take(consumer, 5)
    consumer.commit(asynchronous=False)
    assert watchdog_of(consumer) is None
    consumer.subscribe([topic])
    assert watchdog_of(consumer) is not None
    consumer.close()


FORKS = """
import os, signal, sys, holdfast
from inside import watchdog_of
consumer = holdfast.Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 300000})
consumer.subscribe([sys.argv[3]])
while not consumer.assignment():
    consumer.poll(0.1)
consumer.poll(0.5)
copy = os.fork()
if copy == 0:
    consumer.close()
    os._exit(0)
assert os.waitpid(copy, 0)[1] == 0
assert watchdog_of(consumer).running, "the watchdog is gone"
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_closing_a_forked_copy_leaves_the_watchdog_to_its_member(broker: Broker, topic: str) -> None:
    """Symptom: after a fork whose child closed its copy of the consumer, a kill of the parent was noticed only when its
    session ended. Cause: the copy said goodbye to the parent's watchdog, and waited ten seconds for a thread that a
    fork does not copy. Rule: a copy is closed by forgetting it."""
    group = f"forked-{next(COUNTER)}"
    command = [sys.executable, "-c", FORKS, broker.bootstrap, group, topic]
    env = {**os.environ, "PYTHONPATH": str(Path(inside.__file__).parent)}
    done = subprocess.run(command, timeout=120, check=False, env=env)
    assert done.returncode == -9
    wait_until_empty(broker, group)


@pytest.mark.parametrize("slow", [False, True], ids=["ready", "still-starting"])
def test_a_close_that_is_interrupted_is_finished_by_the_watchdog(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    """Symptom: Ctrl-C during close() left the member in its group until the session ended, and its work uncommitted.
    Cause: the watchdog was told that the close was clean; and one that was still starting, on a busy machine, died of
    telling a member that was gone that it is ready. Rule: whoever could not leave is spoken for."""
    group = f"interrupted-{next(COUNTER)}"
    if slow:
        start = subprocess.Popen

        def stopped(*args: Any, **options: Any) -> Any:
            process = start(*args, **options)
            os.kill(process.pid, signal.SIGSTOP)
            return process

        monkeypatch.setattr("holdfast.client.watchdog.guard.subprocess.Popen", stopped)
    consumer = holdfast.Consumer(settings(broker, group))
    consumer.subscribe([topic])
    take(consumer, 15)
    plane, watchdog = plane_of(consumer), watchdog_of(consumer)
    deadline = time.monotonic() + PATIENCE_S
    while len(plane.state.owned) < 3:
        assert time.monotonic() < deadline
        consumer.poll(0.01)
    consumer.poll(0)  # what was returned counts as done

    feed = plane.feed

    def interrupt(event: mb.Event) -> None:
        feed(event)
        raise KeyboardInterrupt

    monkeypatch.setattr(plane, "feed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    if slow:
        os.kill(watchdog.pid, signal.SIGCONT)
    wait_until_empty(broker, group)
    assert reached(broker, group, topic) == {0: 5, 1: 5, 2: 5}
    assert epochs(broker, group, topic) == {0: 0, 1: 0, 2: 0}, "each with the leader epoch of its last record"
    consumer.close()


def test_the_others_are_poked_by_whichever_kind_of_address_they_have() -> None:
    """The farewell had one IPv4 socket: who listens on IPv6 heard of the death on its next heartbeat only. One that
    can't be reached keeps no other from being told."""
    ears = []
    for family, host in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")):
        ear = socket.socket(family, socket.SOCK_DGRAM)
        ear.bind((host, 0))
        ear.settimeout(PATIENCE_S)
        ears.append(ear)
    poke([("no address", 1), *(ear.getsockname()[:2] for ear in ears)], b"word")
    for ear in ears:
        assert ear.recv(64) == b"word"
        ear.close()


@pytest.mark.parametrize("instance", [None, "one", "i" * 200])
@pytest.mark.parametrize("takes_reason", [True, False])
def test_its_leave_says_why_to_a_coordinator_that_takes_a_reason(takes_reason: bool, instance: str | None) -> None:
    """The bytes are made by hand, so that the watchdog stays small; our codec reads them."""
    who = {"group": "g", "member": "m-1", "instance": instance, "takes_reason": takes_reason}
    request = decode_request(leave_frame(who)[4:])
    (leaver,) = request.body.members
    assert (request.body.group_id, leaver.member_id, leaver.group_instance_id) == ("g", "m-1", instance)
    assert getattr(leaver, "reason", None) == (REASON if takes_reason else None)


KILLED = """
import os, signal, sys, holdfast
consumer = holdfast.Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 300000})
consumer.subscribe(["t"])
while not consumer.assignment():
    consumer.poll(0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_operator_reads_that_the_process_died(tmp_path: Path) -> None:
    """Symptom: a member killed by the kernel "left: no reason given", as one that was closed by an old client. Its
    watchdog knew better, and spoke a version of LeaveGroup without a reason."""
    with Broker(trace=tmp_path / "trace.jsonl") as broker:
        broker.topics.create("t", partitions=1)
        subprocess.run([sys.executable, "-c", KILLED, broker.bootstrap], check=False, timeout=PATIENCE_S)
        wait_until_empty(broker, "g")
    left = [line for line in (tmp_path / "trace.jsonl").read_text().splitlines() if '"member-left"' in line]
    assert len(left) == 1 and REASON in left[0]
    assert of_leave(REASON) == WATCHDOG, "and the doctor calls it so"


# -- where it can't be started


def no_process_to_spare(*_: Any, **__: Any) -> None:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize(
    ("what", "name", "value"),
    [
        (sys, "executable", ""),
        (sys, "executable", None),
        (sys, "executable", "/nowhere/bin/python3"),
        (sys, "executable", "/bin/sh"),
        (sys, "frozen", True),
        (subprocess, "Popen", no_process_to_spare),
    ],
    ids=["no interpreter", "null", "gone", "embedded", "frozen", "limit"],
)
def test_who_can_not_start_a_watchdog_is_a_member_without(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, what: Any, name: str, value: Any
) -> None:
    """Symptom: `subscribe` raised PermissionError, TypeError, FileNotFoundError or BlockingIOError, and there was no
    membership: in a program that embeds Python, after its environment was replaced under it, at a limit of processes.
    And a program that was frozen into one file was started a second time, in the watchdog's place.
    Rule: what is needed only after a kill must not keep anybody from working; but it is told."""
    with holdfast.Consumer(settings(broker, f"g-{next(COUNTER)}")) as consumer:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(what, name, value, raising=False)
            with pytest.warns(holdfast.PitfallWarning, match="can't be started"):
                consumer.subscribe([topic])
        assert len(take(consumer, 15)) == 15
        assert watchdog_of(consumer) is None


def test_a_program_that_ends_at_once_is_no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not left behind as a zombie, and no descriptor either."""
    started: list[Any] = []

    class EndsAtOnce(subprocess.Popen[bytes]):
        def __init__(self, _: Any, **options: Any) -> None:
            super().__init__(["/bin/true"], **options)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", EndsAtOnce)
    with pytest.raises(BrokenPipeError):
        Watchdog(Security())
    (process,) = started
    assert process.returncode == 0
    assert process.stdin.closed and process.stdout.closed
