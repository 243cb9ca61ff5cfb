"""What a bad configuration raises: our text and what to do about it, and whatever confluent-kafka would have raised.

A program written for confluent-kafka catches `KafkaException` and looks at `args[0].code()`; for some mistakes it
raises a ValueError or a TypeError. Ours is all of these at once, so that either way of catching works.
"""

from __future__ import annotations

import confluent_kafka as ck

from holdfast.model import HoldfastError

CONFIG_INVALID = "CONFIG_INVALID"
"""A setting that can't be used. The broker's INVALID_CONFIG is another thing: it refuses what we sent."""


class ConfigError(HoldfastError, ck.KafkaException):
    """A configuration that can't be used."""

    def __init__(self, code: str, what: str, do: str) -> None:
        super().__init__(code, what, do)
        self.args = (ck.KafkaError(ck.KafkaError._INVALID_ARG, f"{what} {do}"),)

    def __str__(self) -> str:
        return f"{self.code}: {self.what} {self.do}"

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, str]]:
        return type(self), (self.code, self.what, self.do)


class ConfigValueError(ConfigError, ValueError):
    """The same where confluent-kafka raises a ValueError."""


class ConfigTypeError(ConfigError, TypeError):
    """The same where confluent-kafka raises a TypeError."""


def bad(key: object, what: str, do: str, kind: type[ConfigError] = ConfigError) -> ConfigError:
    return kind(CONFIG_INVALID, f"{key} {what}.", do)
