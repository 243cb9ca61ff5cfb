"""Settings for a typical low-latency service, beside those of a group where they are known.

A classic group's settings live in its members: no broker tells them. They are known from a file of the members, and for
groups of the new protocol, whose timeouts are the broker's, from the group's own settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """One setting of the table for a typical low-latency service."""

    setting: str
    default: str
    low_latency: str
    why: str
    lowest: int
    highest: int


LOW_LATENCY = (
    Advised(
        setting="session.timeout.ms",
        default="45000",
        low_latency="10000",
        lowest=0,
        highest=10_000,
        why="dead consumers are found sooner",
    ),
    Advised(
        setting="heartbeat.interval.ms",
        default="3000",
        low_latency="3000",
        lowest=0,
        highest=3_000,
        why="a third of the session",
    ),
    Advised(
        setting="max.poll.interval.ms",
        default="300000",
        low_latency="30000",
        lowest=0,
        highest=30_000,
        why="a stall is not hidden for minutes",
    ),
    Advised(
        setting="max.poll.records",
        default="500",
        low_latency="50–100",
        lowest=50,
        highest=100,
        why="a batch fits into the poll interval",
    ),
)
CAUTION = "Shorter timeouts rebalance on network hiccups too: watch the rebalance rate after a change."


def latency_rows(known: Mapping[str, str]) -> list[dict[str, str | None]]:
    """The table, the group's own values beside it where they are known."""
    rows: list[dict[str, str | None]] = []
    for one in LOW_LATENCY:
        value = known.get(one.setting)
        fits = value is not None and value.isdigit() and one.lowest <= int(value) <= one.highest
        rows.append(
            {
                "SETTING": one.setting,
                "DEFAULT": one.default,
                "LOW-LATENCY": one.low_latency,
                "THIS-GROUP": value,
                "FITS": None if value is None else "yes" if fits else "no",
                "WHY": one.why,
            }
        )
    return rows


_OF_THE_GROUP = {
    "consumer.session.timeout.ms": "session.timeout.ms",
    "consumer.heartbeat.interval.ms": "heartbeat.interval.ms",
}


def group_settings(told: Mapping[str, str]) -> dict[str, str]:
    """A group's settings on the broker under the names that members have for them."""
    return {_OF_THE_GROUP[name]: value for name, value in told.items() if name in _OF_THE_GROUP}
