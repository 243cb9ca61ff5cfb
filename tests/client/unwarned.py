"""That nothing is warned about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def no_warning() -> Iterator[None]:
    """Fails if there is a warning in here. A filter that makes warnings exceptions would not do: ours never stop a
    program, so they are logged then, and a test sees nothing."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    assert not told, [str(one.message) for one in told]
