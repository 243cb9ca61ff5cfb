"""The runner of confluent-kafka's own tests: a test that hangs or takes its process along costs that test alone.

A run stood still for hours: pytest-timeout raises inside a test, and one that waits in C, or leaves a thread that the
process waits for, does not hear it. Nobody could tell which it was.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "confluent_tests"

TESTS = """
import os, signal, threading, time
import pytest

def test_a_passes(): pass

def test_b_hangs_and_hears_no_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM, signal.SIGINT})
    time.sleep(3600)

def test_c_fails(): assert 1 == 2

def test_d_ends_the_process(): os._exit(7)

@pytest.mark.skip
def test_e_is_skipped(): pass

def test_f_passes_and_leaves_a_thread_behind():
    threading.Thread(target=time.sleep, args=(3600,)).start()
"""


def limited() -> ModuleType:
    if str(TOOLS) not in sys.path:
        sys.path.insert(0, str(TOOLS))
    return importlib.import_module("limited")


@pytest.mark.slow
def test_a_test_that_hangs_is_killed_and_named_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)]

    found = limited().limited_pytest(options, {}, limit_s=15.0)

    by_name = {test.rsplit("::", 1)[-1]: why for test, why in found.items()}
    assert "no_such_module" in by_name.pop("test_broken.py")
    assert "1 == 2" in by_name.pop("test_c_fails")
    assert by_name == {
        "test_a_passes": "",
        "test_b_hangs_and_hears_no_signal": "it hung: killed after 15 s",
        "test_d_ends_the_process": "the process ended with 7 in the middle of it",
        "test_f_passes_and_leaves_a_thread_behind": "",
    }


def test_a_run_of_which_nothing_was_heard_says_so(tmp_path: Path) -> None:
    found = limited().limited_pytest(["--no-such-option"], {}, limit_s=60.0)
    assert list(found) == ["collecting the tests"]
    assert "ended with" in found["collecting the tests"]
