"""docs/consumer.md is whole: every key, metric, stage and pitfall that the code knows is on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.preflight import STAGES
from holdfast.client.config.rack import Places, places
from holdfast.client.config.settings import HOLDFAST_KEYS, OURS, parse
from holdfast.client.telemetry.metrics import GroupMetrics
from holdfast.model import HoldfastError

PAGE = (Path(__file__).parents[2] / "docs" / "consumer.md").read_text()


@pytest.mark.parametrize("key", sorted({*OURS, *HOLDFAST_KEYS}))
def test_every_key_of_ours_is_on_the_page(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize("metric", sorted(GroupMetrics().snapshot(1.0, assigned=0, heartbeat_at=0.0, lag_max=0)))
def test_every_metric_is_on_the_page(metric: str) -> None:
    assert f"`{metric}`" in PAGE


def test_every_stage_of_a_migration_is_on_the_page() -> None:
    assert [stage for stage in STAGES if f"`{stage}`" not in PAGE] == []


def test_every_variable_that_auto_reads_is_on_the_page() -> None:
    """Each one named on the page changes whom `auto` asks."""
    values = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "GCE_METADATA_HOST": "127.0.0.1:1",
        "HOLDFAST_AZURE_METADATA_ENDPOINT": "http://127.0.0.1:1",
        "HOLDFAST_POD_LABELS": "/elsewhere",
        "HOLDFAST_KUBERNETES_API": "http://127.0.0.1:1",
        "HOLDFAST_SERVICE_ACCOUNT": "/elsewhere",
        "NODE_NAME": "node-7",
    }
    for name, value in values.items():
        assert name in PAGE
        assert places({name: value}) != Places()


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    parsed = parse({"group.id": "g", "bootstrap.servers": "h:1"}, {})
    cells = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `")]
    shown = {
        key.strip(" `"): value.strip(" `")
        for keys, values in cells
        for key, value in zip(keys.split(","), values.split(","), strict=False)
    }
    assert int(shown["session.timeout.ms"]) == parsed.session_timeout_ms
    assert int(shown["heartbeat.interval.ms"]) == parsed.heartbeat_interval_ms
    assert int(shown["max.poll.interval.ms"]) == parsed.max_poll_interval_ms
    assert int(shown["auto.commit.interval.ms"]) == parsed.auto_commit_interval_ms
    assert shown["auto.offset.reset"] == parsed.auto_offset_reset
    for key in ("fetch.wait.max.ms", "fetch.queue.backoff.ms", "queued.min.messages", "fetch.message.max.bytes"):
        assert int(shown[key]) == parsed.librdkafka()[key]
    assert int(shown["holdfast.cooperative.after.ms"]) == parsed.cooperative_after_ms
    for assignors in (parsed.assignors, parsed.eager_assignors):  # of a strategy that nobody named
        assert f"`{','.join(assignor.name for assignor in assignors)}`" in PAGE


def test_a_key_of_holdfasts_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(HoldfastError, match=r"holdfast\.watchdog"):
        parse({"group.id": "g", "bootstrap.servers": "h:1", "holdfast.wachdog": True}, {})
