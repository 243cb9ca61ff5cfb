"""SyncGroup, 0 to 5: bring the plan, or wait for one's part of it.

Version notes: 3 static members · 4 compact · 5 protocol type and name, checked against the group's.
All of it is the coordinator's: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
