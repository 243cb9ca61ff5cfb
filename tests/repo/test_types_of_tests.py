"""The types of all tests are checked, those in a new folder too."""

from __future__ import annotations

import os
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[2]


def folders_with_python(under: Path) -> set[str]:
    """As mypy sees them: it passes over hidden ones, such as the environment of the frameworks' tests."""
    found = set()
    for folder, below, files in os.walk(under):
        below[:] = [name for name in below if not name.startswith(".")]
        if any(name.endswith(".py") for name in files):
            found.add(Path(folder).relative_to(ROOT).as_posix())
    return found


def test_every_folder_of_tests_is_where_the_type_checker_looks() -> None:
    """Tests import the helpers beside them by their plain names. In a folder that `mypy_path` does not list, mypy finds
    no helper; with a helper of the same name in another folder it takes that one for it."""
    config = ConfigParser()
    config.read(ROOT / "tests" / "mypy.ini", encoding="utf-8")
    listed = config["mypy"]["mypy_path"].split()
    assert folders_with_python(ROOT / "tests") - set(listed) == set(), "add them to mypy_path in tests/mypy.ini"
    assert [each for each in listed if not (ROOT / each).is_dir()] == [], "they are gone"
    assert len(listed) == len(set(listed))
