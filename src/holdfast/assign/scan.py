"""Kernels over the members' raw subscription bytes: where the fields are, and which partitions are claimed.

The bytes of all members lie in one buffer. Each kernel checks every length against the end of the member's own bytes;
one that can't be read is marked and does not disturb the others. See `holdfast.model.consumer_protocol` for the format,
which stays the reference: a test reads noise with both and compares.
"""

from __future__ import annotations

from typing import Any

from holdfast.assign.kernels import Kernel


def _frame(data: Any, starts: Any, ends: Any, version: Any, topics_end: Any, user_data: Any, owned: Any) -> None:
    """Per member: version (-1 when malformed), end of its topics, start of its user data's length, start of owned."""
    for m in range(len(starts)):
        at = starts[m]
        end = ends[m]
        version[m] = -1
        if end - at < 6:
            continue
        number = (data[at] << 8) | data[at + 1]
        count = (data[at + 2] << 24) | (data[at + 3] << 16) | (data[at + 4] << 8) | data[at + 5]
        at += 6
        if number >= 0x8000 or count >= 0x80000000 or count * 2 > end - at:
            continue
        while count > 0 and at + 2 <= end:
            length = (data[at] << 8) | data[at + 1]
            at += 2 + length
            if length >= 0x8000 or at > end:
                break
            count -= 1
        if count > 0 or at + 4 > end:
            continue
        topics_end[m] = at
        length = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
        user_data[m] = at
        at += 4
        if length == 0xFFFFFFFF:
            length = 0
        if length > end - at:
            continue
        owned[m] = at + length
        version[m] = number


def _walk(data: Any, starts: Any, ends: Any, stops: Any, entries: Any, partitions: Any) -> None:
    """Per block [{topic, [partition]}] where it stops (-1: malformed), and how much it holds. Start -1: no block."""
    for m in range(len(starts)):
        at = starts[m]
        end = ends[m]
        stops[m] = -1
        entries[m] = 0
        partitions[m] = 0
        if at < 0 or end - at < 4:
            continue
        count = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
        at += 4
        if count >= 0x80000000 or count * 6 > end - at:
            continue
        left = count
        total = 0
        while left > 0 and at + 6 <= end:
            length = (data[at] << 8) | data[at + 1]
            at += 2 + length
            if length >= 0x8000 or at + 4 > end:
                break
            numbers = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
            at += 4
            if numbers >= 0x80000000 or numbers * 4 > end - at:
                break
            at += 4 * numbers
            total += numbers
            left -= 1
        if left == 0:
            stops[m] = at
            entries[m] = count
            partitions[m] = total


def _index(names: Any, name_starts: Any, table: Any) -> None:
    """Fill an open-addressing hash table of topic names; its size is a power of two, at least twice the topics."""
    mask = len(table) - 1
    for topic in range(len(name_starts) - 1):
        value = 0
        for at in range(name_starts[topic], name_starts[topic + 1]):
            value = (value * 31 + names[at]) & 0xFFFFFFFF
        slot = value & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = topic


def _claims(
    data: Any,
    starts: Any,
    entries: Any,
    names: Any,
    name_starts: Any,
    table: Any,
    first: Any,
    claim_member: Any,
    claim_pid: Any,
    other_member: Any,
    other_name: Any,
    other_partition: Any,
) -> Any:
    """Write out the claims: on known partitions by pid, on others by where their topic's name is. Returns how many of
    each. Topics come sorted, so the one after the last that was found is tried before the hash table."""
    mask = len(table) - 1
    topics = len(name_starts) - 1
    claims = others = 0
    for m in range(len(starts)):
        at = starts[m]
        guess = 0
        for _ in range(entries[m]):
            named = at
            length = (data[at] << 8) | data[at + 1]
            at += 2
            slot = -1
            topic = guess
            while topic >= 0:
                if topic < topics and name_starts[topic + 1] - name_starts[topic] == length:
                    same = 0
                    while same < length and data[at + same] == names[name_starts[topic] + same]:
                        same += 1
                    if same == length:
                        guess = topic + 1
                        break
                if slot < 0:
                    value = 0
                    for k in range(at, at + length):
                        value = (value * 31 + data[k]) & 0xFFFFFFFF
                    slot = value & mask
                else:
                    slot = (slot + 1) & mask
                topic = table[slot]
            at += length
            numbers = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
            at += 4
            for spot in range(at, at + 4 * numbers, 4):
                partition = (data[spot] << 24) | (data[spot + 1] << 16) | (data[spot + 2] << 8) | data[spot + 3]
                if topic >= 0 and partition < first[topic + 1] - first[topic]:
                    claim_member[claims] = m
                    claim_pid[claims] = first[topic] + partition
                    claims += 1
                elif partition < 0x80000000:
                    other_member[others] = m
                    other_name[others] = named
                    other_partition[others] = partition
                    others += 1
            at += 4 * numbers
    return claims, others


def _settle(claim_member: Any, claim_pid: Any, generation: Any, owner: Any, newest: Any, tied: Any) -> None:
    """Who holds what: the newest generation wins; two claims of one generation lose both (KAFKA-12984, KAFKA-14639).

    `owner` starts at -1, `tied` at 0, `newest` below every generation. The order of the claims does not matter.
    """
    for k in range(len(claim_member)):
        m = claim_member[k]
        pid = claim_pid[k]
        if owner[pid] < 0 or generation[m] > newest[pid]:
            owner[pid] = m
            newest[pid] = generation[m]
            tied[pid] = 0
        elif generation[m] == newest[pid] and owner[pid] != m:
            tied[pid] = 1


frame = Kernel(_frame)
walk = Kernel(_walk)
index = Kernel(_index)
claims = Kernel(_claims)
settle = Kernel(_settle)
