"""Topic patterns as librdkafka reads them: a name that starts with ^ is a POSIX extended regular expression.

Python's regular expressions differ. What both languages have means the same in both, and POSIX's bracket classes are
translated. A consumer refuses what only Python has, so that a pattern means the same to every client. Spark's source
skips that check (`check`), because its patterns are Java's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "blank": " \\t",
    "xdigit": "0-9A-Fa-f",
    "cntrl": "\\x00-\\x1f\\x7f",
    "graph": "!-~",
    "print": " -~",
}
_CLASS = re.compile(r"\[:(\w+):\]")


def is_pattern(topic: str) -> bool:
    return topic.startswith("^")


def check(pattern: str) -> None:
    """Raises ValueError for a pattern that librdkafka would not accept."""
    if "(?" in pattern:
        raise ValueError(f"{pattern}: (? is not part of a POSIX regular expression")
    if re.search(r"(^\^|\(|(?<!\\)\|)[*+?]", pattern):
        raise ValueError(f"{pattern}: there is nothing to repeat")
    compiled(pattern)


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises ValueError for a pattern that can't be compiled."""
    try:
        return re.compile(_CLASS.sub(_translated, pattern))
    except re.error as error:
        raise ValueError(f"{pattern}: {error}") from None


def blacklisted(patterns: str) -> Callable[[str], bool]:
    """Whether a topic is to be treated as if it did not exist, by topic.blacklist: patterns with commas between them,
    of which none needs a ^. Raises ValueError as `check` does."""
    listed = patterns.removesuffix(",").split(",") if patterns else []
    for pattern in listed:
        check(pattern)
    found = [compiled(pattern) for pattern in listed]
    return lambda topic: any(pattern.search(topic) for pattern in found)


def _translated(found: re.Match[str]) -> str:
    name = found.group(1)
    if name not in CLASSES:
        raise ValueError(f"there is no character class [:{name}:]")
    return CLASSES[name]
