"""The member's side of its watchdog: starts it, keeps its note and the positions up to date, says goodbye.

The note (who we are, in which generation, where the coordinator is) changes once a round and is written whole under a
sequence number; positions are eight bytes each, written where they stand. Nothing here waits for the watchdog.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.client.watchdog_child import (
    GOODBYE,
    LENGTH,
    MAX_SLOTS,
    NO_POSITION,
    SEQUENCE,
    SLOT,
    SLOTS_AT,
    TOKEN,
)
from holdfast.group.member import MemberState
from holdfast.model import TopicPartition
from holdfast.net.security import Secret, Security

CHILD = Path(__file__).with_name("watchdog_child.py")
PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class Watchdog:
    """One watchdog for one member."""

    def __init__(self, security: Security) -> None:
        memory_fd = os.memfd_create("holdfast-watchdog")
        os.ftruncate(memory_fd, SLOTS_AT + 8 * MAX_SLOTS)
        self._memory = mmap.mmap(memory_fd, SLOTS_AT + 8 * MAX_SLOTS)
        self._slots: dict[TopicPartition, int] = {}
        self._early: dict[TopicPartition, int] = {}
        """Positions of what is about to be owned: records flow before the group hears that the listener returned."""
        self._giving = threading.Lock()
        self._free = list(range(MAX_SLOTS - 1, -1, -1))
        self._sequence = 0
        self._pipe = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(memory_fd,),
            start_new_session=True,
        )
        start = json.dumps(
            {
                "pid": os.getpid(),
                "memory": memory_fd,
                "package": str(PACKAGE_ROOT),
                "tls": _tls(security),
                "sasl": _sasl(security),
            }
        ).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(LENGTH.pack(len(start)) + start)
        self._process.stdin.flush()
        os.close(memory_fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """For tests: until the watchdog watches."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    # -- what it would need to know

    def note(self, state: MemberState, coordinator: tuple[str, int] | None, *, commits: bool) -> None:
        """Who we are now. An empty member id means: nothing to say for us.

        Whoever has an id but no generation yet waits in a round: the round would wait for him too if he died.
        """
        known = coordinator is not None and bool(state.membership.member_id) and not state.lost
        who: dict[str, Any] = {"member": ""}
        if known and coordinator is not None:
            who = {
                "group": state.config.group,
                "member": state.membership.member_id,
                "generation": state.membership.generation,
                "instance": state.config.instance_id,
                "host": coordinator[0],
                "port": coordinator[1],
                "commits": commits and state.membership.joined,
                "peers": [[peer.host, peer.port] for peer in state.peers if peer != state.config.endpoint],
                "token": state.poke_token,
                "slots": [[slot, p.topic, p.partition] for p, slot in sorted(self._slots.items())],
            }
        data = json.dumps(who, separators=(",", ":")).encode()
        if len(data) > SLOTS_AT - 16:
            who["slots"] = []  # too many partitions to note: then it leaves without committing
            data = json.dumps(who, separators=(",", ":")).encode()
        self._sequence += 2
        SEQUENCE.pack_into(self._memory, 0, self._sequence - 1)
        LENGTH.pack_into(self._memory, 8, len(data))
        self._memory[16 : 16 + len(data)] = data
        SEQUENCE.pack_into(self._memory, 0, self._sequence)

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Give every owned partition a slot, and take away those of the others."""
        wanted = set(partitions)
        with self._giving:
            for partition in [p for p in self._slots if p not in wanted]:
                slot = self._slots.pop(partition)
                SLOT.pack_into(self._memory, SLOTS_AT + 8 * slot, NO_POSITION)
                self._free.append(slot)
            for partition in sorted(wanted - self._slots.keys()):
                if not self._free:
                    return
                slot = self._free.pop()
                SLOT.pack_into(self._memory, SLOTS_AT + 8 * slot, self._early.pop(partition, NO_POSITION))
                self._slots[partition] = slot

    def position(self, partition: TopicPartition, offset: int) -> None:
        slot = self._slots.get(partition)
        if slot is None:
            with self._giving:
                slot = self._slots.get(partition)
                if slot is None:
                    self._early[partition] = offset
                    return
        SLOT.pack_into(self._memory, SLOTS_AT + 8 * slot, offset)

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """What was noted ahead of owning these no longer counts: whoever reads them next gets further."""
        with self._giving:
            for partition in partitions:
                self._early.pop(partition, None)

    def positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self.position(partition, offset)

    def token(self, text: str) -> None:
        """The login it would use from now on. From any thread."""
        data = text.encode()
        self._say(TOKEN + LENGTH.pack(len(data)) + data)

    def _say(self, words: bytes) -> None:
        with self._pipe, contextlib.suppress(OSError, ValueError):  # it may be gone already
            assert self._process.stdin is not None
            self._process.stdin.write(words)
            self._process.stdin.flush()

    # -- the end

    def dismiss(self) -> None:
        """A clean close: it does nothing and ends."""
        self._say(GOODBYE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _tls(security: Security) -> dict[str, Any] | None:
    """The member's own settings; secrets in the open, for they travel through the pipe alone."""
    if security.tls is None:
        return None
    values = {field.name: getattr(security.tls, field.name) for field in fields(security.tls)}
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


def _sasl(security: Security) -> dict[str, str] | None:
    sasl = security.sasl
    if sasl is None:
        return None
    return {
        "mechanism": sasl.mechanism,
        "user": sasl.user,
        "password": sasl.password.reveal(),
        "token": "",  # the newest one is told as soon as there is one
    }
