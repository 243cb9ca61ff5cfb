"""`holdfast bench broker --hostile`: how a well-behaved client fares while somebody attacks the embedded broker.

The attacks run one after the other, each on a new broker with a data folder, as users run it. Meanwhile a client in
another process produces and sends heartbeats. What counts is the longest time it waited, and the most memory that the
broker took. Attackers, client and broker share the machine, so its load is reported with the figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from holdfast.bench.broker_attacks import ATTACKS, NEEDS_LOGIN
from holdfast.bench.broker_systems import EmbeddedSystem

WAIT_GOAL_MS = 250.0
"""The longest that the well-behaved client's produce or heartbeat may take."""
MEMORY_GOAL_MB = 512.0
LOG_GOAL_MB = 1.0
"""The most that one attack may make the broker log."""

LEAD_S = 1.0
"""The well-behaved client begins before the attack and goes on after it."""
LIMIT_S = 180.0
"""For one process, in case it hangs."""
LOOK_EVERY_S = 0.02
LOGIN = ("polite", "manners")


def run(*, seconds: float, only: str | None = None, say: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    rows = []
    before = os.getloadavg()[0]
    for name in ATTACKS:
        if only is None or name == only:
            rows.append(measure(name, seconds))
            say(_line(rows[-1]))
    load = [round(before, 2), round(os.getloadavg()[0], 2)]
    goals = {"wait_ms": WAIT_GOAL_MS, "resident_mb": MEMORY_GOAL_MB, "log_mb": LOG_GOAL_MB}
    return {"seconds": seconds, "goals": goals, "load": load, "cores": os.cpu_count(), "rows": rows}


def measure(attack: str, seconds: float) -> dict[str, Any]:
    """One attack on a fresh broker."""
    login = LOGIN if attack in NEEDS_LOGIN else None
    system = EmbeddedSystem(*(("--users", "{folder}/users.json") if login else ()))
    try:
        if login:
            _add_user(system, *login)
        system.start()
        resting = system.resident_bytes()
        given = {"bootstrap": system.bootstrap, "login": login}
        polite = _process({"work": "polite", "seconds": seconds + 2 * LEAD_S, **given})
        assert polite.stdout is not None
        if polite.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the well-behaved client did not start:\n{polite.communicate()[1]}")
        time.sleep(LEAD_S)
        attacker = _process({"work": attack, "seconds": seconds, **given})
        most = _watch(system, polite)
        waited = json.loads(_output(polite))
        done = json.loads(_output(attacker))
        return judged_row(attack, waited, done, resting, most, system.log_bytes())
    finally:
        system.close()


def _add_user(system: EmbeddedSystem, name: str, password: str) -> None:
    secret = system.folder / "password"
    secret.write_text(password)
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "broker", "user", "add", name]
    command += ["--users", str(system.folder / "users.json"), "--allow", "all", "--password-file", str(secret)]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)


def _process(given: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast.bench.broker_attacks", json.dumps(given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _watch(system: EmbeddedSystem, polite: subprocess.Popen[str]) -> int:
    """The most memory seen while the well-behaved client works."""
    most, until = 0, time.monotonic() + LIMIT_S
    while polite.poll() is None and time.monotonic() < until:
        most = max(most, system.resident_bytes())
        time.sleep(LOOK_EVERY_S)
    return most


def _output(process: subprocess.Popen[str]) -> str:
    try:
        out, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
    if process.returncode != 0 or not out.strip():
        raise RuntimeError(f"a process of the bench failed:\n{errors}")
    return out.strip().splitlines()[-1]


def judged_row(
    attack: str, waited: dict[str, list[float]], done: dict[str, Any], resting: int, most: int, log: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"attack": attack, "about": (ATTACKS[attack].__doc__ or "").strip(), **done}
    for name, values in waited.items():
        row |= {
            f"{name}_median_ms": statistics.median(values),
            f"{name}_worst_ms": max(values),
            f"{name}s": len(values),
        }
    row |= {"resting_mb": resting / 1e6, "resident_mb": most / 1e6, "log_mb": log / 1e6}
    row["reached"] = (
        max(row["produce_worst_ms"], row["heartbeat_worst_ms"]) <= WAIT_GOAL_MS
        and row["resident_mb"] <= MEMORY_GOAL_MB
        and row["log_mb"] <= LOG_GOAL_MB
        and (attack != "large_frames" or (row["least"] > 0 and row["cut"] == 0))
    )
    return row


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['attack']}: produce {row['produce_worst_ms']:.0f} ms, heartbeat {row['heartbeat_worst_ms']:.0f} ms, "
        f"{row['resident_mb']:.0f} MB, attacker's requests {row['done']}"
    )


def show(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    titles = ("ATTACK", "PRODUCE", "WORST", "HEARTBEAT", "WORST", "RESIDENT", "LOG", "ITS REQUESTS", "")
    for title in titles:
        table.add_column(title, justify="left" if title in ("ATTACK", "") else "right")
    for row in result["rows"]:
        table.add_row(
            row["attack"].replace("_", " "),
            f"{row['produce_median_ms']:.1f} ms",
            f"{row['produce_worst_ms']:.0f} ms",
            f"{row['heartbeat_median_ms']:.1f} ms",
            f"{row['heartbeat_worst_ms']:.0f} ms",
            f"{row['resident_mb']:.0f} MB",
            f"{row['log_mb']:.2f} MB",
            f"{row['done']:,}",
            "reached" if row["reached"] else "MISSED",
        )
    console = Console(width=120)
    console.print(table)
    begin, end = result["load"]
    console.print(
        f"Goals: {WAIT_GOAL_MS:.0f} ms, {MEMORY_GOAL_MB:.0f} MB, {LOG_GOAL_MB:g} MB of log; no large-frame producer "
        f"left out or cut off. Load of the machine on {result['cores']} cores: {begin:.1f} to {end:.1f}."
    )
