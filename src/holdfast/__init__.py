"""holdfast: Kafka consumer groups that don't stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.client.aio import AsyncConsumer as AsyncConsumer
    from holdfast.client.consumer import Consumer as Consumer
    from holdfast.client.warned import PitfallWarning as PitfallWarning
    from holdfast.model import Assignor as Assignor
    from holdfast.model import HoldfastError as HoldfastError

_LAZY = {
    "Assignor": "holdfast.model",
    "AsyncConsumer": "holdfast.client.aio",
    "Consumer": "holdfast.client.consumer",
    "HoldfastError": "holdfast.model",
    "PitfallWarning": "holdfast.client.warned",
}
__all__ = ["Assignor", "AsyncConsumer", "Consumer", "HoldfastError", "PitfallWarning"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: using one part of holdfast never imports the others."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
