"""The member's side of its watchdog: starts it, keeps its note and positions up to date, and ends it.

Both are in shared memory. The note (member, generation, coordinator) changes once a round and is rewritten as a whole,
under a sequence number. A position is eight bytes in a fixed slot. Its leader epoch is four more bytes, written only
when the epoch changes. Nothing here waits for the watchdog, except that a clean close waits for it to end.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.client.config.warning import warn
from holdfast.client.watchdog.child import (
    EPOCH,
    EPOCHS_AT,
    GOODBYE,
    LENGTH,
    LOGIN,
    MAX_SLOTS,
    MEMORY_SIZE,
    NO_EPOCH,
    NO_POSITION,
    SEQUENCE,
    SLOT,
    SLOTS_AT,
)
from holdfast.group.member import MemberState
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.config import client_config
from holdfast.net.security import Secret, Security

if TYPE_CHECKING:
    from holdfast.client.config.settings import ConsumerConfig

IN_DOUBT = -2
"""Marks an epoch whose write was interrupted, so that the next write repeats it. No real epoch has this value."""

CHILD = Path(__file__).with_name("child.py")
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def interpreter() -> str:
    """The Python to start a watchdog with. Raises OSError where there is none: in a program that embeds Python, or was
    frozen into one file, `sys.executable` is that program, and to start it would run the application a second time."""
    found = sys.executable or ""
    if getattr(sys, "frozen", False) or "py" not in Path(found).name.lower():
        raise OSError(f"there is no Python to start it with, sys.executable is {found!r}")
    return found


class Watchdog:
    """One watchdog for one member."""

    def __init__(self, security: Security, family: int = socket.AF_UNSPEC) -> None:
        """Raises OSError if it can't be started."""
        self.slots: dict[TopicPartition, int] = {}
        self._epochs = [NO_EPOCH] * MAX_SLOTS
        """The epoch last written to each slot."""
        self._early: dict[TopicPartition, tuple[int, int]] = {}
        """Positions of partitions that have no slot yet: records may be read before the machine counts the partition as
        owned."""
        self._giving = threading.Lock()
        self._free = list(range(MAX_SLOTS - 1, -1, -1))
        self._resting: list[int] = []
        """Slots that were given back, while the last written note still names them for their old partitions."""
        self._pid = os.getpid()
        self._sequence = 0
        self._informed: tuple[object, ...] = ()
        """What the last note was written from."""
        self._pipe = threading.Lock()
        start = {"package": str(PACKAGE_ROOT), "family": family, "tls": tls_settings(security), "sasl": _sasl(security)}
        memory_fd = os.memfd_create("holdfast-watchdog")
        try:
            os.ftruncate(memory_fd, MEMORY_SIZE)
            self.memory = mmap.mmap(memory_fd, MEMORY_SIZE)
            self._process = _started(memory_fd, start)
        finally:  # the mapping and the child have their own
            os.close(memory_fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """For tests: wait until the watchdog watches."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    # -- what it needs to know

    def inform(
        self, state: MemberState, coordinator: tuple[str, int] | None, *, commits: bool, takes_reason: bool = False
    ) -> None:
        """Rewrite the note if anything in it has changed. `takes_reason`: whether the coordinator can be told why we
        leave."""
        seen = (
            state.membership,
            state.owned,
            state.pokes.peers,
            state.pokes.token,
            state.lost,
            state.phase,
            coordinator,
            takes_reason,
        )
        if seen != self._informed:
            self._informed = seen
            self.own(state.owned)
            self.note(state, coordinator, commits=commits, takes_reason=takes_reason)

    def note(
        self, state: MemberState, coordinator: tuple[str, int] | None, *, commits: bool, takes_reason: bool = False
    ) -> None:
        """Write who we are now. With an empty member id the watchdog does nothing.

        A member with an id but without a generation is waiting in a round. It is noted too: if it died, the round would
        wait for it.
        """
        who: dict[str, Any] = {"member": ""}
        if coordinator is not None and state.membership.member_id and not state.lost:
            who = {
                "group": state.config.group,
                "member": state.membership.member_id,
                "generation": state.membership.generation,
                "instance": state.config.instance_id,
                "host": coordinator[0],
                "port": coordinator[1],
                "commits": commits and state.membership.joined,
                "takes_reason": takes_reason,
                "peers": [[peer.host, peer.port] for peer in state.pokes.peers if peer != state.config.endpoint],
                "token": state.pokes.token,
                "slots": [[slot, p.topic, p.partition] for p, slot in sorted(self.slots.items())],
            }
        data = json.dumps(who, separators=(",", ":")).encode()
        if len(data) > SLOTS_AT - 16:
            who["slots"] = []  # too many partitions for the note: the watchdog would leave without committing
            data = json.dumps(who, separators=(",", ":")).encode()
        self._sequence += 2
        SEQUENCE.pack_into(self.memory, 0, self._sequence - 1)
        LENGTH.pack_into(self.memory, 8, len(data))
        self.memory[16 : 16 + len(data)] = data
        SEQUENCE.pack_into(self.memory, 0, self._sequence)
        with self._giving:  # the new note does not name them
            self._free += self._resting
            self._resting = []

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Give every owned partition a slot, and take back the slots of the others.

        A slot taken back is not reused before the next note is written. If we were killed in between, the old note
        would commit one partition at another's position.
        """
        wanted = set(partitions)
        with self._giving:
            for partition in [p for p in self.slots if p not in wanted]:
                slot = self.slots.pop(partition)
                self._write(slot, NO_POSITION, NO_EPOCH)
                self._resting.append(slot)
            for partition in sorted(wanted - self.slots.keys()):
                if not self._free:
                    return
                slot = self._free.pop()
                self._write(slot, *self._early.pop(partition, (NO_POSITION, NO_EPOCH)))
                self.slots[partition] = slot

    def position(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Write the application's position, with the leader epoch of the record before it if known."""
        slot = self.slots.get(partition)
        if slot is None:
            with self._giving:
                slot = self.slots.get(partition)
                if slot is None:
                    self._early[partition] = offset, epoch
                    return
        if epoch == self._epochs[slot]:
            SLOT.pack_into(self.memory, SLOTS_AT + 8 * slot, offset)
        else:
            self._write(slot, offset, epoch)

    def positions(self, entries: Mapping[TopicPartition, OffsetEntry]) -> None:
        """The same for several; an entry without an offset removes the position."""
        for partition, entry in entries.items():
            if entry.offset >= 0:
                self.position(partition, entry.offset, entry.leader_epoch)
            else:
                self.position(partition, NO_POSITION)

    def _write(self, slot: int, offset: int, epoch: int) -> None:
        """In this order a kill between two writes leaves an offset with its own epoch, or with none."""
        self._epochs[slot] = IN_DOUBT
        EPOCH.pack_into(self.memory, EPOCHS_AT + 4 * slot, NO_EPOCH)
        SLOT.pack_into(self.memory, SLOTS_AT + 8 * slot, offset)
        EPOCH.pack_into(self.memory, EPOCHS_AT + 4 * slot, epoch)
        self._epochs[slot] = epoch

    def committed(self, partition: TopicPartition, entry: OffsetEntry) -> None:
        """The application commits this by hand: never commit less. If it carries metadata, commit nothing: the watchdog
        knows no metadata, and would erase the application's."""
        slot = self.slots.get(partition)
        if slot is None or entry.offset < SLOT.unpack_from(self.memory, SLOTS_AT + 8 * slot)[0]:
            return
        if entry.metadata:
            self._write(slot, NO_POSITION, NO_EPOCH)
        else:
            self._write(slot, entry.offset, entry.leader_epoch)

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget early positions of these: their next owner may get further."""
        with self._giving:
            for partition in partitions:
                self._early.pop(partition, None)

    def token(self, text: str, extensions: Mapping[str, str]) -> None:
        """Send the watchdog the token to log in with from now on. From any thread."""
        self._log_in_by({"token": text, "extensions": dict(extensions)})

    def login(self, user: str, password: str) -> None:
        """The same for a user and a password."""
        self._log_in_by({"user": user, "password": password})

    def _log_in_by(self, login: Mapping[str, Any]) -> None:
        data = json.dumps(login).encode()
        self._say(LOGIN + LENGTH.pack(len(data)) + data)

    def _say(self, words: bytes) -> None:
        with self._pipe, contextlib.suppress(OSError, ValueError):  # it may be gone already
            assert self._process.stdin is not None
            self._process.stdin.write(words)
            self._process.stdin.flush()

    # -- the end

    def dismiss(self, *, clean: bool = True) -> None:
        """End the watchdog. After a clean close it does nothing; otherwise it commits and leaves for the member now.

        A forked copy of the member only closes its end of the pipe: the watchdog belongs to its parent.
        """
        if os.getpid() != self._pid:
            _hang_up(self._process)
            self._process.poll()  # not our child, so Popen takes it as ended and does not warn
        elif clean:
            self._say(GOODBYE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            _hang_up(self._process)
        else:
            _hang_up(self._process)  # end of file without a goodbye: the watchdog takes the member for dead
            threading.Thread(target=self._process.wait, name="holdfast-farewell", daemon=True).start()


def _started(memory_fd: int, start: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The child, with the message that it begins with on its way."""
    child = subprocess.Popen(
        [interpreter(), "-I", "-S", str(CHILD), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(memory_fd,),
        start_new_session=True,
    )
    message = json.dumps({"memory": memory_fd, **start}).encode()
    assert child.stdin is not None
    try:
        child.stdin.write(LENGTH.pack(len(message)) + message)
        child.stdin.flush()
    except OSError:  # it ended at once
        _hang_up(child)
        child.wait()
        raise
    return child


def _hang_up(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def watched(config: ConsumerConfig) -> Watchdog | None:
    """Start a watchdog that logs in as the consumer does, also after its credentials change.

    None, and a warning, if it can't be started. The member does without: it is needed only if the process is killed.
    """
    client = client_config(config.raw)
    try:
        watchdog = Watchdog(client.security, client.family)
    except OSError as error:
        warn(
            f"The watchdog of {config.client_id} can't be started: {error}. If this process is killed, its partitions "
            "wait for session.timeout.ms, and what it did since its last commit is done again. Set "
            "holdfast.watchdog=false if that is how it should be."
        )
        return None
    if config.tokens is not None:
        config.tokens.tell(watchdog.token)
    if config.login is not None:
        config.login.tell(watchdog.login)
    return watchdog


def tls_settings(security: Security) -> dict[str, Any] | None:
    """The member's TLS settings, secrets in plain text: they travel through the pipe only."""
    if security.tls is None:
        return None
    values = {field.name: getattr(security.tls, field.name) for field in fields(security.tls)}
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


def _sasl(security: Security) -> dict[str, Any] | None:
    sasl = security.sasl
    if sasl is None:
        return None
    return {
        "mechanism": sasl.mechanism,
        "user": sasl.user,
        "password": sasl.password.reveal(),
        "token": "",  # sent later, as soon as there is one
        "extensions": {},
    }
