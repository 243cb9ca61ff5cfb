"""I5: a member that keeps a partition sees no gap in it.

Under the cooperative protocol: a partition that two rounds in a row assign to the same member is not revoked in
between, unless its user changed the subscription or the partition no longer exists. A gap because the application hangs
does not count.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch

Parts = frozenset[tuple[str, object]]


def parts_of(value: object) -> Parts:
    assert isinstance(value, dict)
    return frozenset((topic, number) for topic, numbers in value.items() for number in numbers)


class KeptWithoutGap(Checker):
    """Keeps what the last round gave each member, and what was revoked since."""

    invariant = "I5"

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Parts] = {}
        """By member id: the result of its last round."""
        self._revoked: dict[str, Parts] = {}
        self._names: dict[str, str] = {}
        """What member ids begin with (the client's name, or its instance id) -> the process."""

    def watches(self) -> Mapping[str, Watch]:
        return {
            "synced": self._on_synced,
            "revoking": self._on_revoking,
            "vanished": self._on_vanished,
            "membership-lost": self._on_lost,
            "process-started": self._on_started,
            "join-sent": self._on_join_sent,
            "subscribed": self._on_subscribed,
        }

    def _on_started(self, record: TraceRecord) -> None:
        self._names[str(record.data["static"] or record.member)] = record.member

    def _on_join_sent(self, record: TraceRecord) -> None:
        """A member that lists an eager assignor has revoked everything for this round, so it keeps nothing."""
        if record.data["lists"] != ["cooperative-sticky"]:
            self._given.pop(record.member, None)

    def _on_subscribed(self, record: TraceRecord) -> None:
        """The user changed the subscription, and may change it back: what the member had does not count."""
        for member_id in [each for each in self._given if self._name_of(each) == record.member]:
            del self._given[member_id]

    def _name_of(self, member_id: str) -> str:
        """The coordinator of a simulated world numbers member ids behind the client's name or the instance id."""
        return self._names.get(member_id.rsplit("-", 1)[0], "")

    def _on_lost(self, record: TraceRecord) -> None:
        self._given.pop(record.member, None)

    def _on_vanished(self, record: TraceRecord) -> None:
        """As this member sees it, the partition no longer exists; it may be created again."""
        given = self._given.get(record.member, frozenset())
        self._given[record.member] = given - parts_of(record.data["partitions"])

    def _on_revoking(self, record: TraceRecord) -> None:
        self._revoked[record.member] = self._revoked.get(record.member, frozenset()) | parts_of(
            record.data["partitions"]
        )

    def _on_synced(self, record: TraceRecord) -> None:
        assigned = parts_of(record.data["assigned"])
        revoked = self._revoked.pop(record.member, frozenset())
        before = self._given.get(record.member, frozenset())
        gap = assigned & before & revoked
        if gap:
            first = min(f"{topic}-{number}" for topic, number in gap)
            self.violated(record.at, f"{record.member} kept {first} and had to revoke it all the same")
        self._given[record.member] = assigned
