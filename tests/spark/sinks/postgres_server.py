"""A real PostgreSQL for one test run: Debian's binaries, a temporary cluster, a socket in its folder and no port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

START_LIMIT_S = 60.0


def binaries() -> Path:
    """Where initdb and postgres are. A machine without them fails the test, with what to do."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = shutil.which("initdb")
    if found is not None:
        candidates.insert(0, Path(found).resolve().parent)
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    raise AssertionError("PostgreSQL was not found. Run `make postgres` (Debian: apt-get install postgresql).")


class Postgres:
    """Started with the block, gone with it. PostgreSQL refuses to run as root, so root starts it as another user."""

    def __init__(self) -> None:
        self._bin = binaries()
        self._user = next(name for name in ("postgres", "nobody") if _user_exists(name)) if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="hf-pg-", dir="/tmp"))
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.folder} user=holdfast dbname=postgres"

    def __enter__(self) -> Postgres:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        data = self.folder / "data"
        self._run("initdb", "-D", str(data), "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8")
        # Durability is PostgreSQL's own business and not what is tested: without fsync it starts in a moment.
        command = [str(self._bin / "postgres"), "-D", str(data), "-k", str(self.folder), "-h", "", "-F"]
        log = (self.folder / "log").open("wb")
        self._server = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
        log.close()
        self._await()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # "fast": ends open sessions
            self._server.wait(START_LIMIT_S)
        shutil.rmtree(self.folder)

    def _await(self) -> None:
        import psycopg

        deadline = time.monotonic() + START_LIMIT_S
        while True:
            assert self._server is not None
            assert self._server.poll() is None, (self.folder / "log").read_text()
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def _run(self, program: str, *args: str) -> None:
        command = [str(self._bin / program), *args]
        done = subprocess.run(
            command,
            check=False,
            user=self._user,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr


def _user_exists(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
