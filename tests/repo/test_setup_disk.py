"""A full disk is told before the set-up begins, not by a traceback from deep inside a build.

The set-up once filled a disk itself: every fresh clone left 1.8 GB of Spark's build in the installer's cache, and the
sixtieth failed with "No space left on device" between warnings about packages.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def setup_with_free_disk(megabytes: int, folder: Path) -> subprocess.CompletedProcess[str]:
    df = folder / "df"
    df.write_text(f"#!/bin/sh\necho Filesystem 1M-blocks Used Available\necho /dev/disk 250000 1 {megabytes} 100% /\n")
    df.chmod(0o755)
    return subprocess.run(
        # `true` in the place of Python: it passes the check of the version, and nothing is installed by it.
        ["bash", "tools/setup.sh", str(folder / "venv")],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": "true"},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_a_full_disk_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    ended = setup_with_free_disk(95, tmp_path)
    assert ended.returncode == 1
    assert "95 MB are free" in ended.stdout and "Make room" in ended.stdout
    assert not (tmp_path / "venv").exists()


def test_with_room_enough_the_set_up_goes_on(tmp_path: Path) -> None:
    assert "are free" not in setup_with_free_disk(5000, tmp_path).stdout
