"""The one rule of what counts as done, in any order of what may happen: nothing is lost, and nothing that the group was
told of is done again."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.model import TopicPartition
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.work import Work

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
QUERIES = range(2)


class Sharing(RuleBasedStateMachine):
    """Two queries, a group that gives each partition to one of them, and sinks that write when a batch is done.

    Commits may be late, memberships are lost, queries restart from their checkpoints. `written` is what sinks have, in
    order. A query whose partition is taken while it works (lost, not revoked) may write what another one writes too:
    those are the only records that may come twice.
    """

    @initialize()
    def begin(self) -> None:
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.owner: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS)
        self.work = [Work() for _ in QUERIES]
        self.log = [BatchOffset() for _ in QUERIES]  # the last planned batch
        self.before = [BatchOffset() for _ in QUERIES]  # the one before it
        self.done = [True for _ in QUERIES]  # whether the last planned one is in the commit log
        self.written: dict[TopicPartition, list[int]] = {p: [] for p in PARTITIONS}
        self.excused: dict[TopicPartition, set[int]] = {p: set() for p in PARTITIONS}

    @rule(query=st.sampled_from(QUERIES), partition=st.sampled_from(PARTITIONS))
    def assign(self, query: int, partition: TopicPartition) -> None:
        if self.owner[partition] is None:
            self.owner[partition] = query
            self.work[query].assign({partition: self.committed[partition]})

    @rule(query=st.sampled_from(QUERIES), partition=st.sampled_from(PARTITIONS), commits=st.booleans())
    def revoke(self, query: int, partition: TopicPartition, commits: bool) -> None:
        work = self.work[query]
        if self.owner[partition] != query:
            return
        work.revoke([partition])
        if work.busy([partition]):
            return
        if commits:
            self.commit(query)
        final = work.release([partition])
        if final.get(partition, self.committed[partition]) != self.committed[partition]:
            self.excuse(partition, self.committed[partition], final[partition])
        self.owner[partition] = None

    @rule(query=st.sampled_from(QUERIES), partition=st.sampled_from(PARTITIONS))
    def lose(self, query: int, partition: TopicPartition) -> None:
        if self.owner[partition] == query:
            self.forgive(query)
            self.work[query].release([partition])
            self.owner[partition] = None

    @rule(query=st.sampled_from(QUERIES), count=st.integers(1, 3))
    def plan(self, query: int, count: int) -> None:
        work = self.work[query]
        if not self.done[query] or work.running is not None:
            return
        ranges = {p: (at, at + count) for p, at in work.open().items()}
        if ranges:
            self.before[query] = self.log[query]
            self.log[query] = work.plan(ranges, after=self.log[query], generation=0)
            self.done[query] = False

    @rule(query=st.sampled_from(QUERIES))
    def run(self, query: int) -> None:
        """The sink writes, and Spark notes that the batch is done."""
        running = self.work[query].running
        if running is None or self.done[query]:
            return
        for partition, (start, end) in running.ranges.items():
            self.written[partition] += range(start, end)
        self.done[query] = True

    @rule(query=st.sampled_from(QUERIES))
    def ask(self, query: int) -> None:
        """latestOffset(start = end of the last batch)."""
        if self.done[query]:
            self.work[query].finish(self.log[query])

    @rule(query=st.sampled_from(QUERIES))
    def commit(self, query: int) -> None:
        owed = {p: at for p, at in self.work[query].owed().items() if self.owner[p] == query}
        self.committed |= owed
        self.work[query].committed(owed)

    @rule(query=st.sampled_from(QUERIES))
    def restart(self, query: int) -> None:
        """Killed, and begun anew from the checkpoint; the group takes its partitions away first."""
        if self.work[query].owed() and not self.done[query]:
            self.commit(query)  # at most one batch is not committed when the next one is planned
        self.forgive(query)
        for partition, owner in self.owner.items():
            if owner == query:
                self.owner[partition] = None
        self.work[query] = Work()
        for partition in PARTITIONS:
            self.assign(query, partition)
        if self.done[query]:
            self.work[query].finish(self.log[query])
        else:
            self.work[query].finish(self.before[query])
            self.log[query] = self.work[query].replay(self.log[query])

    def forgive(self, query: int) -> None:
        """What this query has written, or is about to write, and the group does not know of, may come twice."""
        work = self.work[query]
        for partition, held in work.held.items():
            if held.position is not None:
                self.excuse(partition, self.committed[partition], held.position)
        for partition, (start, end) in (work.running.ranges if work.running else {}).items():
            self.excuse(partition, start, end)

    def excuse(self, partition: TopicPartition, start: int, end: int) -> None:
        self.excused[partition] |= set(range(start, end))

    @invariant()
    @precondition(lambda self: hasattr(self, "committed"))
    def nothing_the_group_knows_is_missing(self) -> None:
        for partition, offset in self.committed.items():
            assert set(range(offset)) <= set(self.written[partition]), (partition, offset)

    @invariant()
    @precondition(lambda self: hasattr(self, "committed"))
    def nothing_comes_twice_without_an_excuse(self) -> None:
        for partition, offsets in self.written.items():
            twice = {offset for offset in offsets if offsets.count(offset) > 1}
            assert twice <= self.excused[partition], (partition, twice)


Sharing.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestSharing = Sharing.TestCase


def test_a_partition_that_comes_back_where_it_was_left_counts_what_was_done() -> None:
    where = PARTITIONS[0]
    work = Work()
    work.assign({where: 0})
    planned = work.plan({where: (0, 5)}, after=BatchOffset(), generation=1)
    work.release([where])
    work.finish(planned)
    work.assign({where: 0})
    assert work.owed() == {where: 5}
    work.release([where])
    work.assign({where: 3})
    assert work.owed() == {}
    assert work.open() == {where: 3}


def test_a_handed_over_position_is_owed_to_the_group_at_once() -> None:
    where = PARTITIONS[0]
    work = Work()
    work.assign({where: 7}, handed=[where])
    assert work.owed() == {where: 7}
    work.committed({where: 7})
    assert work.owed() == {}
