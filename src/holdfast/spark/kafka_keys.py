"""Which `kafka.` options there are: the settings of a consumer, under Java's names and under librdkafka's.

A job that comes from Spark's own source may carry any of Java's, most of which mean nothing here and do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.client.config.known import JAVAS, LIBRDKAFKAS, did_you_mean
from holdfast.model import HoldfastError

PREFIX = "kafka."
OURS = "holdfast."
"""Our own keys; which of them there are, the member knows."""

NOT_HERE = {
    "key.deserializer": "Keys come as bytes: cast(key as string), or what they are, in the query.",
    "value.deserializer": "Values come as bytes: cast(value as string), or what they are, in the query.",
    "holdfast.metrics.port": "A query serves no metrics of its own; `holdfast groups serve` has its lag.",
    "holdfast.metrics.host": "A query serves no metrics of its own; `holdfast groups serve` has its lag.",
    "interceptor.classes": "It names classes of Java, and no Java consumer is at work here.",
}
"""Keys whose effect a job would miss, with a way out. Spark's own source refuses them too."""


def check_kafka_keys(kafka: Mapping[str, str]) -> None:
    """Refuse what does not exist, or can't have its effect. `kafka`: options without their prefix."""
    for key in sorted(kafka):
        if key in NOT_HERE:
            raise HoldfastError("INVALID_OPTION", f"option {PREFIX}{key} has no effect here.", NOT_HERE[key])
        if key not in JAVAS and key not in LIBRDKAFKAS and not key.startswith(OURS):
            near = did_you_mean(key, JAVAS | LIBRDKAFKAS, prefix=PREFIX)
            what = f"option {PREFIX}{key} is no setting of a Kafka consumer."
            raise HoldfastError(
                "INVALID_OPTION", what, near or "See that it is spelled as Kafka's documentation has it."
            )
    if kafka.get("enable.auto.commit", "false").strip().lower() == "true":
        raise HoldfastError(
            "INVALID_OPTION",
            f"option {PREFIX}enable.auto.commit is true.",
            "Leave it out: offsets are committed when a batch is done, and not by the clock.",
        )
