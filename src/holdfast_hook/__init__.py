"""Has plain PySpark programs look at their queries' plans. Imported at the start of every Python of the environment.

`holdfast_hook.pth` imports it, because nobody else does in a driver: Spark looks for `pyspark_holdfast` in its own
workers only. A Python that never loads PySpark's streaming module pays one comparison per import. Nothing else is
loaded before `format("holdfast")` is called; that imports `holdfast.spark`, whose guard takes over.

It must never fail: an error here would meet every Python of the environment at its start.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself would cost every start ten times as much as all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

MODULE = "pyspark.sql.streaming.readwriter"
NAME = "holdfast"


def when_loaded(act: Callable[[Any], None]) -> None:
    """Call `act` with PySpark's module of stream readers and writers: now, or as soon as somebody loads it."""
    module = sys.modules.get(MODULE)
    if module is not None:
        act(module)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.acts.append(act)
            return
    sys.meta_path.insert(0, _Finder(act))


def install() -> None:
    when_loaded(_watch)


def _watch(module: Any) -> None:
    reader = module.DataStreamReader
    plain = reader.format

    def format(self: Any, source: str) -> Any:
        if str(source).lower() == NAME and reader.format is format:
            import holdfast.spark  # noqa: F401  # its guard wraps this method once more

            if reader.format is not format:
                return reader.format(self, source)
        return plain(self, source)

    format.__doc__, format.__wrapped__ = plain.__doc__, plain  # type: ignore[attr-defined]  # as functools.wraps does
    reader.format = format


class _Finder:
    """On the way to PySpark's module, once."""

    def __init__(self, act: Callable[[Any], None]) -> None:
        self.acts = [act]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.acts)  # type: ignore[assignment]  # it does what a loader does
        return spec


class _Loader:
    """PySpark's own loader, and then what was to be done."""

    def __init__(self, real: Any, acts: Sequence[Callable[[Any], None]]) -> None:
        self._real = real
        self._acts = acts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        for act in self._acts:
            act(module)
