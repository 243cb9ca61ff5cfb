"""What a consumer is made of, as far as its calls need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.client.config.settings import ConsumerConfig
    from holdfast.client.member.commits import Offsets
    from holdfast.client.member.link import Link
    from holdfast.client.member.round_calls import RoundCalls
    from holdfast.client.reading.data_plane import DataPlane
    from holdfast.client.watchdog.positions import WatchdogNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One consumer's parts. They stay the same for its whole life."""

    config: ConsumerConfig
    data: DataPlane
    """What it reads."""
    offsets: Offsets
    """What it commits."""
    round: RoundCalls
    """What its listener is told."""
    link: Link
    """Its way to the group."""
    notes: WatchdogNotes
    """What its watchdog is told."""
    check_open: Callable[..., None]
    """Called first by everything an application calls. Raises if the consumer is closed, with the text that is given.
    """
