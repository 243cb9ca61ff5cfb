"""Settings as Kafka's config APIs show and change them: topics' (in the store), and the broker's own, which are
read-only.

Topics have the settings of `storage.config`. What is not set has the broker's default, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.broker.settings import BrokerSettings
from holdfast.broker.storage.config import TOPIC_SETTINGS, Setting

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4

DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
"""Kafka's numbers for where a value comes from."""

_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "list": 7}


def topic_entries(
    configs: Mapping[str, str],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[dict[str, Any]]:
    """A topic's settings for an answer: all of them, or those named."""
    wanted = None if names is None else frozenset(names)
    return [
        _topic_entry(setting, configs.get(setting.name), synonyms=synonyms, documentation=documentation)
        for setting in TOPIC_SETTINGS
        if wanted is None or setting.name in wanted
    ]


def _topic_entry(setting: Setting, value: str | None, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
    source = DEFAULT if value is None else DYNAMIC_TOPIC
    shown = setting.default if value is None else value
    known = [{"name": setting.name, "value": shown, "source": source}]
    if value is not None:
        known.append({"name": setting.name, "value": setting.default, "source": DEFAULT})
    return {
        "name": setting.name,
        "value": shown,
        "config_source": source,
        "synonyms": known if synonyms else [],
        "config_type": _TYPES[setting.kind],
        "documentation": setting.doc if documentation else None,
    }


def broker_settings(settings: BrokerSettings) -> dict[str, tuple[str, str]]:
    """The broker's own settings under Kafka's names: value and Kafka's type."""
    groups = settings.groups
    return {
        "auto.create.topics.enable": (str(settings.auto_create_topics).lower(), "boolean"),
        "connections.max.idle.ms": (str(int(settings.limits.idle_seconds * 1000)), "long"),
        "default.replication.factor": ("1", "int"),
        "group.initial.rebalance.delay.ms": (str(int(groups.group_initial_rebalance_delay_ms)), "int"),
        "group.max.session.timeout.ms": (str(groups.group_max_session_timeout_ms), "int"),
        "group.max.size": (str(groups.group_max_size), "int"),
        "group.min.session.timeout.ms": (str(groups.group_min_session_timeout_ms), "int"),
        "max.connections": (str(settings.limits.max_connections), "int"),
        "num.partitions": (str(settings.default_partitions), "int"),
        "offset.metadata.max.bytes": (str(groups.offset_metadata_max_bytes), "int"),
        "offsets.retention.minutes": (str(int(groups.offsets_retention_ms // 60_000)), "int"),
        "socket.request.max.bytes": (str(settings.limits.max_frame_bytes), "int"),
    }


def broker_entries(
    settings: BrokerSettings, *, names: Sequence[str] | None = None, synonyms: bool = False
) -> list[dict[str, Any]]:
    wanted = None if names is None else frozenset(names)
    return [
        {
            "name": name,
            "value": value,
            "read_only": True,
            "config_source": STATIC_BROKER,
            "synonyms": [{"name": name, "value": value, "source": STATIC_BROKER}] if synonyms else [],
            "config_type": _TYPES[kind],
        }
        for name, (value, kind) in sorted(broker_settings(settings).items())
        if wanted is None or name in wanted
    ]
