"""Heartbeat, 0 to 4: still here; anything new?

Version notes: 3 static members · 4 compact.
All of it is the coordinator's: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
