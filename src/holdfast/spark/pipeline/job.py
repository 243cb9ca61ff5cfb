"""A job: a file with a function from DataFrame to DataFrame, imported by its name so that executors can import it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError
from holdfast.spark.explaining import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_file(path: Path) -> None:
    """Check what can be checked without running the file: that its name can be a module's, and that it is Python."""
    if not path.stem.isidentifier() or path.stem in sys.stdlib_module_names:
        raise HoldfastError(
            "JOB_NAME_INVALID", f"{path.name} can't be imported by its name.", "Name it like a module: my_job.py."
        )
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise HoldfastError("JOB_DOES_NOT_LOAD", f"{path.name} is not Python: {error}.", "Fix the line.") from error
    except OSError as error:
        raise HoldfastError("JOB_DOES_NOT_LOAD", f"{path}: {error.strerror}.", "Check its permissions.") from error


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
        raise HoldfastError(
            "JOB_HAS_NO_FUNCTION",
            f"{module.__name__}.py has no function {name}.",
            f"Define `def {name}(rows): …`, or name another one: {module.__name__}.py:other.",
        )
    return found  # type: ignore[no-any-return]  # callable() is all that can be known of it
