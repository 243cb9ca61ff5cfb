"""The members' subscriptions as columns: one read of all bytes, shared by every strategy.

Members and topics are sorted (as Java sorts strings), so nothing below depends on the order in which anything arrived.
A partition of a topic that somebody subscribes to is a number `pid`: topics in order, partitions in order.

Untrusted bytes are cleaned here and nowhere else. Of members with the same id one is kept. A member whose bytes can't
be read subscribes to nothing and claims nothing. Topics listed twice count once. Claims on partitions that don't exist
are kept apart. The leader's plan never fails because of one member (franz-go, sarama 2285).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.assign import scan
from holdfast.assign.order import sorted_as_java
from holdfast.model import NO_GENERATION, ClusterView, JoinedMember

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CLAIMS_FROM_OWNED = "owned"
CLAIMS_FROM_USER_DATA = "user data"
"""Java's eager `sticky` writes what it had into its user data, and reads it from there only."""
NO_CLAIMS = "nowhere"
"""For callers that only need the topics."""

MAX_OTHERS = 20_000
"""How many claims of one member are kept on partitions that the leader's metadata does not show. Claims beyond that are
dropped, and the member revokes those partitions as usual. Each costs an object, and a foreign client could send a
quarter of a million of them in a megabyte."""


@dataclass(slots=True, kw_only=True)
class Columns:
    """One round's input. A pid indexes `owner`, `tied` and every target; a member `block`, `racks`, `generation`."""

    members: list[str]
    instances: list[str | None]
    malformed: list[str]
    """Members whose subscription could not be read."""
    ahead: list[str]
    """Members that claim partitions of a future generation. Their claims are ignored."""
    topics: list[str]
    """Topics that exist and that somebody subscribes to."""
    first: Ints
    """`first[t]` is the pid of partition 0 of topic t; one longer than `topics`."""
    block: Ints
    """Which row of `wants` each member has; members with equal topic lists share one."""
    wants: Bools
    """[row, topic]: subscribed."""
    names: list[frozenset[str]]
    """Per row the names subscribed to, also of topics that don't exist."""
    racks: list[str | None]
    generation: Ints
    owner: NDArray[np.int32]
    """Per pid the member with the newest claim, or -1."""
    tied: NDArray[np.uint8]
    """Per pid 1 where two members claim it in the same generation: then nobody owns it."""
    claim_member: NDArray[np.int32]
    claim_pid: NDArray[np.int64]
    others: list[tuple[int, str, int]]
    """Claims on what is not in `topics`: (member, topic, partition), sorted, each once."""
    raw: bytes
    user_data_at: Ints
    """Where in `raw` each member's user data starts (its int32 length), or -1."""

    def user_data(self, member: int) -> bytes | None:
        at = int(self.user_data_at[member])
        if at < 0:
            return None
        length = struct.unpack_from(">i", self.raw, at)[0]
        return None if length < 0 else self.raw[at + 4 : at + 4 + length]

    def topic_of(self) -> NDArray[np.int32]:
        """Per pid its topic."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), np.diff(self.first))

    @property
    def size(self) -> int:
        """How many partitions there are to plan."""
        return int(self.first[-1])


def read(
    cluster: ClusterView,
    joined: Iterable[JoinedMember],
    *,
    claims_from: str = CLAIMS_FROM_OWNED,
    newest_claim: int | None = None,
) -> Columns:
    """Read a round's members. Raises nothing, whatever they sent.

    The newest claim on a partition counts. So a member that lied about its generation could take a partition from its
    owner, which still works on it. Therefore claims of a generation after `newest_claim` are ignored.
    """
    members = _one_per_id(joined)
    raw = b"".join(member.metadata for member in members)
    lengths = np.fromiter((len(member.metadata) for member in members), np.int64, len(members))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    version, topics_end, user_data_at, owned_at = (np.full(len(members), -1, np.int64) for _ in range(4))
    scan.frame(raw, starts, ends, version, topics_end, user_data_at, owned_at, work=len(raw))
    stops, entries, counts = _walked(raw, np.where(version >= 1, owned_at, -1), ends)
    generation, racks = _tails(raw, ends, owned_at, stops, version, user_data_at)
    rows, names = _rows(raw, starts, topics_end, version)
    user_data_at[version < 0] = -1
    entries[version < 0] = counts[version < 0] = 0
    claims_at = owned_at
    if claims_from == NO_CLAIMS:
        entries[:] = counts[:] = 0
    elif claims_from == CLAIMS_FROM_USER_DATA:
        claims_at, entries, counts = _sticky(raw, user_data_at, generation)
    ahead = np.zeros(len(members), np.bool_) if newest_claim is None else (generation > newest_claim) & (counts > 0)
    entries[ahead] = counts[ahead] = 0
    topics, first = _existing(cluster, set().union(*names))
    columns = Columns(
        members=[member.member_id for member in members],
        instances=[member.instance_id for member in members],
        malformed=[member.member_id for member, number in zip(members, version, strict=True) if number < 0],
        ahead=[member.member_id for member, lies in zip(members, ahead, strict=True) if lies],
        topics=topics,
        first=first,
        block=rows,
        wants=_wants(names, topics),
        names=names,
        racks=racks,
        generation=generation,
        owner=np.full(int(first[-1]), -1, np.int32),
        tied=np.zeros(int(first[-1]), np.uint8),
        claim_member=np.empty(0, np.int32),
        claim_pid=np.empty(0, np.int64),
        others=[],
        raw=raw,
        user_data_at=user_data_at,
    )
    _claim(columns, claims_at, entries, counts)
    return columns


def _existing(cluster: ClusterView, names: set[str]) -> tuple[list[str], Ints]:
    """Those topics that exist, sorted, and the pid at which each begins."""
    topics = sorted_as_java(
        name for name in names if (view := cluster.topics.get(name)) is not None and view.partitions > 0
    )
    first = np.zeros(len(topics) + 1, np.int64)
    np.cumsum([cluster.topics[topic].partitions for topic in topics], out=first[1:])
    return topics, first


def _one_per_id(joined: Iterable[JoinedMember]) -> list[JoinedMember]:
    """Sorted as Java sorts. Of members with the same id the one whose bytes sort first, whatever order they came in."""
    by_id: dict[str, JoinedMember] = {}
    for member in joined:
        known = by_id.get(member.member_id)
        if known is None or (member.metadata, member.instance_id or "") < (known.metadata, known.instance_id or ""):
            by_id[member.member_id] = member
    return [by_id[member_id] for member_id in sorted_as_java(by_id)]


def _rows(raw: bytes, starts: Ints, topics_end: Ints, version: Ints) -> tuple[Ints, list[frozenset[str]]]:
    """Equal topic lists share a row: 2,000 members send the same bytes, which are decoded once."""
    seen: dict[bytes, int] = {}
    rows = np.zeros(len(starts), np.int64)
    names: list[frozenset[str]] = []
    unreadable: set[int] = set()
    row, last = None, b"none so far"
    spans = zip(starts.tolist(), topics_end.tolist(), version.tolist(), strict=True)
    for m, (start, stop, number) in enumerate(spans):
        listed = raw[start + 2 : stop] if number >= 0 else b""
        if listed != last:  # most members send the same list, and comparing is cheaper than hashing
            row, last = seen.get(listed), listed
        if row is None:
            row = seen[listed] = len(names)
            found = _topic_names(listed)
            if found is None:
                unreadable.add(row)
            names.append(found or frozenset())
        if row in unreadable:
            version[m] = -1
        rows[m] = row
    return rows, names


def _topic_names(listed: bytes) -> frozenset[str] | None:
    """The names of one framed list, or None when one is not UTF-8."""
    found = []
    at = 4
    while at < len(listed):
        stop = at + 2 + int.from_bytes(listed[at : at + 2], "big")
        found.append(listed[at + 2 : stop])
        at = stop
    try:
        return frozenset(name.decode() for name in found)
    except UnicodeDecodeError:
        return None


def _wants(names: Sequence[frozenset[str]], topics: Sequence[str]) -> Bools:
    at = {topic: position for position, topic in enumerate(topics)}
    wants = np.zeros((len(names), len(topics)), np.bool_)
    for row, listed in enumerate(names):
        wants[row, [at[name] for name in listed if name in at]] = True
    return wants


def _walked(raw: bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    stops, entries, partitions = (np.empty(len(starts), np.int64) for _ in range(3))
    scan.walk(raw, starts, ends, stops, entries, partitions, work=len(raw))
    return stops, entries, partitions


def _tails(
    raw: bytes, ends: Ints, owned_at: Ints, stops: Ints, version: Ints, user_data_at: Ints
) -> tuple[Ints, list[str | None]]:
    """Generation and rack, which follow the owned partitions. Marks members whose bytes stop inside a field."""
    generation = np.full(len(ends), NO_GENERATION, np.int64)
    racks: list[str | None] = [None] * len(ends)
    columns = (ends, owned_at, stops, version, user_data_at)
    for m, (end, owned, at, number, told_at) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        held = NO_GENERATION
        if number >= 1 and owned < end and at < 0:
            version[m] = -1
        elif number >= 2 and 0 <= at < end:
            if end - at < 4:
                version[m] = -1
                continue
            held = struct.unpack_from(">i", raw, at)[0]
            if number >= 3 and at + 4 < end:
                length = struct.unpack_from(">h", raw, at + 4)[0] if end - at >= 6 else -2
                if length < -1 or length > end - at - 6:
                    version[m] = -1
                elif length > 0:
                    try:
                        racks[m] = raw[at + 6 : at + 6 + length].decode()
                    except UnicodeDecodeError:
                        version[m] = -1
        if held < 0 and version[m] >= 0:
            held = _generation_in_user_data(raw, told_at)
        generation[m] = held
    return generation, racks


def _generation_in_user_data(raw: bytes, at: int) -> int:
    """Cooperative sticky's user data opens with an int32 generation, also where ours adds to it."""
    if at < 0 or struct.unpack_from(">i", raw, at)[0] < 4:
        return NO_GENERATION
    return max(NO_GENERATION, int(struct.unpack_from(">i", raw, at + 4)[0]))


def _sticky(raw: bytes, user_data_at: Ints, generation: Ints) -> tuple[Ints, Ints, Ints]:
    """Eager sticky's user data: [{topic, [partition]}], then an int32 generation unless it is of the oldest schema."""
    starts = np.where(user_data_at >= 0, user_data_at + 4, -1)
    ends = starts.copy()
    for k in np.flatnonzero(user_data_at >= 0):
        ends[k] += max(0, int(struct.unpack_from(">i", raw, int(user_data_at[k]))[0]))
    stops, entries, partitions = _walked(raw, starts, ends)
    for m, (at, end) in enumerate(zip(stops.tolist(), ends.tolist(), strict=True)):
        whole = 0 <= at <= end - 4
        generation[m] = max(NO_GENERATION, struct.unpack_from(">i", raw, at)[0]) if whole else NO_GENERATION
    return starts, entries, partitions


def _claim(columns: Columns, starts: Ints, entries: Ints, counts: Ints) -> None:
    """Fill in who claims what and, from that, who owns what."""
    total = int(counts.sum())
    if total == 0:
        return
    encoded = [topic.encode(errors="surrogatepass") for topic in columns.topics]
    name_starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=name_starts[1:])
    joined = b"".join(encoded)
    table = np.full(1 << (2 * len(encoded) + 1).bit_length(), -1, np.int64)
    work = 8 * total + 40 * int(entries.sum())
    scan.index(joined, name_starts, table, work=len(joined))
    claim_member, other_member = np.empty(total, np.int32), np.empty(total, np.int32)
    claim_pid, other_name, other_partition = (np.empty(total, np.int64) for _ in range(3))
    claims, others = scan.claims(
        columns.raw, starts + 4, entries, joined, name_starts, table, columns.first,
        claim_member, claim_pid, other_member, other_name, other_partition, work=work,
    )  # fmt: skip
    columns.claim_member, columns.claim_pid = claim_member[:claims], claim_pid[:claims]
    newest = np.full(columns.size, NO_GENERATION - 1, np.int64)
    scan.settle(
        columns.claim_member, columns.claim_pid, columns.generation, columns.owner, newest, columns.tied, work=4 * total
    )
    columns.others = _others(columns.raw, other_member[:others], other_name[:others], other_partition[:others])


def _others(raw: bytes, member: NDArray[np.int32], name: Ints, partition: Ints) -> list[tuple[int, str, int]]:
    """At most `MAX_OTHERS` per member, whose claims are adjacent. A name is decoded once for all its partitions."""
    number_of_its = np.arange(len(member)) - np.searchsorted(member, member)
    few = number_of_its < MAX_OTHERS
    names = {at: _name(raw, at) for at in set(name[few].tolist())}
    claims = zip(member[few].tolist(), name[few].tolist(), partition[few].tolist(), strict=True)
    return sorted({(m, names[at], number) for m, at, number in claims})


def _name(raw: bytes, at: int) -> str:
    length = struct.unpack_from(">h", raw, at)[0]
    return raw[at + 2 : at + 2 + length].decode(errors="replace")
