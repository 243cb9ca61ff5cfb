"""Who a member is to its coordinator: (member id, generation), stored and compared together."""

from __future__ import annotations

from dataclasses import dataclass

NO_GENERATION = -1
"""Kafka's "unknown generation": a member that has never completed a round."""


@dataclass(frozen=True, slots=True)
class Membership:
    """One member in one generation. Requests carry both, so that an answer to an old pair can't touch a new one."""

    member_id: str = ""
    generation: int = NO_GENERATION

    @property
    def known(self) -> bool:
        """Whether the coordinator has given us an id."""
        return self.member_id != ""

    @property
    def joined(self) -> bool:
        """Whether a round was completed under this membership."""
        return self.member_id != "" and self.generation != NO_GENERATION

    def without_generation(self) -> Membership:
        """After ILLEGAL_GENERATION: the id stays ours, the generation does not (KAFKA-13419)."""
        return Membership(self.member_id, NO_GENERATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata(Membership):
    """A membership with the names of its group and instance, as a custom assignor receives it."""

    group: str = ""
    instance_id: str | None = None
    """group.instance.id of a static member."""


NOBODY = Membership()
