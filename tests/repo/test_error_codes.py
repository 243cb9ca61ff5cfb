"""The page of error codes is what the source says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("error_codes", ROOT / "tools" / "error_codes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


def test_the_page_of_error_codes_is_what_the_source_says() -> None:
    """Run `python tools/error_codes.py` when this fails."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert tool().written(page) == page


def test_every_code_says_what_happened_and_what_to_do() -> None:
    told = tool().found()
    assert len({each.code for each in told}) > 150
    assert all(each.what and each.do for each in told)
