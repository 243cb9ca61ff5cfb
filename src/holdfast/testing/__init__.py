"""What tests run against: the embedded broker, a real Apache Kafka, members of other clients, checkers of their logs.

Rule: importing this package imports nothing else. `Broker` is loaded when it is asked for; the other parts have modules
of their own, for example `holdfast.testing.kafka`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from holdfast.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
