"""Faults that were found, each as a small program: on both classes, with the same outcome."""

from __future__ import annotations

import pytest
from dropin_compare import compare_program
from dropin_ledger import judge, still_open, wanted
from dropin_programs import PROGRAMS


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_at_fault_once_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = judge(name, compare_program(name), wanted(), still_open())
    assert not wrong, f"\n{PROGRAMS[name].__doc__}\n{wrong}"
