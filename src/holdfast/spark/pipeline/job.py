"""A job: a file with a function from DataFrame to DataFrame, loaded under its own name so that executors can too."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.model import HoldfastError


def load_module(path: Path) -> ModuleType:
    """Import a file under its stem, as an executor does that was sent the file."""
    if not path.stem.isidentifier() or path.stem in sys.stdlib_module_names:
        raise HoldfastError(
            "JOB_NAME_INVALID", f"{path.name} can't be imported by its name.", "Name it like a module: my_job.py."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HoldfastError(
            "JOB_DOES_NOT_LOAD", f"{path.name} raised {type(error).__name__}: {error}.", "Run it with python alone."
        ) from error
    return module


def function_of(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise HoldfastError(
            "JOB_HAS_NO_FUNCTION",
            f"{module.__name__}.py has no function {name}.",
            f"Define `def {name}(rows): …`, or name another one: {module.__name__}.py:other.",
        )
    return found  # type: ignore[no-any-return]  # callable() is all that can be known of it
