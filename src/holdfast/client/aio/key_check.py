"""Lets librdkafka check the settings of a consumer that does not use it to read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.aio.oauth import wants_token
from holdfast.client.config.known import as_config_error

FUNCTIONS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit", "rack_cb", "logger")
"""Settings that are objects of the application's own."""

checked: set[int] = set()
"""Hashes of configurations that librdkafka has accepted. Not the settings themselves, which may hold a password."""


def check_keys(config: Mapping[str, Any]) -> None:
    """Once for each set of keys. librdkafka gets no broker, and no callback that can be called: the check must have no
    effect."""
    skipped = ("client.id", "bootstrap.servers", "metadata.broker.list")
    plain = {key: str(value) for key, value in config.items() if key not in FUNCTIONS and key not in skipped}
    plain["group.id"] = "checked"
    seen = hash(frozenset(plain.items()))
    uncalled = {key: config[key] for key in FUNCTIONS if key in config and not callable(config[key])}
    if seen in checked and not uncalled:
        return
    asked = {key: value for key, value in config.items() if key in plain} | uncalled
    if wants_token(config):
        asked["oauth_cb"] = lambda _argument: ("checked", time.time() + 3_600)
    try:
        cimpl.Consumer({**asked, "log_level": 0}).close()
    except ck.KafkaException as error:
        raise as_config_error(error, config) from None
    checked.add(seen)
