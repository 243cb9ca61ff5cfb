"""Running one pipeline: a Spark session, a query that is a group member, progress reports, and a clean end.

It ends with a drain: the query hands its partitions over while it still works, then leaves. If the query fails, the run
ends; with the checkpoint and the sink's ledger, the next run continues where this one stopped.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.model import HoldfastError
from holdfast.spark.checking import check_member, check_topics
from holdfast.spark.explaining import explain
from holdfast.spark.options import parse
from holdfast.spark.pipeline.job import WRITE, check_file, function_of, load_module, transformed
from holdfast.spark.pipeline.progress import Batches, InGroup, Report, count_batches, in_group
from holdfast.spark.pipeline.python import need_pyspark, quick_python, use_bundled_java
from holdfast.spark.pipeline.replacing import Announced, Succession
from holdfast.spark.pipeline.settings import FILES, FOREACH_BATCH, Pipeline
from holdfast.spark.pipeline.warming import warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.1
"""How often to check for the query's end and for signals."""

DRAIN_S = 60.0
"""How long a drain waits for the running batch. Whatever sent SIGTERM will kill us after a while anyway."""

START_ATTEMPTS = 3
"""Spark gives a new Python process 10 seconds to call back, which no setting changes. A busy machine may need another
attempt."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""With a local master no other host needs to reach the driver; by default Spark would listen on the network."""

LOG4J = """rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""
"""Spark's log goes to a file: the terminal is for progress."""


class Run:
    """One run of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        say: Callable[[Report], None],
        trace: Path | None = None,
        log: Path | None = None,
        warms_up: bool = True,
        when: Path | None = None,
        takes_over: bool = False,
    ) -> None:
        """`warms_up`, `when` and `takes_over` are the command's --no-warm-up, --when and --replace."""
        self._pipeline = pipeline
        self._takes_over = takes_over
        self._succession: Succession | None = None
        self._warms_up = warms_up
        self._when = when
        self._say = say
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-pipeline-")
        self._trace = trace
        self._log = log or Path(self._folder.name) / "spark.log"
        self._began = time.monotonic()
        self._in_group = InGroup()
        self._total = 0
        self._seen = -1
        """The last batch that was counted."""
        self._looked_at = self._began
        self._made: SparkSession | None = None

    @property
    def _spark(self) -> SparkSession:
        assert self._made is not None
        return self._made

    def __enter__(self) -> Run:
        """First check everything that needs no Spark; then start Spark, which takes seconds.

        The job is imported once there is a session, because a `@udf` at the top of its file needs one.
        """
        job = self._pipeline.job
        assert job is not None
        try:
            self._check(job)
            self._made = self.start_spark()
            self._open(job)
        except BaseException:
            self._close()
            raise
        return self

    def _check(self, job: Path) -> None:
        source, group = self._pipeline.source, self._pipeline.group
        self._tell("starting", message=f"{job.name}, reads {_what(source)} in group {group}")
        check_file(job, self._functions())
        need_pyspark()
        options = parse(source, streaming=True)
        check_member(options)
        self._check_sink()
        check_topics(options)
        self._tell("starting", message="the brokers answer; Spark starts")

    def _functions(self) -> tuple[str, ...]:
        """What the job's file must have."""
        called = (WRITE,) if self._pipeline.sink_format == FOREACH_BATCH else ()
        return (self._pipeline.function, *called)

    def _check_sink(self) -> None:
        """Of the file sink. What other sinks take, only Spark knows."""
        from holdfast.spark.files.options import parse_writing
        from holdfast.spark.files.sink import check_writable

        if self._pipeline.sink_format == FILES:
            sink = self._pipeline.sink
            check_writable(sink["path"], sink, parse_writing(sink).columns)

    def _open(self, job: Path) -> None:
        pipeline = self._pipeline
        module = load_module(job)
        transform = function_of(module, pipeline.function)
        self._transform = partial(transformed, job, pipeline.function, transform)
        self._write = function_of(module, WRITE) if pipeline.sink_format == FOREACH_BATCH else None
        self._spark.sparkContext.addPyFile(str(job))
        self._rows = self._transform(self._source())
        if self._warms_up:
            self._tell("starting", message="Spark is up; the job is tried on one record")
            self._warm_up()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if self._made is not None:
            self._made.stop()
        self._folder.cleanup()

    def run(self, *, asked: Callable[[], bool], every_s: float, duration_s: float | None) -> None:
        """Run until `asked()` is true, the duration is over, or the query ends by itself."""
        if not self._wait_to_join(asked):
            return self._tell("stopped", message="before it joined")
        if self._takes_over:
            self._succession = Succession(self._pipeline, self._tell)
            self._pipeline = replace(self._pipeline, checkpoint=self._succession.checkpoint)
        with Announced(self._pipeline) as announced:
            self._run(lambda: asked() or announced.asked(), every_s, duration_s)

    def _run(self, asked: Callable[[], bool], every_s: float, duration_s: float | None) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            query = self._start()
            self._tell("started", message=f"group {self._pipeline.group}, {self._spark.sparkContext.master}")
            try:
                return self._follow(query, asked, every_s, duration_s)
            except HoldfastError as error:
                too_slow = "failed to connect back" in error.what and self._seen < 0  # before its first batch
                if not too_slow or attempt == START_ATTEMPTS:
                    raise

    def _wait_to_join(self, asked: Callable[[], bool]) -> bool:
        """Wait for the file of --when, if there is one; False if asked to stop first. Spark is warm by now."""
        if self._when is None:
            return True
        self._tell("ready", message=f"joins when {self._when} is there")
        while not self._when.exists():
            if asked():
                return False
            time.sleep(LOOK_S)
        return True

    # -- starting

    def start_spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        from holdfast.spark import configure, register

        pipeline = self._pipeline
        settings = Path(self._folder.name) / "log4j2.properties"
        settings.write_text(LOG4J.format(level="warn", path=self._log))
        options = pipeline.spark.get("spark.driver.extraJavaOptions", "")
        use_bundled_java()
        local = (pipeline.master or "local").startswith("local")
        if local:
            os.environ.setdefault("PYSPARK_PYTHON", quick_python(Path(self._folder.name)))
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # for the workers of local-cluster
        named = SparkSession.builder.appName(pipeline.name or "holdfast").master(pipeline.master or "local[*]")
        builder = configure(named)
        fixed = {
            **(LOOPBACK if local else {}),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **pipeline.spark,
            "spark.driver.extraJavaOptions": f"{options} -Dlog4j2.configurationFile=file:{settings}".strip(),
        }
        for key, value in sorted(fixed.items()):
            builder = builder.config(key, value)
        with plain_errors("SPARK_DID_NOT_START"):
            spark: SparkSession = builder.getOrCreate()
        self._made = spark
        register(spark)
        return spark

    def _warm_up(self) -> None:
        """An error here is only reported: if it matters, it will come again when the query runs."""
        from pyspark.errors import PySparkException

        pipeline = self._pipeline
        try:
            warm_up(
                self._spark,
                self._transform,
                source=pipeline.source,
                sink_format=pipeline.sink_format,
                sink=pipeline.sink,
                folder=Path(self._folder.name) / "warm-up",
            )
        except (PySparkException, HoldfastError, OSError, TimeoutError) as error:
            self._tell("warm-up", message=f"left out: {explain(error)}")

    def _source(self) -> DataFrame:
        source = dict(self._pipeline.source)
        if self._trace is not None:
            source["kafka.holdfast.trace.file"] = str(self._trace)
        with plain_errors("SOURCE_REFUSED"):
            return self._spark.readStream.format("holdfast").options(**source).load()

    def _start(self) -> StreamingQuery:
        with plain_errors("QUERY_REFUSED"):
            return self._started(self._rows)

    def _started(self, rows: DataFrame) -> StreamingQuery:
        pipeline = self._pipeline
        writer = rows.writeStream.option("checkpointLocation", pipeline.checkpoint).queryName(
            pipeline.name or "holdfast"
        )
        if pipeline.trigger_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{pipeline.trigger_ms} milliseconds")
        if self._write is not None:
            return writer.foreachBatch(self._write).start()
        sink = dict(pipeline.sink)
        if pipeline.sink_format == FILES:
            sink.setdefault("writer", pipeline.name)
        return writer.format(pipeline.sink_format).options(**sink).start()

    # -- running

    def _follow(
        self, query: StreamingQuery, asked: Callable[[], bool], every_s: float, duration_s: float | None
    ) -> None:
        while not self._wait_for_end(query):
            now = time.monotonic()
            if asked() or (duration_s is not None and now - self._began >= duration_s):
                self._tell("draining")
                self._drain(query)
                break
            if self._succession is not None and not self._succession.done:
                self._succession.go_on(joined=self._joined(query))
            if now - self._looked_at >= every_s:
                self._look(query, now)
        self._look(query, time.monotonic())
        self._tell("stopped", message=f"{self._total:,} rows in all")

    def _wait_for_end(self, query: StreamingQuery) -> bool:
        """Wait a moment; True if the query has ended. Raises if it has failed."""
        from pyspark.errors import StreamingQueryException

        try:
            return bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]  # fractions work and are documented
        except StreamingQueryException as error:
            what = explain(error)
            self._tell("failed", message=what)
            raise HoldfastError("QUERY_FAILED", what, "Spark's log says more: give --spark-log FILE.") from error

    def _drain(self, query: StreamingQuery) -> None:
        """Hand over, then stop. A query that can't drain (it is just ending) is simply stopped."""
        from holdfast.spark import drain

        try:
            drain(query, timeout_s=DRAIN_S)
        except HoldfastError as error:
            self._tell("progress", message=f"no drain: {error.what}")
            query.stop()

    def _joined(self, query: StreamingQuery) -> bool:
        """Whether the query is a member yet."""
        from holdfast.spark import report

        try:
            found = report(query) if query.isActive else []
        except HoldfastError:
            return False  # its reader has not started
        return any((in_group(one).generation or 0) > 0 for one in found)

    def _look(self, query: StreamingQuery, now: float) -> None:
        from holdfast.spark import report

        batches = count_batches(query.recentProgress, self._seen)
        self._seen = batches.last_id
        self._total += batches.rows
        try:
            found = report(query) if query.isActive and batches.last_id >= 0 else []
        except HoldfastError:
            found = []  # its reader has not started, or has ended
        if found:
            self._in_group = in_group(found[0])
        elif not query.isActive:
            self._in_group = InGroup(
                member=self._in_group.member,
                generation=self._in_group.generation,
                rebalances=self._in_group.rebalances,
            )
        seconds, self._looked_at = now - self._looked_at, now
        self._tell("progress", batches=batches, seconds=seconds)

    def _tell(self, event: str, *, batches: Batches | None = None, seconds: float = 0.0, message: str = "") -> None:
        self._say(
            Report(
                at_s=time.monotonic() - self._began,
                name=self._pipeline.name or "holdfast",
                event=event,
                in_group=self._in_group,
                batches=batches or Batches(),
                seconds=seconds,
                total_rows=self._total,
                message=message,
            )
        )


@contextmanager
def plain_errors(code: str) -> Iterator[None]:
    """Spark's errors become one line; ours keep their own code and text. PySpark does not wrap all of Java's."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it publishes no types
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = explain(error)
        ours = re.match(r"([A-Z][A-Z0-9_]+): (.*)", said)
        if ours is not None:
            raise HoldfastError(ours[1], ours[2], "") from error
        raise HoldfastError(code, said, "Spark's log says more: give --spark-log FILE.") from error


def _what(source: Mapping[str, str]) -> str:
    names = {key.lower(): value for key, value in source.items()}
    return next((names[key] for key in ("subscribe", "subscribepattern", "assign") if names.get(key)), "nothing")
