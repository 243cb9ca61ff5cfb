"""The same requests to the embedded broker and to a real Kafka: the same answers, but for a list.

The list stands in docs/broker.md under "Where it differs from Kafka", with the reason of each; here is which cases
belong to which line of it. A difference that is not listed fails, and so does a line that is no longer true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from differential import Case, Peer
from differential_odd import odd_cases
from differential_versions import every_version

from holdfast.broker.apis import SERVED
from holdfast.testing.broker import Broker
from holdfast.testing.kafka import RealKafka

DOCS = Path(__file__).parents[2] / "docs" / "broker.md"

DEVIATIONS = {
    "auto-create*": "missing topics are created at once",
    "batch-unknown-codec": "compression that is not what it says",
    "batch-*-flag-over-plain": "compression that is not what it says",
    "batch-record-with-a-false-offset": "offsets within a batch",
    "batch-time-that-runs-over": "a record's timestamp that does not fit into 64 bits",
    "batch-false-latest-time": "the latest timestamp in a batch's header",
    "batch-far-future": "which records were wrong",
    "batch-append-time-to-append-time": "which records were wrong",
    "describe_configs-v*": "size of a segment",
    "incremental_alter_configs-v*": "an operation on settings that does not exist",
    "offset_delete-v*": "a group without members and offsets",
    "produce-with-a-transaction": "transactions",
    "init-producer-id-with-a-transaction": "transactions",
    "find-coordinator-of-a-transaction": "transactions",
    "add-partitions-to-a-transaction-is-served": "transactions",
    "produce-behind-a-refused-batch": (
        "batches of an idempotent producer that a partition does not know, behind one that was refused for now"
    ),
    "describe-groups-twice": "names that are repeated",
    "describe-configs-twice": "names that are repeated",
    "alter-configs-twice": "names that are repeated",
    "describe-acls-is-served": "rules and users over the wire",
    "describe-user-scram-credentials-is-served": "rules and users over the wire",
}


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, tuple[Any, Any]]]:
    """What Kafka and what we answer, by case."""
    cases = dict([*every_version(), *odd_cases()])
    with RealKafka() as kafka, Broker() as ours:
        found = [_ask_all(bootstrap, cases) for bootstrap in (kafka.bootstrap, ours.bootstrap)]
    yield {name: (found[0][name], found[1][name]) for name in cases}


def _ask_all(bootstrap: str, cases: dict[str, Case]) -> dict[str, Any]:
    peer = Peer(bootstrap)
    try:
        return {name: case(peer) for name, case in cases.items()}
    finally:
        peer.close()


def listed() -> set[str]:
    """The first column of the list in the documentation."""
    section = DOCS.read_text().split("## Where it differs from Kafka")[1].split("\n## ")[0]
    return set(re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)) - {"what", "---"}


@pytest.mark.kafka
def test_whatever_is_answered_otherwise_than_by_kafka_is_listed(answers: dict[str, tuple[Any, Any]]) -> None:
    different = {name: pair for name, pair in answers.items() if pair[0] != pair[1]}
    unlisted = {
        name: f"\nkafka {pair[0]}\nours  {pair[1]}"
        for name, pair in different.items()
        if not any(fnmatch(name, pattern) for pattern in DEVIATIONS)
    }
    assert not unlisted, "\n".join(f"{name}: {text}" for name, text in unlisted.items())


@pytest.mark.kafka
def test_every_line_of_the_list_is_still_true(answers: dict[str, tuple[Any, Any]]) -> None:
    different = [name for name, pair in answers.items() if pair[0] != pair[1]]
    stale = [pattern for pattern in DEVIATIONS if not any(fnmatch(name, pattern) for name in different)]
    assert stale == []


def test_the_list_is_in_the_documentation_with_nothing_else_in_it() -> None:
    assert listed() == set(DEVIATIONS.values())


def test_every_version_of_every_api_is_compared() -> None:
    names = {name for name, _ in every_version()}
    assert names == {f"{api.name.lower()}-v{version}" for api, versions in SERVED.items() for version in versions}
