"""Run the tests again and again on a machine whose cores are busy with something else, and count what fails.

    python tools/busy.py [--times 10] [--load 2] [--at-once 1] [-- pytest arguments]

A test that passes on a quiet machine may still depend on where a thread happens to be. Here the scheduler is made to
try many places: every core is kept busy by a process that only counts, and everything but Spark is run so many times.
A failure stops nothing; each is counted by test. The table at the end names them all, and any failure is exit code 1.

With --at-once 2 two runs keep each other's cores busy, and what counts does so at the lowest priority, where both leave
a core alone: as hard on the tests, and half as long in all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

EVERYTHING_BUT_SPARK = "not (spark or nightly)"

RUN_LIMIT_S = 3 * 60 * 60
"""A run takes half an hour on two busy cores. One that hangs is ended, which counts as a failure."""

LOWEST = 19

Failures = Counter[str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="run the tests on busy cores and count what fails")
    parser.add_argument("--times", type=int, default=10, help="how many runs (10)")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 2, help="processes that keep cores busy")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest")
    given = parser.parse_args(arguments)

    def run(number: int) -> list[str]:
        began = time.monotonic()
        found, ran = one_run(Path(folder) / f"{number}.xml", given.pytest)
        took = time.monotonic() - began
        print(f"[busy] run {number} of {given.times}: {ran} tests, {len(found)} failed, {took:.0f} s", flush=True)
        return found

    nice = LOWEST if given.at_once > 1 else 0
    with (
        busy_cores(given.load, nice),
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(given.at_once) as pool,
    ):
        runs = list(pool.map(run, range(1, given.times + 1)))
    failed = Failures(name for found in runs for name in found)
    print(table(failed, [len(found) for found in runs]))
    return 1 if failed else 0


@contextmanager
def busy_cores(processes: int, nice: int) -> Iterator[None]:
    # Each looks now and then whether we are still there: a killed tool must not leave a busy core behind.
    count = f"import os; os.nice({nice})\nwhile os.getppid() == {os.getpid()}:\n for _ in range(1_000_000): pass"
    load = [subprocess.Popen([sys.executable, "-c", count]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in load:
            each.kill()
            each.wait()


def one_run(report: Path, more: Sequence[str]) -> tuple[list[str], int]:
    """What failed, and how many tests ran. A run without a report failed as a whole."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", EVERYTHING_BUT_SPARK]
    try:
        code = subprocess.run([*command, f"--junitxml={report}", *more], check=False, timeout=RUN_LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        return ["(the run did not end)"], 0
    if not report.exists():
        return [f"(pytest ended with {code} and no report)"], 0
    found, ran = read(report)
    if code != 0 and not found:
        found = [f"(pytest ended with {code})"]
    return found, ran


def read(report: Path) -> tuple[list[str], int]:
    """The failed tests of a JUnit report, each once, and how many there were."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return sorted(bad), len(cases)


def table(failed: Failures, runs: Sequence[int]) -> str:
    clean = sum(1 for count in runs if not count)
    lines = [f"[busy] {len(runs)} runs, {clean} without a failure, {len(failed)} tests failed at least once"]
    lines += [f"  {count:4} x  {name}" for name, count in sorted(failed.items(), key=lambda each: (-each[1], each[0]))]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
