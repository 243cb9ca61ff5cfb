"""What the driver does with a batch: it finds each partition's position, runs the tasks, appends the entries and cleans
up.

The chain of a partition says what is done. Normally a batch begins where the chain ends. It begins before that if
another application, which has died or is slower than we are, has already done a part: the output of that part is
delivered again, and only the rest is processed. If another application appends an entry first, we look again. So only
the chain counts, whoever wrote it.

    chain      … [4100, 4180) [4180, 4250)
    batch           [4100,             4300)       output of both entries is delivered; rows from 4250 on are new
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.store import Store
from holdfast.spark.offsets import Ranges
from holdfast.spark.state.chain import Chain, Entry, beginning
from holdfast.spark.state.runs import NEVER
from holdfast.spark.state.task import Work
from holdfast.spark.state.times import shown

Job = Callable[[Mapping[TopicPartition, Work]], Mapping[TopicPartition, Entry]]
"""Runs the tasks; returns an entry for each partition that had rows."""

AT_ONCE = 8
"""Partitions read in parallel, because reading waits for the disk or the network."""
MAX_ATTEMPTS = 10
"""Each lost race means that another application has appended a batch of the same partition."""

AHEAD_US = 86_400_000_000
"""A watermark farther ahead of the clock than this comes from a record with a wrong time: no clock is off by a day."""

KEPT_ENTRIES = 16
"""The group's offsets may be behind by the last batches: usually two, and some more while its coordinator has problems.
The rest is a margin for applications that were stopped for a moment."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a query on one state."""

    store: Store
    ranges: Ranges
    told: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The topics' ids, of those that have one."""
    now_us: int = NEVER
    """The time, to tell of watermarks that are ahead of it."""

    def work(self, job: Job) -> dict[TopicPartition, list[Entry]]:
        """Work until every partition's chain reaches the batch's end. Returns the entries to deliver."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            tips = self._each(lambda p: Chain(self.store, p, self.told).tip())
            if attempt == 1:
                self._tell_known(tips)
            work = self._left(tips)
            if not work:
                return self._each(lambda p: self._covering(p, self.ranges[p][0]))
            made = self._made(job, work, patient=attempt < MAX_ATTEMPTS)
            if made is not None:
                self._append(work, made)
        raise HoldfastError(
            "STATE_BUSY",
            f"{MAX_ATTEMPTS} times in a row another application worked on the partitions of {self.told}.",
            "See which applications use this state, and whether they are members of one group.",
        )

    def _tell_known(self, tips: Mapping[TopicPartition, Entry | None]) -> None:
        """After a crash a part of a batch is in the state already. At any other time something is set up wrongly (a
        topic that was recreated, a state that two groups use), and nobody would see that its rows are not counted. The
        same with a state that begins in the middle of a topic: its path may not be where the others' is."""
        for partition, (start, end) in sorted(self.ranges.items()):
            tip = tips[partition]
            if tip is None and start > 0:
                self._tell(f"the state of {partition} begins empty, at offset {start}.")
            if tip is not None and tip.end > start:
                by, until = f" by {tip.writer}" if tip.writer else "", min(tip.end, end)
                left_out = f"offsets from {start} to {until} are not counted again."
                self._tell(f"the state of {partition} stands at {tip.end}{by}: {left_out}")

    def _tell(self, what: str) -> None:
        print(f"stateful: {self.told}: {what}", file=sys.stderr)  # noqa: T201 - the driver's standard error

    def _tell_ahead(self, partition: TopicPartition, before: Entry, after: Entry) -> None:
        """One record with a time of next year makes all rows late until then, and nobody would see why."""
        if before.watermark <= self.now_us + AHEAD_US < after.watermark:
            reached = shown(after.watermark)
            self._tell(f"the watermark of {partition} is at {reached}, ahead of the clock: rows before that are late.")

    def _left(self, tips: Mapping[TopicPartition, Entry | None]) -> dict[TopicPartition, Work]:
        left = {}
        for partition, (start, end) in sorted(self.ranges.items()):
            tip = self._of_this_topic(partition, tips[partition] or beginning(start))
            if tip.end < start:
                raise self._behind(partition, tip, start)
            if tip.end < end:
                left[partition] = Work(tip, end)
        return left

    def _of_this_topic(self, partition: TopicPartition, tip: Entry) -> Entry:
        """The tip with the topic's id. Refuses a state whose offsets are those of another topic's records."""
        now = self.topic_ids.get(partition.topic, "")
        if now and tip.topic_id and tip.topic_id != now:
            raise HoldfastError(
                "STATE_OF_OTHER_TOPIC",
                f"The state of {partition} was made of another topic of this name, which was deleted and made anew or "
                "is on another cluster: its offsets mean other records.",
                "Give this query a new path for its state and another for its output.",
            )
        return replace(tip, topic_id=now or tip.topic_id)

    def _made(
        self, job: Job, work: Mapping[TopicPartition, Work], *, patient: bool
    ) -> Mapping[TopicPartition, Entry] | None:
        """None if the job failed and another application has extended a chain: files it read may rightly be gone."""
        try:
            return job(work)
        except Exception:
            now = self._each(lambda p: Chain(self.store, p, self.told).tip())
            moved = any((now[p] or beginning(0)).number != one.tip.number for p, one in work.items())
            if not moved or not patient:
                raise
            return None

    def _append(self, work: Mapping[TopicPartition, Work], made: Mapping[TopicPartition, Entry]) -> None:
        """If another application was faster, nothing happens here; the next look at the chain finds its entry."""

        def append(partition: TopicPartition) -> bool:
            one = work[partition]
            self._tell_ahead(partition, one.tip, made.get(partition, one.tip))
            # Without rows (filtered out, or gaps in the log) the batch is still done.
            return Chain(self.store, partition, self.told).append(made.get(partition) or one.tip.next(one.end))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(append, sorted(work)))

    def _covering(self, partition: TopicPartition, start: int) -> list[Entry]:
        """The entries from the batch's beginning on."""
        found = Chain(self.store, partition, self.told).since(start)
        if found and found[0].start > start:
            raise self._ahead(partition, start, found)
        return found

    def tidy(self) -> None:
        """Remove entries that nobody needs any more, and the files that only they refer to."""

        def one(partition: TopicPartition) -> None:
            tidy(self.store, Chain(self.store, partition, self.told))

        self._each(one)

    def _each(self, look: Callable[[TopicPartition], T]) -> dict[TopicPartition, T]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            names = sorted(self.ranges)
            return dict(zip(names, pool.map(look, names), strict=True))

    def _behind(self, partition: TopicPartition, tip: Entry, start: int) -> HoldfastError:
        return HoldfastError(
            "STATE_BEHIND",
            f"The state of {partition} stands at {tip.end}, and {self.told} begins at {start}: "
            "what lies between is missing in it.",
            "Set the group's offset of the partition back to where the state stands (`holdfast groups reset-offsets`), "
            "or put the state back that belongs to it. If those records are gone, or are to be left out: "
            f"`holdfast pipeline state PATH --skip-to {partition}={start}`.",
        )

    def _ahead(self, partition: TopicPartition, start: int, found: list[Entry]) -> HoldfastError:
        return HoldfastError(
            "STATE_AHEAD",
            f"{self.told} begins {partition} at {start}, and its state stands at {found[-1].end} and can't go back: "
            f"what came out before {found[0].start} is no longer kept.",
            "Records up to there are counted. Set the group's offset to where the state stands (`holdfast groups "
            "reset-offsets`); or, to do all of it again, use a new path for the state and the output.",
        )


def tidy(store: Store, chain: Chain, *, kept: int = KEPT_ENTRIES) -> int:
    """Shorten a chain to `kept` entries once it is twice as long. Returns how many files were removed."""
    numbers = chain.numbers()
    if len(numbers) < 2 * kept:
        return 0
    old, new = (
        [entry for number in part if (entry := chain.entry(number)) is not None]
        for part in (numbers[:-kept], numbers[-kept:])
    )
    needed = {name for entry in new for name in named_by(entry)}
    unneeded = sorted({name for entry in old for name in named_by(entry)} - needed)
    for number in numbers[:-kept]:  # entries first: a file without an entry does no harm
        store.remove(chain.entry_name(number))
    for name in unneeded:
        store.remove(name)
    return len(unneeded) + len(old)


def named_by(entry: Entry) -> set[str]:
    """The state's own files that an entry refers to. Files in a sink belong to the sink."""
    from holdfast.spark.state.chain import OUTBOX

    return set(entry.files) | {file.name for file in entry.output if file.name.startswith(f"{OUTBOX}/")}
