"""The settings of a scene, which the command line, the page's address and the ready scenes share.

A setup is played in three kinds, on the same seed and events: `eager` and `cooperative` as other clients play them, and
`holdfast`, which is cooperative with what makes our handovers quick.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from holdfast.model import HoldfastError
from holdfast.sim.config import WorldConfig
from holdfast.sim.scenarios import scene_config

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "eager": "everybody gives up everything before each round",
        "cooperative": "only what moves is given up; the second round waits for heartbeats",
        "holdfast": "cooperative, and the second round waits for nobody's heartbeat",
    }
)
"""In which ways a setup can be played."""

MAX_MEMBERS, MAX_PARTITIONS = 2_000, 10_000
MAX_WORK = 400_000.0
"""Members times seconds: what is played within a minute or so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Times as people write them: 300ms, 20s, 1.5m."""

    members: int = 4
    partitions: int = 6
    seed: int = 7
    events: str = ""
    duration: str = "60s"
    static: bool = False
    heartbeat: str | None = None
    session: str | None = None
    max_poll: str = "5m"
    batch: str = "200ms"
    spread: float = 0.0
    """The share by which batches differ in length, if they are longer than the usual time between two polls."""
    listener: str = "100ms"
    restore: str = "0ms"
    """How long the state of one partition takes to restore."""
    without: str = ""
    """What holdfast's members do without."""

    def config(self, kind: str, *, assignor: str | None = None) -> WorldConfig:
        """The world in which it is played, with the kind's assignor or another."""
        if kind not in KINDS:
            raise HoldfastError("UNKNOWN_KIND", f"{kind!r} is no way to play.", f"Use {', '.join(KINDS)}.")
        if not (1 <= self.members <= MAX_MEMBERS and 1 <= self.partitions <= MAX_PARTITIONS):
            raise HoldfastError(
                "BAD_SIZE",
                f"{self.members} members and {self.partitions} partitions can't be played.",
                f"Use 1 to {MAX_MEMBERS} members and 1 to {MAX_PARTITIONS} partitions.",
            )
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        options["without"] = self.without.split(",")
        config = scene_config(
            assignor=assignor or ("sticky" if kind == "eager" else "cooperative-sticky"),
            foreign=kind != "holdfast",
            **options,
        )
        grown = self.partitions + sum(one.amount for one in config.happenings if one.kind in ("grow", "create"))
        if grown > MAX_PARTITIONS:
            raise HoldfastError(
                "BAD_SIZE", f"{grown} partitions in all can't be played.", f"Use up to {MAX_PARTITIONS} partitions."
            )
        if self.members * config.duration_ms / 1000 > MAX_WORK:
            raise HoldfastError(
                "TOO_MUCH_TO_PLAY",
                f"{self.members} members for {self.duration} are more than can be played while somebody waits.",
                "Use fewer members or a shorter time.",
            )
        return config

    def as_words(self) -> dict[str, str]:
        """What differs from the usual, for an address."""
        usual = Setup()
        return {
            field.name: _word(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        }

    def as_options(self) -> str:
        """What differs from the usual, for `holdfast sim`."""
        words = []
        for name, value in self.as_words().items():
            option = option_of(name)
            words.append(option if value == "yes" else f"{option} {shlex.quote(value)}")
        return " ".join(words)


def option_of(field: str) -> str:
    """A field's option of `holdfast sim`."""
    return "--" + {"events": "event", "spread": "batch-spread"}.get(field, field).replace("_", "-")


def setup_of(words: Mapping[str, str], start: Setup | None = None) -> Setup:
    """Read words as `as_words` writes them, over a setup to start from. Untrusted: anybody can write an address."""
    given: dict[str, Any] = {f.name: _value(f.name, words[f.name]) for f in fields(Setup) if f.name in words}
    return replace(start or Setup(), **given)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _value(name: str, word: str) -> object:
    usual = getattr(Setup(), name)
    if isinstance(usual, bool):
        return word in ("yes", "true", "1", "on")
    try:
        if isinstance(usual, int):
            return int(word)
        if isinstance(usual, float):
            return float(word)
    except ValueError:
        raise HoldfastError("BAD_SETTING", f"{name}={word!r} is not a number.", "Write a number.") from None
    return word if word or usual is not None else None
