"""What a bad configuration raises: our text with advice, in an exception that confluent-kafka's users catch too.

confluent-kafka raises a `KafkaException`, whose `args[0].code()` programs look at; for some mistakes it raises a
ValueError or a TypeError. Ours inherit from HoldfastError and KafkaException, and from ValueError or TypeError where
confluent-kafka raises one, so that either way of catching works.
"""

from __future__ import annotations

import confluent_kafka as ck

from holdfast.model import HoldfastError

CONFIG_INVALID = "CONFIG_INVALID"
"""A setting that can't be used. Not to be confused with the broker's INVALID_CONFIG, which refuses what we sent."""


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
