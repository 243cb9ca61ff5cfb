"""Faults that were found, each as a small program: on both classes, with the same outcome."""

from __future__ import annotations

import pytest
from dropin_compare import VARIES, of_program
from dropin_programs import PROGRAMS

pytestmark = pytest.mark.filterwarnings(f"default:{VARIES}:UserWarning")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_at_fault_once_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = of_program(name).wrong()
    assert not wrong, f"\n{PROGRAMS[name].__doc__}\n{wrong}"
