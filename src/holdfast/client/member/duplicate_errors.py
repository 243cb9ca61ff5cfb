"""Reports an error of the group once, although a consumer contains two clients of the group.

librdkafka looks for the group's coordinator too, to fetch committed offsets. If that is refused (a missing ACL, say),
it reports the error, and our member reports the same one at the same moment. The first report is passed on, the second
is dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.group.member.trouble import TELL_AGAIN_MS

if TYPE_CHECKING:
    import confluent_kafka as ck


class DuplicateErrors:
    """Remembers the last error, and which client reported it."""

    def __init__(self) -> None:
        self._said: tuple[str, int] = ("", 0)
        self._at = -math.inf

    def note(self, who: str, message: ck.Message, now: float) -> bool:
        """Note an error. True if the other client has just reported the same one, so that this one is dropped."""
        error = message.error()
        if error is None or message.topic() is not None or error.code() <= 0:  # a record, or not an error of the group
            return False
        before, code = self._said
        if code == error.code() and before != who and now - self._at < TELL_AGAIN_MS:
            return True
        self._said, self._at = (who, error.code()), now
        return False
