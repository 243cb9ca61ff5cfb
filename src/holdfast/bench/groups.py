"""`holdfast bench groups`: how long a large group takes to settle, and how long a join into it pauses what moves.

Members of one kind, in a few processes, all join at the same moment; there are two partitions for each. The group has
settled when every partition has one owner and nothing has changed for longer than a heartbeat. Then one more member
joins, again and again: a moved partition's pause is from its old owner's revoke to its new owner's assign. The peers,
librdkafka's consumers and optionally Java's, do the same in the same run on a broker of their own. Brokers are a real
Kafka and the embedded one, fresh for each group, at their default settings.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import typer

from holdfast.bench.broker_systems import EmbeddedSystem, KafkaSystem, System
from holdfast.bench.groups_members import Members, NotSettled
from holdfast.bench.output import check_output, report, say
from holdfast.model import HoldfastError

PER_MEMBER = 2
PEERS = ("confluent", "java")
KINDS = ("holdfast", *PEERS)
BROKERS: dict[str, Callable[[], System]] = {
    "kafka": lambda: KafkaSystem(initial_rebalance_delay_ms=None),
    "embedded": lambda: EmbeddedSystem(rebalance_delay_ms=None),
}
PAUSE_SHARE = 0.1
"""The goal: a join into a group of ours pauses partitions for at most this share of the peers' pause."""


def measure(
    make: Callable[[], System], kind: str, *, members: int, processes: int, joins: int, limit_s: float
) -> dict[str, Any]:
    """One group on one broker of its own."""
    system = make()
    partitions = PER_MEMBER * members
    group = Members(kind, "", f"group-{kind}", f"topic-{kind}", partitions, progress=lambda text: say(f"  {text}"))
    try:
        system.start()
        group.bootstrap = system.bootstrap
        create_topic(system.bootstrap, group.topic, partitions)
        group.start(members, processes)
        began = group.tell("go")
        settled_ms = group.settle(limit_s) - began
        sharers, used_s, broker_s = group.sharers, group.cpu_seconds(), system.cpu_seconds()
        pauses: list[float] = []
        for number in range(joins):
            group.pauses.clear()
            group.tell(f"join late-{number}", to=number % processes)
            group.settle(limit_s, moved=True)
            pauses += group.pauses.values()
        return {
            "broker": system.name,
            "kind": kind,
            "members": members,
            "settled_s": round(settled_ms / 1_000.0, 2),
            "owners": sharers,
            "owned_once": group.whole,
            "pause_median_ms": round(statistics.median(pauses), 1) if pauses else None,
            "pause_worst_ms": round(max(pauses), 1) if pauses else None,
            "moved": len(pauses),
            "members_cpu_s": round(used_s, 1),
            "broker_cpu_s": round(broker_s, 1),
            "log_lines": group.log_lines,
            "first_log_line": group.first_log_line,
        }
    finally:
        group.stop()
        system.close()


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if len(found) == partitions and all(one.leader >= 0 for one in found.values()):
            return
        time.sleep(0.1)
    raise NotSettled(f"the {partitions} partitions of {topic} did not get leaders")


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare each of our rows with the fastest of its peers on the same kind of broker, and add the missed goals."""
    for row in rows:
        if row["kind"] != "holdfast":
            continue
        missed = [row["failed"]] if "failed" in row else []
        peers = [peer for peer in rows if peer["kind"] in PEERS and peer["broker"] == row["broker"]]
        settled = [peer["settled_s"] for peer in peers if "settled_s" in peer]
        pauses = [peer["pause_median_ms"] for peer in peers if peer.get("pause_median_ms")]
        row["outlived_peers"] = bool(peers) and not settled and not missed
        if settled and not missed:
            row["settled_ratio"] = round(row["settled_s"] / min(settled), 2)
            if row["settled_ratio"] > 1.0:
                missed.append("settles later than the peers")
            if row["pause_median_ms"] and pauses:
                row["pause_ratio"] = round(row["pause_median_ms"] / min(pauses), 3)
                if row["pause_ratio"] > PAUSE_SHARE:
                    missed.append("a join pauses for more than a tenth of the peers' time")
        row["missed"] = missed
    return rows


def groups(
    members: int = typer.Option(400, min=3, help="Members of each group."),
    processes: int = typer.Option(4, min=1, help="Processes that they share."),
    joins: int = typer.Option(3, min=0, help="Joins into the settled group."),
    brokers: str = typer.Option("kafka,embedded", help="Which brokers, in order."),
    kinds: str = typer.Option("confluent,holdfast", help="Which members, in order: holdfast, confluent, java."),
    limit_s: float = typer.Option(300.0, help="How long a group may take to settle."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """Large groups beside librdkafka's: how long they take to settle, and what a join into one pauses.

    Judged is holdfast beside the quickest of its peers on the same broker: it settles no later, and a join pauses what
    moves for a tenth of their time at most. Exit code 1: not so. The broker kafka and the members java need Java and
    `make kafka-jars`.
    """
    check_output(output)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs every `finally`, which stops brokers and members
    rows: list[dict[str, Any]] = []
    for broker in _chosen(brokers, BROKERS):
        for kind in _chosen(kinds, KINDS):
            say(f"{members} {kind} members on {broker}; load {os.getloadavg()[0]:.1f}")
            try:
                row = measure(BROKERS[broker], kind, members=members, processes=processes, joins=joins, limit_s=limit_s)
            except (NotSettled, HoldfastError, RuntimeError, OSError) as error:  # still measure the other groups
                row = {"kind": kind, "members": members, "failed": str(error)}
            rows.append({**row, "broker": broker})
            say(f"  {_told(rows[-1])}")
    rows = judged(rows)
    report(rows, output, _print, reached=not any(row.get("missed") for row in rows))


def _chosen(given: str, known: Any) -> list[str]:
    names = [name for name in given.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise typer.BadParameter(f"{', '.join(unknown) or 'none'}: choose from {', '.join(known)}")
    return names


def _told(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"failed: {row['failed']}"
    pause = "" if row["pause_median_ms"] is None else f"; a join paused what moved for {row['pause_median_ms']} ms"
    log = f"; {row['log_lines']} lines in the members' logs, the first: {row['first_log_line']}"
    return f"settled in {row['settled_s']} s{pause}{log if row['log_lines'] else ''}"


def verdict(row: dict[str, Any]) -> str:
    """The last column. A row without a peer to compare with has no goal to reach."""
    if row.get("missed"):
        return "; ".join(row["missed"])
    if row.get("outlived_peers"):
        return "settled, and no peer did"
    return "reached" if "settled_ratio" in row else str(row.get("failed", ""))


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Groups of many members (pause: from a moved partition's revoke to its assign)")
    columns = (
        ("broker", "broker"), ("members", "members"), ("kind", "kind"), ("settled_s", "settled, s"),
        ("settled_ratio", "of peers'"), ("pause_median_ms", "pause, ms"), ("pause_worst_ms", "worst"),
        ("pause_ratio", "of peers'"), ("members_cpu_s", "members' CPU, s"), ("broker_cpu_s", "broker's"),
    )  # fmt: skip
    for _, heading in columns:
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(*("" if row.get(key) is None else str(row[key]) for key, _ in columns), verdict(row))
    Console(width=max(130, Console().width)).print(table)
