"""A job: a file with a function from DataFrame to DataFrame, imported by its name so that executors can import it."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError
from holdfast.spark.explaining import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


WRITE = "write"
"""The function that is the sink of foreachBatch."""

DYNAMIC = frozenset({"globals", "vars", "locals", "exec", "eval", "setattr", "__getattr__"})
"""What these give a module can't be read in its text."""


def check_file(path: Path, functions: Sequence[str] = ()) -> None:
    """Check what can be checked without running the file: that its name can be a module's, that it is Python, and that
    it has these functions."""
    if not path.stem.isidentifier() or path.stem in sys.stdlib_module_names:
        raise HoldfastError(
            "JOB_NAME_INVALID", f"{path.name} can't be imported by its name.", "Name it like a module: my_job.py."
        )
    try:
        text = path.read_bytes()
        compile(text, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise HoldfastError("JOB_DOES_NOT_LOAD", f"{path.name} is not Python: {error}.", "Fix the line.") from error
    except OSError as error:
        raise HoldfastError("JOB_DOES_NOT_LOAD", f"{path}: {error.strerror}.", "Check its permissions.") from error
    tree = ast.parse(text)
    names = names_in(tree)
    for function in functions:
        if names is not None and function not in names:
            there = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
            raise no_function(path.stem, function, there)


def names_in(tree: ast.Module) -> set[str] | None:
    """Every name that the module may have once it is imported; None if its text does not tell, as with `import *`."""
    found: set[str] = set()
    for node in _at_the_top(tree):
        if isinstance(node, _SCOPES):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    everywhere = list(ast.walk(tree))
    found.update(name for node in everywhere if isinstance(node, ast.Global) for name in node.names)
    used = {node.id for node in everywhere if isinstance(node, ast.Name)}
    return None if "*" in found or (found | used) & DYNAMIC else found


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that are not inside a function or a class."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _at_the_top(child)


def load_module(path: Path) -> ModuleType:
    """Import a file under its stem, as an executor that got the file does."""
    check_file(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HoldfastError("JOB_DOES_NOT_LOAD", f"{_raised(path, error)}.", "Fix it; see --debug for more.") from error
    return module


def transformed(path: Path, function: str, transform: Callable[[Any], Any], rows: DataFrame) -> DataFrame:
    """The rows as the job transforms them. An error in the job becomes one line."""
    try:
        made = transform(rows)
    except HoldfastError:
        raise
    except Exception as error:
        what = f"{function} of {_raised(path, error)}."
        raise HoldfastError("JOB_FAILED", what, "Fix the job; see --debug for more.") from error
    from pyspark.sql import DataFrame as Rows

    if not isinstance(made, Rows):
        raise HoldfastError(
            "JOB_RETURNED_NO_ROWS",
            f"{function} of {path.name} returned {type(made).__name__} and not a DataFrame.",
            "End it with `return rows`.",
        )
    return made


def _raised(path: Path, error: BaseException) -> str:
    """What was raised and in which line of the job, without the rest of the trace."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    at = f", line {lines[-1]}," if lines else ""
    said = str(error).strip()
    text = explain(error) if "\n" in said or not said else said
    name = type(error).__name__
    return f"{path.name}{at} raised {name}{'' if text.startswith(name) else ': ' + text if said else ''}".rstrip(".")


def function_of(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise no_function(
            module.__name__, name, [key for key, one in vars(module).items() if _is_job(module, key, one)]
        )
    return found  # type: ignore[no-any-return]  # callable() is all that can be known of it


def _is_job(module: ModuleType, name: str, value: object) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")


def no_function(job: str, name: str, there: Sequence[str]) -> HoldfastError:
    """`there`: the functions that its file has."""
    has = f"it has {', '.join(there)}" if there else "it has none"
    parameters = "rows, batch_id" if name == WRITE else "rows"
    others = [one for one in there if one != WRITE]
    near = (difflib.get_close_matches(name, others, n=1) or others)[:1]
    another = f", or name another one: {job}.py:{near[0]}" if near and name != WRITE else ""
    return HoldfastError(
        "JOB_HAS_NO_FUNCTION",
        f"{job}.py has no function {name}: {has}.",
        f"Define `def {name}({parameters}): …`{another}.",
    )
