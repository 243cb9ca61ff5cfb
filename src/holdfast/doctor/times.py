"""When a line was written, and what log shippers wrapped around it.

Log shippers add something in front: containerd and CRI-O a time, a stream and a flag; docker a JSON object;
`kubectl logs --prefix` the pod. A line is unwrapped until nothing of the kind is left. The time is then the line's own;
if it has none, or no date, the wrapper's. Times without a zone are taken as UTC; `clocks` later corrects a wrong clock
or zone by the generations that the file shares with the coordinator's log.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import lru_cache

NO_TIME = float("nan")

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?",
)
_TIME_ONLY = re.compile(r"\[?(\d\d):(\d\d):(\d\d)[.,](\d{3})")
_CRI = re.compile(r"(\d{4}-\d\d-\d\dT\S+) (?:stdout|stderr) [FP] ?")
_KUBECTL = re.compile(r"\[pod/[^\]\s]{1,300}\] ")
_LIBRDKAFKA = re.compile(r"%[0-7]\|(\d{9,11}(?:\.\d+)?)\|")

HEAD_CHARS = 96
"""A line's time is searched in its first characters: loggers put it there, perhaps after a level or a pod's name."""

DAY_MS = 86_400_000.0


def unwrapped(text: str) -> tuple[str, float]:
    """The line without the shipper's wrapping, and the shipper's time if there is one."""
    shipped = NO_TIME
    for _ in range(3):  # for example kubectl's prefix around containerd's
        if text.startswith("{") and '"log":' in text[:20_000]:
            inner, at = _docker(text)
        elif match := _CRI.match(text):
            inner, at = text[match.end() :], stamp_ms(match[1])
        elif match := _KUBECTL.match(text):
            inner, at = text[match.end() :], NO_TIME
        else:
            break
        if inner == text:
            break
        text = inner
        shipped = at if at == at else shipped
    return text, shipped


def _docker(text: str) -> tuple[str, float]:
    """docker's json-file driver: {"log":"…\\n","stream":"stderr","time":"…"}."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return text, NO_TIME
    inner = fields.get("log") if isinstance(fields, dict) else None
    if not isinstance(inner, str):
        return text, NO_TIME
    return inner.rstrip("\n"), stamp_ms(str(fields.get("time", "")))


def written_ms(text: str, shipped: float) -> float:
    """The line's own time, else the shipper's."""
    if match := _LIBRDKAFKA.search(text, 0, HEAD_CHARS):
        return float(match[1]) * 1000.0
    own = stamp_ms(text[:HEAD_CHARS])
    if own == own:
        return own
    if shipped == shipped:
        return shipped
    if match := _TIME_ONLY.search(text, 0, HEAD_CHARS):
        hours, minutes, seconds, ms = map(int, match.groups())
        return float(((hours * 60 + minutes) * 60 + seconds) * 1000 + ms)
    return NO_TIME


def is_dateless(at_ms: float) -> bool:
    """A time of day without a date. No log is from the 1st of January 1970."""
    return 0.0 <= at_ms < DAY_MS


def dated(at_ms: float, last_ms: float) -> float:
    """A time of day in a file whose last line was written at `last_ms`: on that day, or the day before."""
    if not is_dateless(at_ms):
        return at_ms
    day = last_ms - last_ms % DAY_MS
    placed = day + at_ms
    return placed if placed <= last_ms + 1_000.0 else placed - DAY_MS


def stamp_ms(text: str) -> float:
    """The first date and time in the text."""
    match = _STAMP.search(text)
    if match is None:
        return NO_TIME
    day, hours, minutes, seconds, fraction, zone = match.groups()
    start = _day_ms(day)
    if start != start:
        return NO_TIME
    at = start + ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000.0
    if fraction:
        at += int(fraction) * 1000.0 / 10 ** len(fraction)
    if zone and zone[0] in "+-":
        offset = int(zone[1:3]) * 60 + int(zone[-2:])
        at -= (offset if zone[0] == "+" else -offset) * 60_000.0
    return at


@lru_cache(maxsize=4096)
def _day_ms(day: str) -> float:
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000.0
    except ValueError:
        return NO_TIME
