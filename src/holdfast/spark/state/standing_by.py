"""The follower of a query with `standby`: a driver thread that keeps executors warm for partitions of other members.

Every two seconds it asks the query's reader what to follow, and says in the question how far it is. It looks at the
last entries of those partitions' chains. If enough is new, a small job reads it: a bounded piece
(`following.PIECE_BYTES`), because batches have to wait for it. There is a job at least every 20 seconds, so that Spark
does not stop the workers. The follower ends with its query. Its errors are reported (`holdfast.spark.report`) and the
work is tried again: if a standby does not follow, handovers take longer, but results stay right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark import door
from holdfast.spark.driving import jvm_pid, readers_in
from holdfast.spark.files.store import open_store
from holdfast.spark.standby import followed_in, question
from holdfast.spark.state.chain import Chain
from holdfast.spark.state.following import Book, Piece
from holdfast.spark.state.warming import ANSWER, Warm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.state.runs import Layout

LOOK_S = 2.0
"""How often it looks. In that time a state changes by a few batches, that is, by a few small runs."""
SETTLE_S = 5.0
"""The partitions to follow change in a rebalance. Then the first batches of newly owned partitions come before reading
for others: on few cores they would have to wait for it."""
KEEP_ALIVE_S = 20.0
"""Spark stops a Python worker that was idle for a minute, and starting one takes seconds on busy cores."""
ASK_S = 5.0

_followers: dict[tuple[str, str], Follower] = {}
_lock = threading.Lock()


def follow(
    batch: DataFrame, state: str, options: Mapping[str, str], layout: Layout, standby: int, *, rehearses: bool = False
) -> None:
    """Start the query's follower, which runs until the query ends. Called with every batch; raises the follower's
    failure.

    `rehearses`: nothing waits for this batch, so the follower's first job, which Spark has to compile, runs now.
    """
    from holdfast.spark.batch_ranges import running_query

    query = running_query(batch)
    name = (str(query.runId().toString()), state)
    with _lock:
        for each, one in list(_followers.items()):
            ended = one.ident is not None and not one.is_alive()
            if ended and (each != name or one.failure is None):
                del _followers[each]
        follower = _followers.get(name)
        if follower is None:
            follower = _followers[name] = Follower(query, batch.sparkSession, state, options, layout, standby)
    if follower.ident is None:
        if rehearses:
            follower.rehearse()
        follower.start()
    if follower.failure is not None:
        raise follower.failure


class Follower(threading.Thread):
    """Follows one state of one running query."""

    settle_s = SETTLE_S

    def __init__(
        self,
        query: Any,
        session: SparkSession,
        state: str,
        options: Mapping[str, str],
        layout: Layout,
        standby: int,
    ) -> None:
        super().__init__(name="holdfast-standby", daemon=True)
        self._query, self._session, self._state, self._layout = query, session, state, layout
        self._standby = standby
        self._options = options
        self._driver = jvm_pid()
        self._store = open_store(state, options)
        self.book = Book()
        self._follows: frozenset[TopicPartition] = frozenset()
        self._trouble: str | None = None
        self._worked_at = self._changed_at = 0.0
        self.failure: HoldfastError | None = None
        """An error that the user has to fix."""

    def run(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it publishes no types

        try:
            while self._query.isActive() and self.failure is None:
                self.try_to_look()
                time.sleep(LOOK_S)
        except (Py4JError, OSError):
            pass  # the driver's JVM has ended, and the query with it

    def rehearse(self) -> None:
        self._try(lambda: self._work([]))

    def try_to_look(self) -> None:
        self._try(self._look)

    def _try(self, what: Callable[[], None]) -> None:
        try:
            what()
            self._trouble = None
        except Exception as error:  # noqa: BLE001 - the next question reports it, the next look tries again
            if not self._query.isActive():
                return
            self._trouble = f"{type(error).__name__}: {error}"[:500]

    def _look(self) -> None:
        follows = frozenset(p for reader in self._readers() for p in self._asked(reader))
        if follows != self._follows:
            self._follows, self._changed_at = follows, time.monotonic()
        for partition in sorted(self._follows):
            tip = Chain(self._store, partition, "a standby").tip()
            if tip is not None:
                self.book.saw(partition, tip)
        if time.monotonic() - self._changed_at < self.settle_s:
            return
        pieces = self.book.next(self._follows)
        due = time.monotonic() - self._worked_at >= KEEP_ALIVE_S
        if self.book.worth_it(pieces) or (due and self.book.open(self._follows)):
            self._work(pieces)

    def _asked(self, reader: int) -> frozenset[TopicPartition]:
        told = question(self._state, self.book.followed(self._follows), self._trouble)
        answer = door.ask(self._driver, reader, told, timeout_s=ASK_S)
        if answer["standby"] != self._standby:
            self.failure = standby_differs(self._standby, [answer["standby"]])
        return followed_in(answer)

    def _readers(self) -> list[int]:
        """The process ids of this query's readers. Before its progress names them: the only reader there is."""
        living, progress = door.readers(self._driver), self._query.lastProgress()
        told = readers_in(source.latestOffset() for source in ([] if progress is None else progress.sources()))
        named = [pid for pid in told if pid in living]
        return named or (living if len(living) == 1 else [])

    def _work(self, pieces: list[Piece]) -> None:
        warm = Warm(self._state, self._layout, pieces, self.book.open(self._follows), self._options)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return warm(batches)

        context = self._session.sparkContext
        context.setJobDescription("holdfast: a standby reads what others have written")
        slots = context.defaultParallelism
        answers = self._session.range(0, slots, 1, slots).mapInArrow(task, ANSWER).collect()
        failed = {name for answer in answers for name in answer["failed"]}
        self.book.lost(failed)
        self.book.done(piece for piece in pieces if piece.run.name not in failed)
        self._worked_at = time.monotonic()


def check_standby(rows: DataFrame, standby: int) -> None:
    """Raise if the stream that these rows come from was loaded with another number of followers."""
    from holdfast.spark.options import parse
    from holdfast.spark.plans import plan_of
    from holdfast_hook import NAME

    if rows.isStreaming:  # inside foreachBatch the plan does not show it; there the reader's answer does
        found = [parse(source, streaming=True).sharing.standby for source in plan_of(rows, NAME).sources]
        if any(one != standby for one in found):
            raise standby_differs(standby, found)


def standby_differs(standby: int, found: Iterable[int]) -> HoldfastError:
    loaded = ", ".join(map(str, sorted(set(found))))
    return HoldfastError(
        "STANDBY_DIFFERS",
        f"stateful() was given standby={standby}, and the stream was loaded with kafka.holdfast.standby={loaded}.",
        f'Both must say the same: .option("kafka.holdfast.standby", "{standby or loaded}") before .load(), and '
        f"stateful(…, standby={standby or loaded}). The members of a group choose their assignor when they join.",
    )
