"""The server's answers about live groups: the same questions as about a scene, answered from the newest story."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from holdfast.model import HoldfastError
from holdfast.ui.asked import members_in, moment_in
from holdfast.ui.live.feed import events
from holdfast.ui.live.hub import Hub
from holdfast.ui.plan import resized
from holdfast.ui.questions import questions
from holdfast.ui.svg import picture


class Acts(Protocol):
    """Actions on members, offered by what started them. Called from threads."""

    names: tuple[str, ...]

    def act(self, name: str, member: str) -> str:
        """Do it, and return a sentence about what was done. Raises HoldfastError for a foreign member."""


class LiveAnswers:
    def __init__(self, hub: Hub, acts: Acts | None) -> None:
        self._hub = hub
        self._acts = acts

    async def events(self, body: Mapping[str, Any], ending: asyncio.Event) -> AsyncIterator[bytes]:
        group = body.get("group", "")
        if not isinstance(group, str):
            raise HoldfastError("BAD_REQUEST", "a group's name is text.", "Use the page.")
        async with self._hub.viewing(group) as watch:
            async for event in events(self._hub, watch, ending):
                yield event

    def questions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"questions": questions(self._hub.watched(body.get("group")), moment_in(body), None)}

    def plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return resized(self._hub.watched(body.get("group")), moment_in(body), members_in(body))

    def picture(self, body: Mapping[str, Any]) -> str:
        made = self._hub.watched(body.get("group"))
        return picture(made, min(moment_in(body), made["end"]), title=f"Group {body['group']}")

    def act(self, body: Mapping[str, Any]) -> dict[str, str]:
        """An action on a member, if this server has started it."""
        if self._acts is None:
            raise HoldfastError(
                "READ_ONLY", "this page only shows groups.", "Members that obey buttons: holdfast demo --live."
            )
        name, member = body.get("act"), body.get("member", "")
        if name not in self._acts.names or not isinstance(member, str):
            raise HoldfastError("UNKNOWN_ACT", "there is no such action.", f"Use one of {', '.join(self._acts.names)}.")
        return {"said": self._acts.act(name, member)}
