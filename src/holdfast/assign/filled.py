"""Completes a user's own assignor: `name` and `assign` are enough, everything else has Kafka's defaults. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model import (
    Assignment,
    Assignor,
    ClusterView,
    GroupMetadata,
    HoldfastError,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

EAGER = (RebalanceProtocol.EAGER,)
"""Java's default: an assignor that does not say otherwise was not written for partitions that are still held."""

MAX_VERSION = 2**31 - 1
"""The largest int32, which every client can read."""


def is_assignor(candidate: object) -> bool:
    """Whether it has the two things that an assignor must have."""
    return isinstance(getattr(candidate, "name", None), str) and callable(getattr(candidate, "assign", None))


def filled(own: Any) -> Assignor:
    """The assignor itself if it is complete, else wrapped with defaults for what it lacks."""
    protocols = getattr(own, "protocols", EAGER)
    if not protocols or not all(isinstance(one, RebalanceProtocol) for one in protocols):
        raise HoldfastError(
            "INVALID_ASSIGNOR",
            f"The assignor {own.name!r} has the protocols {protocols!r}.",
            "Give a tuple of holdfast.RebalanceProtocol, or leave it out: then it is EAGER.",
        )
    version = getattr(own, "version", 0)
    if type(version) is not int or not 0 <= version <= MAX_VERSION:
        raise HoldfastError(
            "INVALID_ASSIGNOR",
            f"The assignor {own.name!r} has the version {version!r}.",
            f"Give a whole number from 0 to {MAX_VERSION}, or leave it out: then it is 0.",
        )
    return own if isinstance(own, Assignor) else Filled(own)


@dataclass(frozen=True, slots=True)
class Filled:
    """A user's assignor, with defaults for what it lacks."""

    own: Any

    @property
    def name(self) -> str:
        return str(self.own.name)

    @property
    def version(self) -> int:
        return int(getattr(self.own, "version", 0))

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        return tuple(getattr(self.own, "protocols", EAGER))

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> bytes | None:
        asked = getattr(self.own, "subscription_user_data", None)
        found: bytes | None = None if asked is None else asked(topics, assigned, generation)
        return found

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        found: Mapping[str, Assignment] = self.own.assign(cluster, members)
        return found

    def at_version(self, version: int) -> Assignor:
        older = getattr(self.own, "at_version", None)
        return self if older is None else filled(older(version))

    def on_assignment(self, assignment: Assignment, membership: GroupMetadata) -> None:
        told = getattr(self.own, "on_assignment", None)
        if told is not None:
            told(assignment, membership)
