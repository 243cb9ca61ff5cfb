"""A history as rows of plain values: what is written as Parquet, printed, and drawn.

Every table is bounded: a rebalance storm of a day must not fill a driver. The group's row says how much was left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.doctor.events import Event
from holdfast.doctor.finding import Finding
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import History, history_of
from holdfast.doctor.replay import with_savings
from holdfast.doctor.rounds import Rebalance

Row = dict[str, Any]

GROUPS, FINDINGS, REBALANCES, LIVES, LANES, PAUSES = "groups", "findings", "rebalances", "lives", "lanes", "pauses"

COLUMNS: Mapping[str, str] = {
    GROUPS: "group STRING, protocol STRING, cooperative BOOLEAN, new_protocol BOOLEAN, first_ms DOUBLE, "
    "last_ms DOUBLE, members INT, partitions INT, rebalances INT, findings INT, share_rebalancing DOUBLE, "
    "partition_seconds DOUBLE, "
    "measured BOOLEAN, from_coordinator BOOLEAN, events INT, causes MAP<STRING,INT>, clocks_off_ms MAP<STRING,DOUBLE>, "
    "left_out MAP<STRING,INT>",
    FINDINGS: "group STRING, kind STRING, culprit STRING, host STRING, times INT, what STRING, cost_partition_seconds "
    "DOUBLE, measured BOOLEAN, change MAP<STRING,STRING>, do STRING, saves_partition_seconds DOUBLE, saves_how STRING, "
    "evidence ARRAY<STRUCT<at_ms DOUBLE, what STRING, where STRING>>",
    REBALANCES: "group STRING, generation INT, rounds INT, trigger STRING, culprit STRING, host STRING, reason STRING, "
    "began_ms DOUBLE, ended_ms DOUBLE, took_ms DOUBLE, waited_ms DOUBLE, planned_ms DOUBLE, synced_ms DOUBLE, "
    "between_ms DOUBLE, slowest STRING, joined ARRAY<STRING>, left ARRAY<STRING>, moved INT, needlessly_moved INT, "
    "partition_seconds DOUBLE, measured BOOLEAN, where STRING",
    LIVES: "group STRING, member STRING, client STRING, instance STRING, host STRING, name STRING, from_ms DOUBLE, "
    "to_ms DOUBLE, how STRING, where STRING",
    LANES: "group STRING, partition STRING, who STRING, from_ms DOUBLE, to_ms DOUBLE",
    PAUSES: "group STRING, partition STRING, from_ms DOUBLE, to_ms DOUBLE, before STRING, after STRING, "
    "measured BOOLEAN",
}
"""Spark's schema of each table."""

KEPT: Mapping[str, int] = {REBALANCES: 5_000, LIVES: 5_000, LANES: 20_000, PAUSES: 20_000}


def examined(group: str, events: list[Event]) -> Iterator[tuple[str, Row]]:
    """Everything about one group: its history, its findings, and what the proposed changes would save."""
    history = history_of(group, events)
    found = with_savings(history, findings_of(history))
    yield from rows_of(history, found)


def rows_of(history: History, found: list[Finding]) -> Iterator[tuple[str, Row]]:
    tables: dict[str, list[Row]] = {
        REBALANCES: [_rebalance(one) for one in history.rebalances],
        LIVES: [
            {
                "member": life.member, "client": life.client, "instance": life.instance, "host": life.host,
                "name": life.name, "from_ms": life.from_ms, "to_ms": life.to_ms, "how": life.how, "where": life.where,
            }
            for life in history.people.lives.values()
        ],
        LANES: [
            {"partition": one.partition, "who": one.who, "from_ms": one.from_ms, "to_ms": one.to_ms}
            for one in history.lanes.lanes
        ],
        PAUSES: [
            {
                "partition": one.partition, "from_ms": one.from_ms, "to_ms": one.to_ms, "before": one.before,
                "after": one.after, "measured": one.measured,
            }
            for one in history.lanes.pauses
        ],
    }  # fmt: skip
    left_out = {name: len(rows) - KEPT[name] for name, rows in tables.items() if len(rows) > KEPT[name]}
    yield GROUPS, _with_group(history, _group(history, found) | {"left_out": left_out})
    for one in found:
        yield FINDINGS, _with_group(history, _finding(one))
    for name, rows in tables.items():
        for row in rows[: KEPT[name]]:
            yield name, _with_group(history, row)


def _with_group(history: History, row: Row) -> Row:
    """The row with its group, and None for NaN, which JSON does not have."""
    return {
        "group": history.group,
        **{key: None if isinstance(value, float) and value != value else value for key, value in row.items()},
    }


def _group(history: History, found: list[Finding]) -> Row:
    return {
        "protocol": history.protocol,
        "cooperative": history.cooperative,
        "new_protocol": history.level == "consumer",
        "first_ms": history.first_ms,
        "last_ms": history.last_ms,
        "members": history.members,
        "partitions": history.partitions,
        "rebalances": len(history.disturbances),
        "findings": len(found),
        "share_rebalancing": history.share,
        "partition_seconds": history.partition_ms / 1000,
        "measured": any(one.measured for one in history.disturbances),
        "from_coordinator": history.from_coordinator,
        "events": len(history.events),
        "causes": dict(sorted(history.causes().items())),
        "clocks_off_ms": history.off_ms,
    }


def _finding(one: Finding) -> Row:
    return {
        "kind": one.kind,
        "culprit": one.culprit,
        "host": one.host,
        "times": one.times,
        "what": one.what,
        "cost_partition_seconds": one.cost_ms / 1000,
        "measured": one.measured,
        "change": one.change,
        "do": one.do,
        "saves_partition_seconds": one.saves_ms / 1000,
        "saves_how": one.saves_how,
        "evidence": [
            {"at_ms": each.at_ms if each.at_ms == each.at_ms else None, "what": each.what, "where": each.where}
            for each in one.evidence
        ],
    }


def _rebalance(one: Rebalance) -> Row:
    return {
        "generation": one.generation,
        "rounds": len(one.rounds),
        "trigger": one.trigger,
        "culprit": one.who,
        "host": one.host,
        "reason": one.rounds[0].reason,
        "began_ms": one.began_ms,
        "ended_ms": one.ended_ms,
        "took_ms": one.took_ms,
        "waited_ms": one.waited_ms,
        "planned_ms": one.planned_ms,
        "synced_ms": one.synced_ms,
        "between_ms": one.between_ms,
        "slowest": one.slowest,
        "joined": one.joined,
        "left": one.left,
        "moved": one.moved if one.moved >= 0 else None,
        "needlessly_moved": one.needless if one.needless >= 0 else None,
        "partition_seconds": one.partition_ms / 1000,
        "measured": one.measured,
        "where": one.where,
    }
