"""Which process a member id belongs to, and whether that process lives, as far as is known.

People know a process by its instance id or client id; a coordinator gives out member ids, which Kafka makes from that
name and a UUID. Two processes with one name get a number. A name whose process is gone is free for the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

UUID = "-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
UUID_TAIL = re.compile(f"{UUID}$")
UUID_WITHIN = re.compile(f"{UUID}(?![0-9a-f])")
KEPT = 2_000
"""Names and member ids that are remembered. Pods get new ones with each deploy."""


@dataclass(slots=True)
class Life:
    """One process."""

    name: str
    member_id: str | None = None
    """Its current member id."""
    static: str | None = None
    alive: bool = True
    hung: bool = False
    where: str = "joining"
    """joining, in or out, as in `people`."""
    traced_ms: float = float("-inf")
    """The time of the last record in its own trace."""
    stated: bool = False
    """Whether its starter writes a trace, which will tell when it ends."""


@dataclass(slots=True)
class Lives:
    by_name: dict[str, Life] = field(default_factory=dict)
    _of_id: dict[str, str] = field(default_factory=dict)

    def known(self, member_id: str) -> Life | None:
        """The process that has, or had, this member id."""
        name = self._of_id.get(member_id)
        return None if name is None else self.by_name.get(name)

    def life(self, member_id: str, base: str = "") -> tuple[Life, bool]:
        """The process with this member id, or with this name and no member id yet; and whether it is new."""
        found = self.known(member_id)
        if found is not None and found.alive and found.member_id == member_id:
            return found, False
        name = base or UUID_TAIL.sub("", member_id) or member_id
        has_id = UUID_TAIL.search(member_id) is not None or bool(base)
        life, fresh = self._free(name, wants_id=has_id)
        if has_id:
            life.member_id = member_id
            self._of_id[member_id] = life.name
        return life, fresh

    def named(self, name: str) -> tuple[Life, bool]:
        """The process of exactly this name, which its starter gave it; a new one if the last one is gone."""
        life = self.by_name.get(name)
        if life is not None and life.alive:
            return life, False
        return self._begin(name), True

    def _free(self, base: str, *, wants_id: bool) -> tuple[Life, bool]:
        number = 1
        while True:
            name = base if number == 1 else f"{base} #{number}"
            life = self.by_name.get(name)
            if life is None or not life.alive:
                return self._begin(name), True
            if life.member_id is None or not wants_id:
                return life, False
            number += 1

    def _begin(self, name: str) -> Life:
        self._forget()
        self.by_name.pop(name, None)
        life = self.by_name[name] = Life(name)
        return life

    def _forget(self) -> None:
        if len(self._of_id) > KEPT:
            now = {life.member_id for life in self.by_name.values() if life.alive}
            self._of_id = {each: name for each, name in self._of_id.items() if each in now}
        if len(self.by_name) > KEPT:
            self.by_name = {name: life for name, life in self.by_name.items() if life.alive}

    def in_words(self, text: str | None) -> str | None:
        """A cause with names instead of member ids."""
        if text is None or "-" not in text:
            return text
        for member_id, name in self._of_id.items():
            if member_id in text:
                text = text.replace(member_id, name)
        return UUID_WITHIN.sub("", text)

    def called(self, member_id: str) -> str:
        """The name of the process with this member id, even if the process is not known yet."""
        life = self.known(member_id)
        return UUID_TAIL.sub("", member_id) if life is None else life.name
