"""What can be done to a world, and how it is written: `kind[:target][=amount]@time[+duration]`, separated by commas.

join@10s, crash:c0@20s, hang:c1@30s+35s, freeze:c2@40s, leave:c1@50s, drain:c2@50s, restart:c0@60s,
grow:orders=8@30s, cut:c1@20s+5s, broker-crash@25s+1s
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.model import HoldfastError
from holdfast.sim.config import Happening

KINDS: Mapping[str, str] = {
    "join": "one more member starts",
    "leave": "a member closes (a static one stays in the group for its session)",
    "drain": "a member hands everything over while it works, then leaves",
    "crash": "a member's process dies without a word; its watchdog speaks for it, where it has one",
    "machine-crash": "a member's machine dies, and its watchdog with it",
    "restart": "a member closes and comes back after the duration (2 s), with its instance id if it has one",
    "bounce": "a member's process dies and comes back after the duration (2 s)",
    "hang": "a member's application stops polling for the duration; heartbeats go on",
    "freeze": "a member's process is stopped for the duration, and wakes as a zombie",
    "twin": "a second process starts with the same instance id",
    "cut": "nothing gets through between a member and the broker for the duration",
    "deafen": "nothing gets from the broker to a member for the duration",
    "mute": "nothing gets from a member to the broker for the duration",
    "subscribe": "a member subscribes to all topics, or with =N to the first N",
    "unsubscribe": "a member unsubscribes from everything, and subscribes again after the duration (2 s)",
    "enforce": "a member asks for a rebalance",
    "slow": "a member's listener takes the duration from now on",
    "batch": "a member's batches take the duration from now on",
    "misplan": "a member's assignor fails for the duration (1 s), whenever it leads",
    "grow": "a topic gets =N partitions",
    "create": "a topic is created with =N partitions",
    "delete": "a topic is deleted",
    "broker-crash": "the broker dies, and comes back after the duration (300 ms)",
}

WITHOUT_TARGET = frozenset({"join", "broker-crash", "grow"})
MAX_HAPPENINGS = 1_000
_SHAPE = re.compile(
    r"(?P<kind>[a-z-]+)(?::(?P<target>[A-Za-z0-9._-]+))?(?:=(?P<amount>\d{1,5}))?@(?P<at>[^+]+)(?:\+(?P<lasts>.+))?"
)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m)?")
_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, None: 1_000.0}


def parse_time(text: str) -> float:
    """Milliseconds of "300ms", "20s", "1.5m"; a bare number is seconds."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise HoldfastError("BAD_TIME", f"{text!r} is not a time.", "Write it as 300ms, 20s or 1.5m.")
    return float(match[1]) * _UNITS_MS[match[2]]


def parse_happenings(text: str) -> tuple[Happening, ...]:
    """All that a user asks for, in order of time."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MAX_HAPPENINGS:
        raise HoldfastError("TOO_MANY_EVENTS", f"{len(words)} events were given.", f"Give at most {MAX_HAPPENINGS}.")
    return tuple(sorted((_parse(word) for word in words), key=lambda h: h.at_ms))


def _parse(word: str) -> Happening:
    match = _SHAPE.fullmatch(word)
    if match is None:
        raise HoldfastError(
            "BAD_EVENT", f"{word!r} is not an event.", "Write kind:member@time, for instance crash:c0@20s or join@10s."
        )
    kind = match["kind"]
    if kind not in KINDS:
        raise HoldfastError("UNKNOWN_EVENT", f"{kind!r} is not a kind of event.", f"Use one of {', '.join(KINDS)}.")
    target = match["target"] or ""
    amount = int(match["amount"] or 0)
    if kind == "grow" and target.isdigit():
        target, amount = "", int(target)
    if not target and kind not in WITHOUT_TARGET:
        raise HoldfastError("BAD_EVENT", f"{word!r} does not say whom it concerns.", f"Write {kind}:c0@20s.")
    if kind in ("grow", "create") and amount < 1:
        raise HoldfastError("BAD_EVENT", f"{word!r} does not say how many partitions.", f"Write {kind}:orders=8@20s.")
    return Happening(
        at_ms=parse_time(match["at"]),
        kind=kind,
        target=target,
        lasts_ms=parse_time(match["lasts"]) if match["lasts"] else 0.0,
        amount=amount,
    )
