"""Normalises the user's keys before they are read: everything confluent-kafka accepts, as one flat mapping.

Handled here: other names of a setting (Java's, and old ones), `default.topic.config`, callbacks that are not callable,
and keys that would otherwise be ignored silently. Each is accepted, or refused with advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.client.config.errors import CONFIG_INVALID, ConfigError, ConfigTypeError, ConfigValueError, bad
from holdfast.client.config.known import did_you_mean
from holdfast.client.member.patterns import blacklisted
from holdfast.net.security import as_boolean

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Java's name, and librdkafka's for the same setting."""

BLACKLIST = "topic.blacklist"

DESERIALIZERS = ("key.deserializer", "value.deserializer")

CALLBACKS: dict[str, tuple[type[ConfigError], str]] = {
    "error_cb": (ConfigTypeError, "a function that takes a KafkaError"),
    "stats_cb": (ConfigTypeError, "a function that takes a JSON text"),
    "oauth_cb": (ConfigTypeError, "a function that takes a text and returns (token, expiry in seconds)"),
    "throttle_cb": (ConfigValueError, "a function that takes a ThrottleEvent"),
    "on_commit": (ConfigError, "a function that takes an error and a list of partitions"),
}
"""For each callback what confluent-kafka raises if it is not callable (None is not), and what to give instead."""


def as_given(config: object, more: Mapping[str, Any]) -> dict[str, Any]:
    """A constructor's configuration: a mapping, keywords, or both; keywords win."""
    return {**_mapping(more if config is None and more else config), **more}


def normalized(config: object) -> dict[str, Any]:
    """The same settings, each under one name. Raises ConfigError for contradictions and mistakes."""
    config = _mapping(config)
    found = dict(config)
    topic = found.pop("default.topic.config", None)
    if "default.topic.config" in config:
        if not isinstance(topic, Mapping):
            raise bad("default.topic.config", f"is {type(topic).__name__}", "It is a dict of keys.")
        found.update(topic)  # it wins over the same key outside it, as in confluent-kafka
    for key in found:
        if not isinstance(key, str):
            raise bad(f"{key!r}", "is not a configuration key", "Keys are texts, for instance 'group.id'.")
    _rename(found)
    for key in DESERIALIZERS:
        if key in found:
            raise bad(
                key,
                "is a setting of Java's consumer, and of confluent_kafka.DeserializingConsumer",
                "Records come as bytes here: leave the key out and decode message.value() and message.key().",
            )
    for key, (kind, wanted) in CALLBACKS.items():
        if key in found and not callable(found[key]):
            raise bad(key, f"can't be called: expected {key} property as a callable function", f"Give {wanted}.", kind)
    try:
        blacklisted(text(found, BLACKLIST, ""))
    except ValueError as error:
        raise bad(
            BLACKLIST, f"has no pattern in {error}", "Give regular expressions with commas between them."
        ) from None
    return found


def _mapping(config: object) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        raise ConfigTypeError(CONFIG_INVALID, "expected configuration dict.", "Give a dict of Kafka's dotted keys.")
    return config


def _rename(found: dict[str, Any]) -> None:
    for theirs, ours in RENAMED.items():
        if theirs in found:
            value = found.pop(theirs)
            if ours in found and str(found[ours]) != str(value):
                raise bad(theirs, f"and {ours} say different things, and are one setting", f"Keep {ours}.")
            found[ours] = value


def unknown(key: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown holdfast key, with the key that was probably meant."""
    names = sorted(known)
    do = did_you_mean(key, names) or f"The keys are {', '.join(names)}."
    return bad(key, "is not a key of holdfast", do)


def number(raw: Mapping[str, Any], key: str, default: int, *, low: int, high: int) -> int:
    value = raw.get(key, default)
    try:
        if value is None or isinstance(value, bool):
            raise ValueError
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        raise bad(key, f"is {value!r}, not a whole number", "Give milliseconds or a count.") from None
    if not low <= found <= high:
        raise bad(key, f"is {found}", f"It must be between {low} and {high}.")
    return found


def boolean(raw: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = raw.get(key, default)
    found = as_boolean(value)
    if found is None:
        raise bad(key, f"is {value!r}", "Choose true or false.")
    return found


def read_committed(raw: Mapping[str, Any]) -> bool:
    """Whether records of open and aborted transactions are left out. Upper and lower case are the same, as in
    librdkafka."""
    return text(raw, "isolation.level", "read_committed").lower() == "read_committed"


def text(raw: Mapping[str, Any], key: str, default: str) -> str:
    """A text. None means the default, as in librdkafka; numbers are converted."""
    value = raw.get(key)
    if value is None:
        return default
    return str(value)


def named(raw: Mapping[str, Any], key: str, default: str) -> str:
    """The same for a setting with a fixed set of values, where librdkafka does not accept None."""
    if key in raw and raw[key] is None:
        raise bad(key, "is None", f"Leave it out for the default, {default}.")
    return text(raw, key, default)
