"""A pipeline's settings: a job, a source, a sink and a Spark. From a small TOML file and from options, which win.

    job = "orders.py"                       # relative to this file
    name = "orders"
    checkpoint = "/data/checkpoints/orders-1"
    trigger = "500ms"                       # or "available-now"

    [source]                                # options of format("holdfast")
    subscribe = "orders"
    "kafka.bootstrap.servers" = "localhost:9092"
    "kafka.group.id" = "billing"

    [sink]                                  # format, and its options
    format = "holdfast-files"
    path = "/data/orders"

    [spark]                                 # master, and Spark's settings
    master = "local[2]"
    "spark.sql.shuffle.partitions" = 2

Pure, except for reading the file. It knows nothing of Spark.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.client.config.known import did_you_mean
from holdfast.model import HoldfastError

FILES = "holdfast-files"
"""The exactly-once file sink."""

FOREACH_BATCH = "foreachBatch"
"""The sink is a function in the job's file: `write(rows, batch_id)`."""

AVAILABLE_NOW = "available-now"

_TOP = frozenset({"job", "name", "checkpoint", "trigger", "source", "sink", "spark"})
_DURATION = re.compile(r"(\d+)\s*(ms|s|m)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The description of one streaming query."""

    job: Path | None = None
    function: str = "transform"
    name: str = ""
    checkpoint: str = ""
    trigger: str = "0ms"
    """The time between the starts of batches, or "available-now"."""
    source: Mapping[str, str] = field(default_factory=dict)
    sink_format: str = FILES
    sink: Mapping[str, str] = field(default_factory=dict)
    master: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def trigger_ms(self) -> int | None:
        """Milliseconds between batches; None for available-now."""
        return None if self.trigger == AVAILABLE_NOW else duration_ms(self.trigger)

    @property
    def group(self) -> str:
        return self.source.get("kafka.group.id", "")


def duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise HoldfastError(
            "INVALID_TRIGGER", f"{text!r} is not a duration.", f"Write 500ms, 5s, 1m, or {AVAILABLE_NOW}."
        )
    return int(found[1]) * _UNITS_MS[found[2]]


def read_toml(path: Path) -> Pipeline:
    """A pipeline from a file. A job's path is relative to that file."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise HoldfastError("CONFIG_UNREADABLE", f"{path}: {error.strerror}.", "Check the path.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HoldfastError("CONFIG_UNREADABLE", f"{path} is not TOML: {error}.", "Fix the line.") from error
    unknown = sorted(found.keys() - _TOP)
    if unknown:
        raise HoldfastError(
            "CONFIG_UNKNOWN_KEY", f"{path} has {', '.join(unknown)}.", f"Known are {', '.join(sorted(_TOP))}."
        )
    sink, spark = _texts(found, "sink", path), _texts(found, "spark", path)
    pipeline = Pipeline(
        name=str(found.get("name", "")),
        checkpoint=str(found.get("checkpoint", "")),
        trigger=str(found.get("trigger", "0ms")),
        source=_texts(found, "source", path),
        sink_format=sink.pop("format", FILES),
        sink=sink,
        master=spark.pop("master", ""),
        spark=spark,
    )
    return with_job(pipeline, str(found["job"]), path.parent) if "job" in found else pipeline


def with_job(pipeline: Pipeline, text: str, relative_to: Path) -> Pipeline:
    """`orders.py` or `orders.py:clean`."""
    name, _, function = text.partition(":")
    return replace(pipeline, job=(relative_to / name).resolve(), function=function or "transform")


def with_options(
    pipeline: Pipeline,
    *,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    spark: Mapping[str, str],
    **plain: str | None,
) -> Pipeline:
    """Options that were given win over the file."""
    given = {key: value for key, value in plain.items() if value is not None}
    return replace(
        pipeline,
        source={**pipeline.source, **source},
        sink={**pipeline.sink, **sink},
        spark={**pipeline.spark, **spark},
        **given,  # type: ignore[arg-type]  # the callers name text fields only
    )


def check(pipeline: Pipeline) -> Pipeline:
    """Raise if anything required is missing, before Spark starts, which takes seconds."""
    missing = [
        ("job", pipeline.job, "Name the job's file."),
        ("kafka.bootstrap.servers", pipeline.source.get("kafka.bootstrap.servers"), "Give --bootstrap-server."),
        ("kafka.group.id", pipeline.group, "Give --group."),
        (
            "subscribe",
            any(key.lower() in ("subscribe", "subscribepattern", "assign") for key in pipeline.source),
            "Give --subscribe.",
        ),
        ("checkpoint", pipeline.checkpoint, "Give --checkpoint a folder of this application's own."),
    ]
    if pipeline.sink_format == FILES:
        missing.append(("the sink's path", pipeline.sink.get("path"), "Give --sink."))
    for what, value, do in missing:
        if not value:
            raise HoldfastError("PIPELINE_INCOMPLETE", f"The pipeline does not say {what}.", do)
    assert pipeline.job is not None
    if not pipeline.job.is_file():
        raise HoldfastError("JOB_NOT_FOUND", f"There is no file {pipeline.job}.", "Check the path.")
    if pipeline.sink_format not in (FILES, FOREACH_BATCH):
        near = did_you_mean(pipeline.sink_format, (FILES, FOREACH_BATCH))
        if near:
            raise HoldfastError("INVALID_OPTION", f"There is no sink of the format {pipeline.sink_format}.", near)
    if pipeline.trigger != AVAILABLE_NOW:
        duration_ms(pipeline.trigger)
    return pipeline


def key_values(texts: list[str], option: str) -> dict[str, str]:
    """The values of options such as `--conf a=b`."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HoldfastError("INVALID_OPTION", f"{option} {text!r} is not KEY=VALUE.", f"Write {option} key=value.")
        found[key] = value
    return found


def _texts(found: Mapping[str, Any], table: str, path: Path) -> dict[str, str]:
    """A table of options as strings, as Spark takes them. Dotted keys may be written with or without quotes."""
    part = found.get(table, {})
    if not isinstance(part, dict):
        raise HoldfastError("CONFIG_UNREADABLE", f"{path}: [{table}] is not a table.", f"Write [{table}] on a line.")
    return dict(_flat(part, ""))


def _flat(part: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for key, value in part.items():
        if isinstance(value, dict):
            flat.extend(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, bool):
            flat.append((prefix + key, "true" if value else "false"))
        else:
            flat.append((prefix + key, str(value)))
    return flat
