"""LeaveGroup, 0 to 5: members leave, or are removed by an administrator.

Version notes: 3 several members at once, by member or instance id (KIP-345) · 4 compact · 5 a reason each.
The coordinator does the work: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
