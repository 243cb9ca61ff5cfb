"""A consumer's link to its group: the control plane, started when it is first needed, and whether it is subscribed.

A consumer that only assigns partitions by hand and commits nothing never starts one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.errors import CLOSED, as_kafka_exception, no_group
from holdfast.client.member.control import ControlPlane
from holdfast.group import member as mb
from holdfast.group.user_data import Positions
from holdfast.model import HoldfastError, TopicPartition


class Link:
    """One consumer's link."""

    def __init__(self, config: ConsumerConfig, make: Callable[[], ControlPlane]) -> None:
        """`make` makes the control plane; it is started here."""
        self.plane: ControlPlane | None = None
        self.subscribed = False
        """Whether the application has subscribed. A commit is then a member's; otherwise it comes from outside."""
        self.subscriptions = 0
        """How many there have been."""
        self.unsubscribing = False
        """True from an unsubscribe inside a callback until its revoke: nothing is handed out meanwhile."""
        self._config = config
        self._make = make
        self._is_shut = False
        self._one = threading.RLock()  # not a plain one: a signal's handler may close us on the same thread

    def begin(self) -> None:
        """The application subscribes."""
        self.subscribed, self.unsubscribing = True, False
        self.subscriptions += 1

    def started(self) -> ControlPlane:
        """The control plane. May be called from several threads at once."""
        with self._one:
            return self.plane or self._start()

    def _start(self) -> ControlPlane:
        self._check_open()
        if not self._config.group:
            raise no_group()
        plane = self._make()
        try:
            plane.start()
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        try:
            self._check_open()
        except RuntimeError:  # a signal's handler has closed us meanwhile
            plane.stop()
            raise
        self.plane = plane
        return plane

    def _check_open(self) -> None:
        if self._is_shut:
            raise RuntimeError(CLOSED)

    def shut(self) -> ControlPlane | None:
        """The consumer is closed: returns the control plane to stop, if there is one. None starts from now on. Waits
        for a start that is under way on another thread."""
        with self._one:
            self._is_shut = True
            return self.plane

    @property
    def member(self) -> ControlPlane | None:
        """The control plane while the application is subscribed."""
        return self.plane if self.subscribed else None

    @property
    def handed(self) -> Positions:
        """Positions that were handed over to us and that the group may not have yet."""
        return {} if self.plane is None else self.plane.handed

    @property
    def cooperative(self) -> bool:
        return self.plane is not None and self.plane.state.cooperative

    def ours(self) -> frozenset[TopicPartition]:
        """The group's partitions that we read: owned, or owned once the machine hears that the listener returned."""
        if self.plane is None:
            return frozenset()
        state = self.plane.state
        return state.owned | state.held.then_owned if state.phase is mb.Phase.APPLYING else state.owned
