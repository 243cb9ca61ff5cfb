"""holdfast: Kafka consumer groups that don't stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from confluent_kafka import OFFSET_BEGINNING as OFFSET_BEGINNING
    from confluent_kafka import OFFSET_END as OFFSET_END
    from confluent_kafka import OFFSET_INVALID as OFFSET_INVALID
    from confluent_kafka import OFFSET_STORED as OFFSET_STORED
    from confluent_kafka import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka import Message as Message
    from confluent_kafka import TopicPartition as TopicPartition

    from holdfast.client.aio.consumer import AsyncConsumer as AsyncConsumer
    from holdfast.client.config.warning import PitfallWarning as PitfallWarning
    from holdfast.client.consumer import Consumer as Consumer
    from holdfast.client.member.listener import Listener as Listener
    from holdfast.model import Assignment as Assignment
    from holdfast.model import Assignor as Assignor
    from holdfast.model import ClusterView as ClusterView
    from holdfast.model import GroupMetadata as GroupMetadata
    from holdfast.model import HoldfastError as HoldfastError
    from holdfast.model import RebalanceProtocol as RebalanceProtocol
    from holdfast.model import Subscription as Subscription

_LAZY = {
    "Assignment": "holdfast.model",
    "Assignor": "holdfast.model",
    "AsyncConsumer": "holdfast.client.aio.consumer",
    "ClusterView": "holdfast.model",
    "Consumer": "holdfast.client.consumer",
    "GroupMetadata": "holdfast.model",
    "HoldfastError": "holdfast.model",
    "Listener": "holdfast.client.member.listener",
    "PitfallWarning": "holdfast.client.config.warning",
    "RebalanceProtocol": "holdfast.model",
    "Subscription": "holdfast.model",
    # What a consumer program imports in the same line as the Consumer: confluent-kafka's own.
    "KafkaError": "confluent_kafka",
    "KafkaException": "confluent_kafka",
    "Message": "confluent_kafka",
    "OFFSET_BEGINNING": "confluent_kafka",
    "OFFSET_END": "confluent_kafka",
    "OFFSET_INVALID": "confluent_kafka",
    "OFFSET_STORED": "confluent_kafka",
    "TIMESTAMP_CREATE_TIME": "confluent_kafka",
    "TIMESTAMP_LOG_APPEND_TIME": "confluent_kafka",
    "TIMESTAMP_NOT_AVAILABLE": "confluent_kafka",
    "TopicPartition": "confluent_kafka",
}
__all__ = ["AsyncConsumer", "Consumer", "HoldfastError", "Listener", "PitfallWarning"]
__all__ += ["Assignment", "Assignor", "ClusterView", "GroupMetadata", "RebalanceProtocol", "Subscription"]
__all__ += ["KafkaError", "KafkaException", "Message", "TopicPartition"]
__all__ += ["OFFSET_BEGINNING", "OFFSET_END", "OFFSET_INVALID", "OFFSET_STORED"]
__all__ += ["TIMESTAMP_CREATE_TIME", "TIMESTAMP_LOG_APPEND_TIME", "TIMESTAMP_NOT_AVAILABLE"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: using one part of holdfast never imports the others."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    """Completion and help() see what is imported only when it is used."""
    return sorted({*globals(), *__all__})
