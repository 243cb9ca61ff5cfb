"""All 97 methods of Kafka's assignor tests are here: counted by the names in our tests' docstrings."""

from __future__ import annotations

import re
from pathlib import Path

from assign_java_methods import METHODS


def test_every_method_of_kafkas_assignor_tests_has_a_test_that_names_it() -> None:
    named = set()
    for source in sorted(Path(__file__).parent.glob("test_assign_java_*.py")):
        text = source.read_text()
        for docstring in re.findall(r'^def test_\w+\([^"]*?"""(.*?)"""', text, re.DOTALL | re.MULTILINE):
            joined = re.sub(r"Test\.\s+test", "Test.test", docstring)
            named |= set(re.findall(r"Java: (\w+Test\.test\w+)", joined))
    wanted = {f"{name}.{method}" for name, methods in METHODS.items() for method in methods}
    assert len(wanted) == 97
    assert wanted - named == set()
    assert named - wanted == set()
