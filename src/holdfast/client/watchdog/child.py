"""The watchdog's own process: waits for its member to die without a clean close, and then leaves the group for it.

Milliseconds after a kill -9 or an out-of-memory kill it commits the member's positions and leaves in its name. Without
it the coordinator would wait for the session timeout. Then it pokes the other members.

Rules. Small: it imports the standard library, and holdfast only for logins. Its only argument is the member's process
id. It gets everything else through its standard input, where nobody else can read it. After a clean close it does
nothing. It ends with its member in any case. Its requests carry the member's generation, so they are refused if the
group has moved on.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # importing typing for it would cost a megabyte, and nothing else here needs it
if TYPE_CHECKING:
    from typing import Any

OFFSET_COMMIT, LEAVE_GROUP = 8, 13
COMMIT_VERSION, LEAVE_VERSION, LEAVE_WITH_REASON = 7, 3, 5
"""The newest versions without tagged fields: easy to encode by hand, and accepted by every Kafka since 2.4. A leave
with a reason is version 5, which Kafka has since 3.2; the member says whether its coordinator takes it."""

REASON = "its process ended without closing the consumer (reported by its watchdog)"
"""What an operator reads in the coordinator's log, in `holdfast doctor` and on the page."""

SLOTS_AT = 65_536
MAX_SLOTS = 8_192
EPOCHS_AT = SLOTS_AT + 8 * MAX_SLOTS
MEMORY_SIZE = EPOCHS_AT + 4 * MAX_SLOTS
"""The memory has the note, then an offset for each slot, then an epoch for each slot. A single number is written
atomically, but a kill may come between two writes. So before an offset with another epoch is written, the epoch is set
to NO_EPOCH, which is valid with any offset."""

NO_POSITION = -1
NO_EPOCH = -1
TIMEOUT_S = 20.0
"""Time limit for each step after the member's death. Much later the session timeout would have ended it anyway."""

LAST_S = 60
"""No watchdog lives longer than this after its member, whatever the broker answers: the system ends it."""

LOOK_AGAIN_MS = 1_000
"""How often it looks whether the member is alive, where the system does not tell it."""

GOODBYE, LOGIN = b"x", b"t"
"""Messages through the pipe after the start: a clean close, or new credentials that replace the old ones."""

SEQUENCE = struct.Struct("=Q")
LENGTH = struct.Struct("=I")
SLOT = struct.Struct("=q")
EPOCH = struct.Struct("=i")


def text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def commit_body(who: dict[str, Any], positions: dict[tuple[str, int], tuple[int, int]]) -> bytes:
    """OffsetCommit v7."""
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, partition), (offset, epoch) in sorted(positions.items()):
        topics.setdefault(topic, []).append((partition, offset, epoch))
    body = text(who["group"]) + struct.pack(">i", who["generation"]) + text(who["member"]) + text(who["instance"])
    body += struct.pack(">i", len(topics))
    for topic, entries in sorted(topics.items()):
        body += text(topic) + struct.pack(">i", len(entries))
        for partition, offset, epoch in entries:
            body += struct.pack(">iqi", partition, offset, epoch) + text("")
    return body


def leave_body(who: dict[str, Any]) -> bytes:
    """LeaveGroup v3."""
    return text(who["group"]) + struct.pack(">i", 1) + text(who["member"]) + text(who["instance"])


def leave_with_reason_body(who: dict[str, Any]) -> bytes:
    """LeaveGroup v5: the same in the compact form, and why."""
    member = short_text(who["member"]) + short_text(who["instance"]) + short_text(REASON) + NO_TAGS
    return short_text(who["group"]) + uvarint(2) + member + NO_TAGS


NO_TAGS = b"\0"


def short_text(value: str | None) -> bytes:
    """A text of the newer versions: its length plus one; 0 stands for none."""
    if value is None:
        return uvarint(0)
    data = value.encode()
    return uvarint(len(data) + 1) + data


def uvarint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


def frame(api: int, version: int, number: int, body: bytes, *, tags: bytes = b"") -> bytes:
    content = struct.pack(">hhi", api, version, number) + text("holdfast-watchdog") + tags + body
    return struct.pack(">i", len(content)) + content


def leave_frame(who: dict[str, Any]) -> bytes:
    if who.get("takes_reason"):  # absent in notes of a process that started before an upgrade in place
        return frame(LEAVE_GROUP, LEAVE_WITH_REASON, 2, leave_with_reason_body(who), tags=NO_TAGS)
    return frame(LEAVE_GROUP, LEAVE_VERSION, 2, leave_body(who))


def receive(link: socket.socket) -> bytes:
    """The content of one answer, without its correlation id."""
    head = exactly(link, 4)
    return exactly(link, struct.unpack(">i", head)[0])[4:]


def exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise OSError("the broker closed the connection")
        data += part
    return data


def read_note(memory: mmap.mmap) -> dict[str, Any] | None:
    """The member's last note. Its sequence number is even when the note is complete."""
    for _ in range(1_000):
        before = SEQUENCE.unpack_from(memory, 0)[0]
        size = LENGTH.unpack_from(memory, 8)[0]
        data = bytes(memory[16 : 16 + min(size, SLOTS_AT - 16)])
        if before % 2 == 0 and SEQUENCE.unpack_from(memory, 0)[0] == before:
            found: dict[str, Any] | None = json.loads(data) if data else None
            return found
        if before % 2 == 1:
            break  # it died while writing: the old note is partly overwritten and can't be used
    return None


def read_positions(memory: mmap.mmap, slots: list[tuple[int, str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Offsets, each with the leader epoch of the record before it."""
    positions = {}
    for slot, topic, partition in slots:
        offset = SLOT.unpack_from(memory, SLOTS_AT + 8 * slot)[0]
        if offset != NO_POSITION:
            positions[topic, partition] = offset, EPOCH.unpack_from(memory, EPOCHS_AT + 4 * slot)[0]
    return positions


def connect(start: dict[str, Any], who: dict[str, Any]) -> socket.socket:
    link = reach(who["host"], who["port"], start["family"])
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if start["tls"] is None and start["sasl"] is None:
        return link
    sys.path.insert(0, start["package"])
    from holdfast.client.watchdog.login import log_in, wrapped

    if start["tls"] is not None:
        link = wrapped(link, start["tls"], who["host"])
    if start["sasl"] is not None:
        secured = link
        log_in(start["sasl"], lambda api, version, body: ask(secured, api, version, body))
    return link


def reach(host: str, port: int, family: int) -> socket.socket:
    """Connect to the first address that answers, of the address family that the member uses."""
    failed: OSError = OSError(f"{host} has no address")
    for found, kind, number, _, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        link = socket.socket(found, kind, number)
        link.settimeout(TIMEOUT_S)
        try:
            link.connect(address)
            return link
        except OSError as error:
            link.close()
            failed = error
    raise failed


def ask(link: socket.socket, api: int, version: int, body: bytes) -> bytes:
    link.sendall(frame(api, version, 1, body))
    return receive(link)


def farewell(start: dict[str, Any], memory: mmap.mmap) -> None:
    """Commit and leave in the member's name, then poke the others."""
    who = read_note(memory)
    if who is None or not who["member"]:
        return
    link = connect(start, who)
    positions = read_positions(memory, who["slots"])
    asked = []
    if positions and who["commits"]:
        asked.append(frame(OFFSET_COMMIT, COMMIT_VERSION, 1, commit_body(who, positions)))
    asked.append(leave_frame(who))
    link.sendall(b"".join(asked))
    for _ in asked:
        receive(link)
    poke(who["peers"], who["token"].encode())


def poke(peers: list[tuple[str, int]], token: bytes) -> None:
    """Peers are IP addresses, never names. One that can't be reached learns of the round from its next heartbeat."""
    for host, port in peers:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as voice:
            voice.sendto(token, (host, port))


class Ears:
    """What the watchdog listens to: its pipe, and the end of the member's process.

    The pipe alone is not enough: a process that the member forked may keep it open.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN | select.POLLHUP)
        self._look_again_ms: int | None = None
        self._gone = False
        try:
            self._poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            self._gone = True
        except (AttributeError, OSError):  # an old kernel, or a sandbox that does not allow it
            self._look_again_ms = LOOK_AGAIN_MS

    def wait(self) -> bool:
        """Wait until the pipe can be read. False: the member is gone, and all that it said has been read."""
        while not self._gone:
            ready = [descriptor for descriptor, _ in self._poll.poll(self._look_again_ms)]
            if 0 in ready:
                return True
            self._gone = bool(ready) or not alive(self._pid)
        return bool(select.select([0], [], [], 0)[0])

    def read(self, count: int) -> bytes:
        """Read `count` bytes; fewer if the member died in the middle of a message."""
        data = b""
        while len(data) < count and self.wait():
            part = os.read(0, count - len(data))
            if not part:
                break
            data += part
        return data

    def message(self) -> bytes | None:
        """One message with its length before it. None: the member died before it was complete."""
        size = self.read(LENGTH.size)
        if len(size) < LENGTH.size:
            return None
        length = LENGTH.unpack(size)[0]
        data = self.read(length)
        return data if len(data) == length else None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and is not ours to signal
        pass
    return True


def watch(ears: Ears, start: dict[str, Any]) -> bool:
    """Wait until the member says goodbye or is gone. True when it died without a goodbye."""
    while True:
        said = ears.read(1)
        if said != LOGIN:
            return said != GOODBYE
        login = ears.message()
        if login is not None and start["sasl"] is not None:
            start["sasl"].update(json.loads(login))


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole process group, and meant for the member
    ears = Ears(int(sys.argv[1]))
    data = ears.message()
    if data is None:
        os._exit(1)  # the member died while it started us: it had not joined yet
    start = json.loads(data)
    memory = mmap.mmap(start["memory"], MEMORY_SIZE)
    with contextlib.suppress(OSError):  # the member may be gone already, and must be handled all the same
        os.write(1, b"ready\n")
    if watch(ears, start):
        socket.setdefaulttimeout(TIMEOUT_S)
        signal.alarm(LAST_S)
        try:
            farewell(start, memory)
        except OSError:
            os._exit(1)  # the session timeout will end the membership
    os._exit(0)


if __name__ == "__main__":
    main()
