"""The same program, the same outcome: every combination on confluent's class and on ours."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from dropin_compare import VARIES, of_combination, of_program
from dropin_ledger import Allowed, still_open, wanted
from dropin_outcome import Difference
from dropin_programs import PROGRAMS
from dropin_table import combinations, daily

pytestmark = pytest.mark.filterwarnings(f"default:{VARIES}:UserWarning")
EVERYTHING = combinations()
DAILY = daily()
STEADY = (
    "auto-long/nothing/join",
    "stored/nothing/join@range",
    "sync/nothing/resubscribe",
    "auto-long/nothing/restart",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAILY)
def test_a_program_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = of_combination(name, DAILY[name]).wrong()
    assert not wrong, f"\n{wrong}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in EVERYTHING if name not in DAILY])
def test_a_program_of_the_long_list_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = of_combination(name, EVERYTHING[name]).wrong()
    assert not wrong, f"\n{wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("name", STEADY)
def test_confluents_class_has_the_same_outcome_as_itself(name: str) -> None:
    """What varies from run to run can't be compared. If this fails, the harness is at fault, and no consumer."""
    found = of_combination(name, EVERYTHING[name], ("confluent", "confluent")).differences()
    assert not found, "\n" + "\n".join(str(each) for each in found)


@pytest.mark.slow
def test_a_fault_that_is_open_everywhere_is_still_there() -> None:
    """A pattern in open.txt hides much, so it goes at once when its fault is mended."""
    mended = [f"{line.combinations} {line.kind}" for line in still_open().patterns if not _occurs(line)]
    assert not mended, f"no longer open, delete from open.txt: {mended}"


@pytest.mark.nightly
@pytest.mark.parametrize("row", wanted(), ids=lambda row: f"{row.name} {row.combinations} {row.kind}")
def test_a_wanted_difference_is_still_there(row: Allowed) -> None:
    """A row of the table that covers nothing any more would cover the next fault in silence."""
    assert _occurs(row), f"docs/consumer.md: {row.name} no longer differs in {row.kind}: {row.combinations}"


def _occurs(allowed: Allowed) -> bool:
    """Whether some combination that it names differs so."""
    named = (name for name in (*EVERYTHING, *PROGRAMS) if fnmatchcase(name, allowed.combinations))
    return any(allowed.covers(name, each) for name in named for each in _differences(name))


def _differences(name: str) -> list[Difference]:
    comparison = of_program(name) if name in PROGRAMS else of_combination(name, EVERYTHING[name])
    return comparison.differences()
