"""Metrics: names that dashboards know, figures that Prometheus's own parser reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observe_groups import member, places, snapshot
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.telemetry.metrics import prometheus_text
from holdfast.observe.exposition import METRICS, MOST_CULPRITS, exposed
from holdfast.observe.history import History
from holdfast.observe.snapshot import GroupSnapshot

MONITORING = Path(__file__).resolve().parents[2] / "examples" / "monitoring"


def history_of(*looks: GroupSnapshot) -> History:
    history = History()
    for number, look in enumerate(looks):
        history.see(look, number * 1_000.0)
    return history


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found[one.name, frozenset(one.labels.items())] = one.value
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    """Of the one sample that has at least these labels."""
    wanted = set(labels.items())
    found = [each for (known, has), each in samples(text).items() if known == name and wanted <= set(has)]
    assert len(found) <= 1, found
    return found[0] if found else None


def test_of_a_group_that_could_not_be_read_nothing_is_told_that_may_be_otherwise_by_now() -> None:
    """With the brokers gone, lag and state stood still as if they were of now, and no alert fired."""
    text = exposed({"billing": history_of(BEFORE)}, failures={"billing": 3}, unread={"billing"})

    told = {name for name, _ in samples(text)}
    assert not [name for name in told if name.startswith("kafka_")]
    assert not told & {"holdfast_group_state", "holdfast_group_rebalancing", "holdfast_group_partitions"}
    assert value(text, "holdfast_group_failed_looks_total", group="billing") == 3
    assert value(text, "holdfast_group_rebalances_total", group="billing") == 0


BEFORE = snapshot(member("a", 0), member("b", 1), offsets={0: (5, 9), 1: (2, 2)})
AFTER = snapshot(member("a", 0, 1, client='odd "name"\\'), offsets={0: (6, 9), 1: (2, None)})
TEXT = exposed({"billing": history_of(BEFORE, AFTER)}, failures={"billing": 2}, cluster="prod")


def test_lag_has_the_names_of_both_usual_exporters() -> None:
    assert value(TEXT, "kafka_consumergroup_lag", consumergroup="billing", topic="orders", partition="0") == 3
    assert value(TEXT, "kafka_consumergroup_current_offset", consumergroup="billing", partition="1") == 2
    assert value(TEXT, "kafka_consumergroup_lag_sum", consumergroup="billing", topic="orders") == 3
    assert value(TEXT, "kafka_consumergroup_members", consumergroup="billing") == 1
    assert value(TEXT, "kafka_topic_partition_current_offset", topic="orders", partition="0") == 9
    owned = {"cluster_name": "prod", "group": "billing", "topic": "orders", "client_id": 'odd "name"\\'}
    assert value(TEXT, "kafka_consumergroup_group_lag", partition="0", **owned) == 3
    assert value(TEXT, "kafka_consumergroup_group_max_lag", group="billing") == 3


def test_a_figure_that_is_not_known_is_left_out_and_never_a_zero() -> None:
    assert value(TEXT, "kafka_consumergroup_lag", partition="1") is None
    assert value(TEXT, "kafka_topic_partition_current_offset", partition="1") is None


def test_what_was_learnt_by_watching_is_there() -> None:
    assert value(TEXT, "holdfast_group_rebalances_total", group="billing") == 1
    assert value(TEXT, "holdfast_group_rebalances_by_cause_total", cause="leave") == 1
    assert value(TEXT, "holdfast_group_rebalances_by_cause_total", cause="join") == 0
    assert value(TEXT, "holdfast_group_disturbances_total", cause="leave", member="b@10.0.0.1") == 1
    assert value(TEXT, "holdfast_group_moved_partitions_total", group="billing") == 1
    assert value(TEXT, "holdfast_group_state", state="Stable") == 1
    assert value(TEXT, "holdfast_group_failed_looks_total", group="billing") == 2
    assert value(TEXT, "holdfast_group_watched_seconds_total", group="billing") == 1


def test_partitions_are_counted_by_whether_their_owner_has_a_replica_in_its_zone() -> None:
    near, far = member("a", 0, rack="north"), member("b", 1, 2, rack="south")
    racks = {at: frozenset({"north"}) for at in places(0, 1)}
    look = replace(snapshot(near, far), racks=racks)

    text = exposed({"billing": history_of(look)}, failures={})

    counted = {
        one: value(text, "holdfast_group_partitions", placement=one) for one in ("local", "cross-zone", "unknown")
    }
    assert counted == {"local": 1, "cross-zone": 1, "unknown": 1}


def test_the_names_of_culprits_are_bounded() -> None:
    """Pods have new names after each deploy: without a bound the exporter's memory and Prometheus's grow for ever."""
    history = history_of(*[snapshot(member(f"pod-{number}", 0)) for number in range(200)])

    lines = [line for line in exposed({"g": history}, failures={}).splitlines() if "disturbances_total{" in line]

    assert len(lines) == MOST_CULPRITS


def test_every_metric_says_what_it_is() -> None:
    families = {family.name: family for family in text_string_to_metric_families(TEXT)}

    assert all(family.documentation and family.type in ("gauge", "counter") for family in families.values())


def _expressions(found: Any) -> list[str]:
    if isinstance(found, dict):
        own = [found["expr"]] if isinstance(found.get("expr"), str) else []
        return own + [each for one in found.values() for each in _expressions(one)]
    return [each for one in found for each in _expressions(one)] if isinstance(found, list) else []


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_the_examples_ask_for_metrics_that_there_are(file: str) -> None:
    """An alert on a name that nobody exposes never fires, and nobody sees that."""
    expressions = _expressions(json.loads((MONITORING / file).read_text()))
    asked = {name for text in expressions for name in re.findall(r"\b(?:holdfast|kafka)_[a-z_]+", text)}

    assert len(expressions) >= 8
    consumers = prometheus_text({"rebalance-total": 0.0, "fetched-bytes-local-total": 0.0}, group="g", client_id="c")
    assert asked <= set(METRICS) | {name for name, _ in samples(consumers)}


def test_the_price_of_what_crosses_zones_is_a_panel_of_the_dashboard() -> None:
    """A gigabyte an hour across zones is 720 in 30 days: 7.20 dollars at a cent each. What stays local is free."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    (cost,) = [panel for panel in panels if panel["fieldConfig"]["defaults"].get("unit") == "currencyUSD"]
    (target,) = cost["targets"]
    rate, _, factor = target["expr"].partition(")) * ")
    assert 'placement="cross-zone"' in rate and "holdfast_consumer_fetched_bytes_total" in rate
    per_second = 1e9 / 3_600
    value = per_second
    for part in re.split(r" (?=[*/])", f"* {factor}"):
        value = value * float(part[2:]) if part[0] == "*" else value / float(part[2:])
    assert value == pytest.approx(7.20)


def test_the_alerts_are_the_two_that_matter_most_and_more() -> None:
    rules = {
        rule["alert"]: rule
        for group in json.loads((MONITORING / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    }

    assert rules["GroupRebalancesOften"]["expr"] == "increase(holdfast_group_rebalances_total[1h]) > 5"
    assert rules["GroupRebalanceStorm"]["expr"] == "rate(holdfast_group_rebalancing_seconds_total[10m]) > 0.5"
    assert all({"summary", "description"} <= rule["annotations"].keys() for rule in rules.values())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_rules_configuration_and_metrics() -> None:
    """Symptom: this failed wherever promtool is installed. Cause: promtool reads our text, and frowns upon one name
    of kafka_exporter's, which dashboards know. Rule: that name is all it has to say."""
    checks = ["check", "config", str(MONITORING / "prometheus.yaml")]
    subprocess.run(["promtool", *checks], check=True, capture_output=True, timeout=60)
    checks = ["check", "metrics"]
    said = subprocess.run(["promtool", *checks], input=TEXT.encode(), check=False, capture_output=True, timeout=60)
    frowned = 'kafka_consumergroup_lag_sum non-histogram and non-summary metrics should not have "_sum" suffix\n'
    assert said.stderr.decode() == frowned


NOBODY = {"severity": "critical", "group": "g", "state": "Empty"}
FIRES: list[tuple[str, dict[str, str], int, dict[str, str] | None]] = [
    # Symptom: a critical page "has been rebalancing for five minutes" after one look that fell into a rebalance, for
    # the minimum of one sample is that sample. Rule: it must hold for as long as the text says.
    ("GroupDoesNotSettle", {'holdfast_group_rebalancing{group="g"}': "_x8 1 0x40"}, 2, None),
    ("GroupDoesNotSettle", {'holdfast_group_rebalancing{group="g"}': "1x40"}, 4, None),
    (
        "GroupDoesNotSettle",
        {'holdfast_group_rebalancing{group="g"}': "1x40"},
        6,
        {"severity": "critical", "group": "g"},
    ),
    # Symptom: all members of a group had died, its lag grew, and no alert fired below 10,000 records.
    (
        "GroupHasNobody",
        {
            'holdfast_group_state{group="g",state="Empty"}': "1x60",
            'kafka_consumergroup_group_sum_lag{group="g",cluster_name="c"}': "5x60",
        },
        12,
        NOBODY,
    ),
    (
        "GroupHasNobody",
        {
            'holdfast_group_state{group="g",state="Empty"}': "1x60",
            'kafka_consumergroup_group_sum_lag{group="g",cluster_name="c"}': "0x60",
        },
        12,
        None,
    ),
    # Symptom: the exporter was gone, and so was every alert about groups.
    ("GroupExporterDown", {'up{job="holdfast-groups"}': "0x40"}, 6, {"severity": "warning", "job": "holdfast-groups"}),
]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_alerts_fire_when_their_text_is_true_and_not_before(tmp_path: Path) -> None:
    rules = json.loads((MONITORING / "alerts.yaml").read_text())
    for rule in (each for group in rules["groups"] for each in group["rules"]):
        rule["annotations"] = {}  # promtool compares these, too
    (tmp_path / "alerts.yaml").write_text(json.dumps(rules))
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [
                {
                    "eval_time": f"{minutes}m",
                    "alertname": alert,
                    "exp_alerts": [] if labels is None else [{"exp_labels": labels}],
                }
            ],
        }
        for alert, series, minutes, labels in FIRES
    ]
    told = {"rule_files": ["alerts.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(json.dumps(told))

    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_about_how_it_is_now_wait_before_they_page() -> None:
    """What promtool plays, for machines without it."""
    rules = {
        rule["alert"]: rule
        for group in json.loads((MONITORING / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    }

    for name in ("GroupDoesNotSettle", "GroupHasNobody", "GroupExporterDown"):
        assert rules[name].get("for"), name


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())

    assert {"title", "uid", "schemaVersion", "panels", "templating"} <= board.keys()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["targets"], panel["title"]
