"""Errors that poll returns in place of a record, as confluent-kafka does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.client.clock import now_ms
from holdfast.client.member.duplicate_errors import DuplicateErrors
from holdfast.client.member.events import fatal_message

if TYPE_CHECKING:
    import confluent_kafka as ck

    from holdfast.client.member.control import ControlPlane

FATAL_EVERY_S = 1.0
"""How often a poll with time left returns the fatal error: an application that polls on regardless must not spin."""


class News:
    """One consumer's errors, each for one poll."""

    def __init__(self) -> None:
        self._duplicates = DuplicateErrors()
        self._fatal_at = -FATAL_EVERY_S

    def of_member(self, plane: ControlPlane | None, deadline: float | None) -> ck.Message | None:
        """The member's next error; None if there is none.

        After a fatal error every poll without time left returns it, and any other poll returns it once a second.
        """
        if plane is None or not (plane.told or plane.failure):
            return None
        while plane.told:
            news = plane.told.popleft().message()
            if not self._duplicates.note("member", news, now_ms()):
                return news
        if plane.failure is None:
            return None
        now = time.monotonic()
        if now - self._fatal_at < FATAL_EVERY_S and (deadline is None or now < deadline):
            return None
        self._fatal_at = now
        return fatal_message(plane.failure)

    def of_librdkafka(self, came: list[ck.Message]) -> list[ck.Message]:
        """These without errors that the member has reported already."""
        return [one for one in came if not self._duplicates.note("librdkafka", one, now_ms())]
