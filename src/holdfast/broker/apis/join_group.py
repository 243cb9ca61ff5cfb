"""JoinGroup, 0 to 9: take part in the next round. Waits until all members have joined.

Version notes: 1 a rebalance time-out of its own · 4 MEMBER_ID_REQUIRED (KIP-394) · 5 static members (KIP-345) · 6
compact · 7 protocol type in the answer · 8 a reason · 9 skipping assignment (KIP-814).
The coordinator does the work: see `holdfast.group.coordinator`.
"""

from __future__ import annotations

from holdfast.broker.apis.membership import ask as handle
from holdfast.broker.apis.membership import refuse

__all__ = ["handle", "refuse"]
