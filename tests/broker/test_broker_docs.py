"""docs/broker.md says what the code does: options, APIs with their versions, and limits."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from holdfast.broker.apis import SERVED
from holdfast.broker.batch_check import MOST_BYTES
from holdfast.broker.faults import Faults
from holdfast.broker.limited_log import LINES_A_SECOND
from holdfast.broker.limits import MIB, Limits
from holdfast.broker.security.rules import Operation
from holdfast.broker.storage.config import TOPIC_SETTINGS
from holdfast.cli.broker import app
from holdfast.wire.api import Api
from holdfast.wire.primitives import MAX_ITEMS

DOCS = (Path(__file__).parents[2] / "docs" / "broker.md").read_text(encoding="utf-8")


def test_every_option_is_documented() -> None:
    command = typer.main.get_command(app)
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    documented = set(re.findall(r"--[a-z][a-z-]*|(?<=`)-o", DOCS.split("## What it serves")[0]))

    assert options - {"--output", "--help"} <= documented
    assert documented <= options


def test_every_api_is_documented_with_its_versions() -> None:
    table = DOCS.split("## What it serves")[1].split("Produce is advertised")[0]
    documented = dict(re.findall(r"\| ([A-Z][A-Za-z]+) \| ([0-9–]+)", table))

    def name(api: Api) -> str:
        return "".join(part.capitalize() for part in api.schema.split("_"))

    def span(versions: range) -> str:
        return str(versions[0]) if len(versions) == 1 else f"{versions[0]}–{versions[-1]}"

    assert documented == {name(api): span(versions) for api, versions in SERVED.items()}


def test_the_settings_of_a_topic_that_can_be_changed_are_documented() -> None:
    changeable = {setting.name for setting in TOPIC_SETTINGS if len(setting.choices) != 1 and setting.highest > 1}

    assert changeable == set(re.findall(r"`([a-z]+\.[a-z.]+)`", DOCS.split("## What survives")[0])) & {
        setting.name for setting in TOPIC_SETTINGS
    }


def test_the_operations_of_rules_are_documented() -> None:
    for operation in Operation:
        assert operation.name.lower().replace("_", "-") in DOCS


def test_everything_that_tests_can_do_to_a_broker_is_documented() -> None:
    """`cut_answer` and `change` were there for months, and nobody who read the docs knew."""
    section = DOCS.split("## In tests")[1].split("## How it works")[0]

    for name in (name for name in vars(Faults) if not name.startswith("_") and name != "meet"):
        assert f"`{name}(" in section or f"faults.{name}(" in section, name
    for name in ("advance", "call", "expel", "group", "move_coordinator", "restart", "topics.count", "topics.offsets"):
        assert f"`broker.{name}(" in section, name


def test_the_limits_are_documented_with_their_numbers() -> None:
    limits = Limits()
    table = DOCS.split("## Limits")[1]

    for number in (
        f"{limits.max_frame_bytes // MIB} MiB",
        f"{limits.max_frame_bytes_before_login // 1024} KiB",
        f"{limits.max_bytes_in_flight // MIB} MiB",
        f"{limits.max_bytes_unsent // MIB} MiB | beyond that, the connection",
        f"{limits.max_description_bytes // MIB} MiB, or one group",
        f"{MAX_ITEMS:,}",
        f"{MOST_BYTES // MIB} MiB, else MESSAGE_TOO_LARGE",
        f"{LINES_A_SECOND} a second",
        f"| {limits.max_connections} |",
        f"{limits.frame_seconds:.0f} s",
        f"{limits.idle_seconds / 60:.0f} min",
        f"{limits.max_topics:,}, {limits.max_partitions:,}",
    ):
        assert number in table
