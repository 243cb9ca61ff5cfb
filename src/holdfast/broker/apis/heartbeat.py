"""Heartbeat, 0 to 4: keep a member's session alive, and tell it of a rebalance.

Version notes: 3 static members · 4 compact.
The coordinator does the work: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
