"""The `kafka.` options: a consumer's settings, under Java's names and under librdkafka's.

A job written for Spark's own source may have any of Java's settings. Most have no meaning here and do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.client.config.known import JAVAS, LIBRDKAFKAS, did_you_mean
from holdfast.model import HoldfastError
from holdfast.net.security import as_boolean

PREFIX = "kafka."
OURS = "holdfast."
"""Prefix of our own keys. The member's configuration checks them."""

NOT_HERE = {
    "key.deserializer": "Keys come as bytes: cast(key as string), or what they are, in the query.",
    "value.deserializer": "Values come as bytes: cast(value as string), or what they are, in the query.",
    "interceptor.classes": "It names classes of Java, and no Java consumer is at work here.",
}
"""Keys that are refused because a job would miss their effect, with what to do instead. Spark's own source refuses
them, too."""


def check_kafka_keys(kafka: Mapping[str, str]) -> None:
    """Refuse keys that do not exist or have no effect here. `kafka` holds the options without their prefix."""
    for key in sorted(kafka):
        if key in NOT_HERE:
            raise HoldfastError("INVALID_OPTION", f"option {PREFIX}{key} has no effect here.", NOT_HERE[key])
        if key not in JAVAS and key not in LIBRDKAFKAS and not key.startswith(OURS):
            near = did_you_mean(key, JAVAS | LIBRDKAFKAS, prefix=PREFIX)
            what = f"option {PREFIX}{key} is not a setting of a Kafka consumer."
            raise HoldfastError("INVALID_OPTION", what, near or "Check its spelling in Kafka's documentation.")
    if as_boolean(kafka.get("enable.auto.commit", "false").strip()) is not False:
        raise HoldfastError(
            "INVALID_OPTION",
            f"option {PREFIX}enable.auto.commit is not false.",
            "Leave it out: offsets are committed when a batch is done, and not by the clock.",
        )
