"""docs/edge-cases.md says which test stands for which known fault; here it is held to it."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
COVERED_AT_LEAST = 40
"""What the ground floor must hold by itself; the number only rises."""


@cache
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edge_cases", ROOT / "tools" / "edge_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_tests_say() -> None:
    edge_cases = tool()
    text = edge_cases.TABLE.read_text("utf-8")
    assert edge_cases.rendered(text) == text, "run `python tools/edge_cases.py`"


def test_every_known_fault_has_a_row() -> None:
    edge_cases = tool()
    rows = [
        m.group(1) for line in edge_cases.TABLE.read_text("utf-8").splitlines() if (m := edge_cases.ROW.match(line))
    ]
    expected = [f"A{n}" for n in range(1, 26)] + [f"B{n}" for n in range(26, 59)] + [f"C{n}" for n in range(59, 73)]
    assert rows == expected


def test_no_test_claims_a_fault_that_is_not_listed() -> None:
    edge_cases = tool()
    text = edge_cases.TABLE.read_text("utf-8")
    assert [edge for edge in sorted(edge_cases.claims()) if f"| {edge} |" not in text] == []


def test_enough_of_the_known_faults_are_covered() -> None:
    edge_cases = tool()
    assert len(edge_cases.claims()) >= COVERED_AT_LEAST
