"""SyncGroup, 0 to 5: the leader brings its plan, the others wait for their part of it.

Version notes: 3 static members · 4 compact · 5 protocol type and name, checked against the group's.
The coordinator does the work: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
