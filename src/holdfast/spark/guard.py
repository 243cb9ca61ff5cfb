"""Looks at a query's plan before it starts, and refuses what can't be right.

The reader of a query is a process that sees offsets and nothing else; the plan is in the driver. So the driver's Python
looks: importing `holdfast.spark` wraps three methods of PySpark. `readStream.format("holdfast")` notes on the source
that its plan is going to be seen, and `start` and `toTable` look at the plan of what is started. A reader without the
note does not join a group (PLAN_NOT_SEEN): a program that never imports `holdfast.spark`, a client of Spark Connect and
a query that is started from Scala are asked to say whether they keep state.

Nothing is loaded here: if PySpark comes later, its module is wrapped when it comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder
from itertools import combinations
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.spark.sharing import PLAN, SEEN, collide, stateful_in_a_group, two_in_one_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODULE = "pyspark.sql.streaming.readwriter"
NAME = "holdfast"
WRAPPED = "_holdfast_wrapped"


def install() -> None:
    """Wrap PySpark's reader and writer of streams, now or when they are loaded."""
    module = sys.modules.get(MODULE)
    if module is not None:
        wrap(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def wrap(module: Any) -> None:
    reader, writer = module.DataStreamReader, module.DataStreamWriter
    if getattr(writer, WRAPPED, False):
        return
    reader.format = _noting(reader.format)
    writer.start = _looking(writer.start)
    writer.toTable = _looking(writer.toTable)
    setattr(writer, WRAPPED, True)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def format(self: Any, source: str) -> Any:
        found = original(self, source)
        return found.option(f"kafka.{PLAN}", SEEN) if str(source).lower() == NAME else found

    return format


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self._df)
        return original(self, *args, **kwargs)

    return start


def check(frame: DataFrame) -> None:
    """Raise what this query would do wrong."""
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


class _Finder:
    """On the way to PySpark's module, once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # it does what a loader does
        return spec


class _Loader:
    """PySpark's own loader, and then the wrapping."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        wrap(module)
