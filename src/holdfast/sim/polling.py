"""The application's thread of a simulated member between two listener's calls: polls, batches, commits now and then.

A batch that takes longer than the usual pause between polls decides when the application polls again. A hung one does
not poll at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.group.member import MetadataChanged, Polled
from holdfast.model import ClusterView
from holdfast.sim.network import BROKER

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember


class Polling:
    """When one process polls."""

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self.hung = False
        self.working = False
        """Whether the application is busy with a batch longer than its usual pause between polls. Until it is done, no
        listener is called."""
        self.polled_at = member.world.clock.now
        """When the application last polled."""
        self.cluster = ClusterView()
        """The topics as this process last saw them."""

    def start(self) -> None:
        member = self._member
        member.later(member.plan.poll_ms, self._poll)
        member.later(member.plan.commit_interval_ms, self._commit_often)

    def _poll(self) -> None:
        member = self._member
        if not self.hung and not self.working:
            self._polled()
            self._begin_batch()
        self.refresh_metadata()
        member.later(member.plan.poll_ms, self._poll)

    def _polled(self) -> None:
        member = self._member
        self.polled_at = member.world.clock.now
        member.feed(Polled())
        if not self.hung:
            member.certainty.look()

    # Batches

    def _begin_batch(self) -> None:
        """Work on a batch. The application polls again only when it is done, however long that takes."""
        member = self._member
        if member.plan.slow and member.app.lanes and not member.dead:
            self.working = True
            member.later(self._batch_ms(), self._finish_batch)

    def _batch_ms(self) -> float:
        plan = self._member.plan
        if not plan.batch_spread:
            return plan.batch_ms
        return plan.batch_ms * self._member.world.random.uniform(1.0 - plan.batch_spread, 1.0 + plan.batch_spread)

    def _finish_batch(self) -> None:
        if not self.working:
            return
        self.working = False
        if not self.hung:  # else it polls when it is free again
            self._polled()
            self._member.listener.go_on()
            self._begin_batch()

    def hurry(self) -> None:
        """The batch in work is done, and from now on they are short."""
        member = self._member
        if member.plan.slow:
            member.plan = replace(member.plan, batch_ms=0.0)
            self._finish_batch()

    # An application that is stuck

    def hang(self) -> None:
        if not self.working:
            self._polled()
        self.hung = True

    def unhang(self) -> None:
        self.hung = False
        self._member.trace("application-returned")
        self._polled()
        self._member.listener.go_on()

    # What else it does

    def refresh_metadata(self) -> None:
        """Look at the topics when the view is as old as it may get, if the broker can be reached."""
        member = self._member
        world = member.world
        age = world.config.metadata_ms
        due = not self.cluster.topics or int(world.clock.now // age) != int(
            (world.clock.now - member.plan.poll_ms) // age
        )
        reachable = world.broker.up and world.network.reaches(member.name, BROKER)
        if due and reachable and world.broker.cluster is not self.cluster:
            self.cluster = world.broker.cluster
            member.feed(MetadataChanged(self.cluster))

    def _commit_often(self) -> None:
        member = self._member
        if not self.hung and not member.listener.busy:
            # One commit of a partition at a time, like a consumer.
            idle = member.state.owned.difference(*member.offsets.under_way)
            member.offsets.commit(member.app.uncommitted(idle))
        member.later(member.plan.commit_interval_ms, self._commit_often)
