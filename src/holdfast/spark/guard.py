"""Checks a query's plan before it starts, and refuses queries whose results would be wrong.

A query's reader is a process that sees only offsets; the plan is in the driver. So the check runs in the driver's
Python. Importing `holdfast.spark` wraps some methods of PySpark, and so does the first `format("holdfast")` of a
program that does not import it (`holdfast_hook`). `readStream.format("holdfast")` marks the source as one whose plan
will be checked; `start` and `toTable` check the plan. And `load` names the cause if Spark does not find us. A reader
without the mark does not join a group (PLAN_NOT_SEEN). That is the case if holdfast is missing in the driver's Python,
with Spark Connect, and if Scala starts the query; the user then has to say whether the query keeps state.

Nothing is imported here: if PySpark is imported later, its module is wrapped then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import combinations
from typing import TYPE_CHECKING, Any

from holdfast.spark.sharing import PLAN, SEEN, collide, stateful_in_a_group, two_in_one_group
from holdfast_hook import NAME, when_loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRAPPED = "_holdfast_wrapped"


def install() -> None:
    """Wrap PySpark's reader and writer of streams, now or when they are loaded."""
    when_loaded(wrap)


def wrap(module: Any) -> None:
    reader, writer = module.DataStreamReader, module.DataStreamWriter
    if getattr(writer, WRAPPED, False):
        return
    reader.format = _marking(reader.format)
    reader.load = _explaining(reader.load)
    writer.start = _checking(writer.start)
    writer.toTable = _checking(writer.toTable)
    setattr(writer, WRAPPED, True)


def _marking(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def format(self: Any, source: str) -> Any:
        found = original(self, source)
        return found.option(f"kafka.{PLAN}", SEEN) if str(source).lower() == NAME else found

    return format


def _explaining(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except Exception as error:
            from holdfast.spark.explaining import not_found

            if (cause := not_found(str(error))) is not None:
                raise cause from error
            raise

    return load


def _checking(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self._df)
        return original(self, *args, **kwargs)

    return start


def check(frame: DataFrame) -> None:
    """Raise if this query's results would be wrong."""
    from holdfast.spark.plans import plan_of

    plan = plan_of(frame, NAME)
    check_plan(plan.sources, plan.operators)


def check_plan(sources: Sequence[Mapping[str, str]], operators: Sequence[str]) -> None:
    from holdfast.spark.options import parse

    found = [parse(source, streaming=True) for source in sources]
    for one in found:
        if operators and not one.assigned and not one.sharing.alone:
            raise stateful_in_a_group(operators, one.group)
    for one, other in combinations(found, 2):
        if collide(one.claim, other.claim):
            raise two_in_one_group(one.group, one.topic_names)
