"""What a member loads before its first round, and that nothing of it is left for the round."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, sys
ballast = [[] for _ in range({ballast})]
import holdfast.client.consumer
from holdfast.client.member.warm_up import warm_up
before = gc.get_stats()[2]["collections"]
warm_up()
print(json.dumps([gc.get_stats()[2]["collections"] - before, gc.get_count()[2], sorted(sys.modules)]))
"""


def warmed(ballast: int = 0) -> tuple[int, int, list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ballast=ballast)], capture_output=True, text=True, check=True
    )
    collected, pending, modules = json.loads(ran.stdout)
    return collected, pending, modules


def test_the_garbage_collection_that_loading_makes_due_is_made_before_the_first_round() -> None:
    """Symptom: on a join, the moved partitions waited 70 ms and not 35. Cause: Python's first full collection after
    all the imports, 45 ms with every thread stopped, fell between the round's result and the first record."""
    collected, pending, _ = warmed()
    assert collected >= 1
    assert pending == 0


def test_a_program_with_a_large_heap_is_not_stopped_for_ours() -> None:
    collected, _, _ = warmed(ballast=1_000_000)
    assert collected == 0


def test_a_first_plan_does_not_load_masked_arrays() -> None:
    """np.unique loads them, although nobody has any."""
    _, _, modules = warmed()
    assert "numpy" in modules
    assert "numpy.ma" not in modules
