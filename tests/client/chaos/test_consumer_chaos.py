"""Members that commit by themselves, hurt in every way: nothing is lost, and nothing is done twice without a fault.

The rule by which it is judged is at the top of `consumer_chaos_judge.py`. To run the long forms alone:

    .venv/bin/python -m pytest -m nightly -s tests/client/chaos

They print what was played and found. CHAOS_SEED and CHAOS_SECONDS in the environment take the place of the usual ones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from consumer_chaos import OURS, Chaos

from holdfast.testing import Broker
from holdfast.testing.kafka import RealKafka

SEED = int(os.environ.get("CHAOS_SEED", "10"))
LONG_S = float(os.environ.get("CHAOS_SECONDS", "600"))
PARTITIONS = 12

SHORT_S = 18.0
"""About 35 s in all, with what must end before it can be judged."""

MIXED = ("holdfast", "asyncio", "confluent", "confluent", "java")


@pytest.mark.slow
def test_a_short_chaos_loses_nothing_and_doubles_nothing_without_a_fault(broker: Broker, tmp_path: Path) -> None:
    """Every kind of fault once, long and short, and whatever the dice add to them."""
    topic = f"chaos-{time.time_ns()}"
    broker.topics.create(topic, partitions=PARTITIONS)
    with Chaos(broker.bootstrap, topic, partitions=PARTITIONS, folder=tmp_path, kinds=OURS, seed=SEED) as chaos:
        chaos.live(SHORT_S, first=("hang", "freeze", "drain", "kill", "murder", "short freeze", "short hang"))
        findings = chaos.finish()
    assert findings.clean, f"seed {SEED}; {tmp_path}\n{findings}\n{chaos.story()}"
    assert {fault.kind for fault in findings.faults} >= {"hung", "frozen", "killed", "murdered"}


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(LONG_S + 900)
@pytest.mark.parametrize(
    ("kinds", "strategy"),
    [
        pytest.param(OURS, "", id="unmixed"),
        pytest.param(MIXED, "cooperative-sticky", id="mixed"),
        pytest.param(MIXED, "range", id="mixed-eager"),
    ],
)
def test_ten_minutes_of_chaos_lose_nothing_and_double_nothing_without_a_fault(
    kafka: RealKafka, tmp_path: Path, kinds: tuple[str, ...], strategy: str
) -> None:
    topic = f"chaos-{'-'.join(kinds)}-{strategy}-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    with Chaos(
        kafka.bootstrap, topic, partitions=PARTITIONS, folder=tmp_path, kinds=kinds, strategy=strategy, seed=SEED
    ) as chaos:
        chaos.live(LONG_S)
        findings = chaos.finish()
    print(f"\nseed {SEED}, {LONG_S:.0f} s, {chaos.story().splitlines()[0]}\n{findings}")
    assert findings.clean, f"seed {SEED}; {tmp_path}\n{findings}\n{chaos.story()}"
    assert findings.faults
