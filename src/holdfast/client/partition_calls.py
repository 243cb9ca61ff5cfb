"""What applications call about partitions: which are read, from where, and where they stand.

They assign partitions by hand without a subscription, or inside the listener's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import confluent_kafka as ck

from holdfast.client.errors import refused_here
from holdfast.client.partitions import AS_COMMITTED, RESET, confluent_at, confluent_list, name_of, names_of, offsets_of
from holdfast.client.parts import Parts
from holdfast.client.reading.start_offsets import check_starts
from holdfast.model import TopicPartition

Starts = Mapping[TopicPartition, int | None]
"""Committed offsets; None where the group has committed nothing."""


class PartitionCalls:
    """One consumer's calls. `ask` asks the group for its committed offsets, and blocks. A caller that must not block
    asks beforehand (`unasked`) and passes the answer as `asked`."""

    def __init__(self, parts: Parts, *, ask: Callable[[list[TopicPartition]], Starts]) -> None:
        self._config = parts.config
        self._data = parts.data
        self._offsets = parts.offsets
        self._round = parts.round
        self._link = parts.link
        self._check_open = parts.check_open
        self._ask = ask

    # -- which are read

    def assign(self, partitions: list[ck.TopicPartition], asked: Starts | None = None) -> None:
        """Read exactly these. Inside on_assign of a cooperative member: start these as listed, beside those kept."""
        self._check_open()
        if self._round.adding is not None and self._link.cooperative:
            self._round.start_now(partitions)
            others = [p for p in partitions if name_of(p) not in self._data.assigned]
            self._add(others, asked)
            return
        check_starts(partitions)
        self._check_replacing(partitions)
        self.replace(partitions, asked)
        self._round.replaced = self._round.adding is not None

    def unassign(self) -> None:
        """Inside on_assign of an eager member: read nothing of what is added. Inside on_revoke and on_lost of a
        cooperative one: read no more of what is taken, as programs that were written for eager members mean it."""
        self._check_open()
        if self._round.leaving is not None and self._cooperative():
            self.incremental_unassign(confluent_list(self._round.leaving))
            return
        self._check_replacing([])
        self.replace([])
        self._round.replaced = self._round.adding is not None

    def incremental_assign(self, partitions: list[ck.TopicPartition], asked: Starts | None = None) -> None:
        self._check_open()
        self._add(partitions, asked)

    def _add(self, partitions: list[ck.TopicPartition], asked: Starts | None) -> None:
        self._data.take(self._started_at(partitions, asked), named=partitions)

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        named = names_of(partitions)
        strangers = sorted(named - self._data.assigned - (self._round.leaving or frozenset()))
        if strangers:
            text = f"{strangers[0]} can't be unassigned since it is not in the current assignment"
            raise refused_here(ck.KafkaError._INVALID_ARG, text)
        gone = named & self._data.assigned
        self._before_unassign(gone)
        self._data.drop(named)
        self._after_unassign(gone)

    def replace(self, partitions: list[ck.TopicPartition], asked: Starts | None = None) -> None:
        gone = set(self._data.assigned)
        self._before_unassign(gone)
        self._data.replace(self._started_at(partitions, asked), named=partitions)
        self._after_unassign(gone)

    def assignment(self) -> list[ck.TopicPartition]:
        self._check_open()
        return self._data.assignment()

    # -- from where

    def seek(self, partition: ck.TopicPartition) -> None:
        """Inside on_assign, a partition that is being added and not read yet starts there."""
        self._check_open()
        if not isinstance(partition, ck.TopicPartition):
            raise TypeError("expected cimpl.TopicPartition")
        name = name_of(partition)
        if name in (self._round.adding or ()) and name not in self._data.assigned:
            self._round.start_now([partition])
        else:
            self._data.seek(partition)

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        self._check_open()
        return self._data.position(partitions)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._data.pause(partitions)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._data.resume(partitions)

    # -- around it

    def _cooperative(self) -> bool:
        """Whether this is a member of a cooperative group."""
        member = self._link.member
        return member is not None and member.state.cooperative and member.state.membership.joined

    def _check_replacing(self, partitions: list[ck.TopicPartition]) -> None:
        """Refuse an assignment that leaves out a partition which this cooperative member owns: nobody would read it."""
        if not self._cooperative():
            return
        adding, leaving = self._round.adding or {}, self._round.leaving or frozenset()
        unread = (self._link.ours() | adding.keys()) - leaving - names_of(partitions)
        if unread:
            names = ", ".join(map(str, sorted(unread)[:5])) + (" …" if len(unread) > 5 else "")
            raise refused_here(
                ck.KafkaError._STATE,
                f"{names}: owned by this member of a cooperative group, and would be read by nobody. "
                "Use incremental_assign, incremental_unassign, pause or unsubscribe.",
            )

    def _before_unassign(self, gone: set[TopicPartition]) -> None:
        """The application is about to unassign these: commit and remember where it stands in them."""
        commits = self._config.auto_commit and self._offsets.committable(gone) and bool(self._config.group)
        plane = self._link.started() if commits else self._link.plane
        self._offsets.before_unassign(plane, gone, member=self._link.subscribed)

    def _after_unassign(self, gone: set[TopicPartition]) -> None:
        if not self._link.subscribed:
            self._offsets.forget(gone)

    def unasked(self, partitions: list[ck.TopicPartition]) -> list[TopicPartition]:
        """Those of these for which the group must be asked where they start."""
        if self._data.reader.finds_committed or not self._config.group:
            return []
        known = self._known_starts()
        return [p for p, at in offsets_of(partitions).items() if at in AS_COMMITTED and p not in known]

    def _known_starts(self) -> dict[TopicPartition, int | None]:
        """A partition that is being added starts where the round says, and one with a commit under way at that offset:
        librdkafka would ask for the committed offset in the background and overtake the commit."""
        return {**self._offsets.unanswered(), **(self._round.adding or {})}

    def _without_group(self, partitions: list[ck.TopicPartition]) -> Starts:
        """Nothing is committed where there is no group. librdkafka finds that out by itself."""
        if self._data.reader.finds_committed or self._config.group:
            return {}
        return dict.fromkeys(names_of(partitions))

    def _started_at(self, partitions: list[ck.TopicPartition], asked: Starts | None) -> list[ck.TopicPartition]:
        """Fill in a start where the user named no offset and it is known. For the rest the reader asks by itself; if it
        can't, the group is asked here, unless that was done before."""
        if asked is None:
            unasked = self.unasked(partitions)
            asked = self._ask(unasked) if unasked else {}
        known = {**self._without_group(partitions), **asked, **self._known_starts()}
        reset = RESET[self._config.auto_offset_reset]
        started = []
        for partition in partitions:
            name = name_of(partition)
            if partition.offset in AS_COMMITTED and name in known:
                at = known[name]
                started.append(confluent_at(name, reset if at is None else at))
            else:
                started.append(partition)
        return started
