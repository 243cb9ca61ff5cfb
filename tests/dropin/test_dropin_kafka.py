"""A fair sample of the combinations on a real Apache Kafka: what the embedded broker says is what Kafka says."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from dropin_compare import VARIES, of_combination
from dropin_table import Combination, combinations
from dropin_world import World, kafka_world

from holdfast.testing.kafka import RealKafka

pytestmark = pytest.mark.filterwarnings(f"default:{VARIES}:UserWarning")

SAMPLE = (
    "auto-short/nothing/close",
    "auto-long/nothing/join",
    "auto-long/nothing/leave",
    "auto-long/nothing/resubscribe",
    "auto-long/nothing/join@range",
    "sync/nothing/join",
    "async/nothing/close",
    "message/nothing/close",
    "metadata/nothing/join",
    "stored/nothing/join",
    "hand-auto/nothing/close",
    "hand-sync/nothing/read-on",
    "auto-long/on_assign=incremental_assign-at/join",
    "auto-long/on_assign=assign-at/join@range",
    "auto-long/on_assign=raise/join",
    "auto-long/on_revoke=commit-sync/join",
    "auto-long/on_revoke=raise/join@range",
    "none/on_revoke=commit-offsets/join",
    "stored/on_revoke=store_offsets/join",
    "auto-long/nothing/topic-missing",
    "auto-long/nothing/topic-grown",
)
EVERYTHING = combinations()
ON_KAFKA = [name for name, each in EVERYTHING.items() if each.happening.kafka and name not in SAMPLE]


def judged(name: str, kafka: RealKafka) -> str:
    def worlds(combination: Combination, folder: Path) -> AbstractContextManager[World]:
        return kafka_world(kafka)

    return of_combination(name, EVERYTHING[name], worlds=worlds).wrong()


@pytest.mark.kafka
@pytest.mark.parametrize("name", SAMPLE)
def test_a_program_has_the_same_outcome_on_both_classes_on_kafka(name: str, kafka: RealKafka) -> None:
    wrong = judged(name, kafka)
    assert not wrong, f"\n{wrong}"


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.parametrize("name", ON_KAFKA)
def test_a_program_of_the_long_list_has_the_same_outcome_on_both_classes_on_kafka(name: str, kafka: RealKafka) -> None:
    wrong = judged(name, kafka)
    assert not wrong, f"\n{wrong}"
