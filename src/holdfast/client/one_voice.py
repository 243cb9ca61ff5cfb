"""What goes wrong with the group is told once, although two clients of the same group are at work in a consumer.

librdkafka looks for the group's coordinator too, to find committed offsets. Where that is refused it says so, as our
member does in the same moment: the application heard of one missing right twice. Whoever is first is heard.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.group.member.trouble import TELL_AGAIN_MS

if TYPE_CHECKING:
    import confluent_kafka as ck


class OneVoice:
    """Remembers what was said last, and by whom."""

    def __init__(self) -> None:
        self._said: tuple[str, int] = ("", 0)
        self._at = -math.inf

    def again(self, who: str, message: ck.Message, now: float) -> bool:
        """Whether the other one has just said the same: then it need not be handed out."""
        error = message.error()
        if error is None or message.topic() is not None or error.code() <= 0:  # a record, or not the group's
            return False
        before, code = self._said
        if code == error.code() and before != who and now - self._at < TELL_AGAIN_MS:
            return True
        self._said, self._at = (who, error.code()), now
        return False
