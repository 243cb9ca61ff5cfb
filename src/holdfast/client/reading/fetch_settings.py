"""librdkafka's fetch settings, for our own fetcher."""

from __future__ import annotations

from holdfast.client.config.keys import read_committed
from holdfast.client.config.settings import ConsumerConfig
from holdfast.net.flow_values import BEGINNING, END, KIB, NOWHERE, FetchSettings
from holdfast.net.security import as_boolean

RESETS = {"earliest": BEGINNING, "latest": END, "error": NOWHERE}


def fetch_settings(config: ConsumerConfig) -> FetchSettings:
    """librdkafka's keys, with its defaults, for our own fetcher."""
    raw, default = config.raw, FetchSettings()

    def number(default_value: int, *keys: str) -> int:
        return next((int(raw[key]) for key in keys if raw.get(key) is not None), default_value)

    return FetchSettings(
        wait_ms=number(default.wait_ms, "fetch.wait.max.ms"),
        idle_wait_ms=number(default.idle_wait_ms, "fetch.wait.max.ms"),
        min_bytes=number(default.min_bytes, "fetch.min.bytes"),
        max_bytes=number(default.max_bytes, "fetch.max.bytes"),
        partition_bytes=number(default.partition_bytes, "max.partition.fetch.bytes", "fetch.message.max.bytes"),
        queued_bytes=KIB * number(default.queued_bytes // KIB, "queued.max.messages.kbytes"),
        read_committed=read_committed(raw),
        rack=config.rack or "",
        reset=RESETS[config.auto_offset_reset],
        backoff_s=config.retry_backoff_ms / 1_000.0,
        error_backoff_s=number(int(default.error_backoff_s * 1_000), "fetch.error.backoff.ms") / 1_000.0,
        replica_age_s=config.metadata_max_age_ms / 1_000.0,
    )


def wants_crcs(config: ConsumerConfig) -> bool:
    """Checksums are verified unless check.crcs is false: in hardware they cost next to nothing."""
    return as_boolean(config.raw.get("check.crcs")) is not False
