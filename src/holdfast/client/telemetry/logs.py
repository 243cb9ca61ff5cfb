"""A consumer's log lines, made from its trace records: Python's `logging`, logger `holdfast`.

INFO: what an operator wants to see of a healthy group, that is each round's result with its cause, and members that
come and go on purpose. WARNING: what somebody should look at, with advice. ERROR: the end of a membership. All other
steps are DEBUG, in the form that `holdfast sim` prints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.model.text import one_line
from holdfast.trace import render
from holdfast.trace.render import what

log = logging.getLogger("holdfast")

TOLD: Mapping[str, str] = {
    "synced": "rebalanced",
    "draining": "hands everything over and leaves",
    "left": "left the group",
    "stayed": "ended, and keeps its place in the group",
    "became-eager": "joins under the eager protocol",
    "became-cooperative": "is cooperative from now on",
    "upgrading": "makes the group cooperative",
}
"""Steps at INFO, in words."""

FAULTS: Mapping[str, tuple[str, str]] = {
    "membership-lost": (
        "lost its membership",
        "It joins again by itself. If this comes often, look for long pauses of the process or the network and "
        "compare them with session.timeout.ms.",
    ),
    "losing": (
        "lost partitions without a revoke",
        "Other members may own them by now, so nothing of them is committed.",
    ),
    "poll-expired": (
        "gave up its membership because the application did not poll",
        "Do less between two polls, or raise max.poll.interval.ms; the trace has the stack of the thread that hangs.",
    ),
    "waiting-for-poll": (
        "can't take part in a round because the application does not poll",
        "Poll more often: the group waits.",
    ),
    "told": ("is in trouble", "It goes on trying; the error says what to do."),
    "plan-kept": ("could not plan", "All members keep their partitions. Fix the assignor."),
    "newer-assignor": (
        "plans with an older version of the assignor than other members have",
        "Finish the deploy: restart this member with the new version.",
    ),
    "undeclared-transition": (
        "made a transition that its state table does not have",
        "This is a bug in holdfast, please report it. The member goes on.",
    ),
    "note-ignored": (
        "ignored an invalid note or claim",
        "Check the member that is named: who runs it, and in which version?",
    ),
}
"""Steps at WARNING: what happened, and what to do."""


class TraceLog:
    """Writes one consumer's records to the log."""

    def __init__(self) -> None:
        self._why = ""

    def write(self, record: TraceRecord) -> None:
        step = record.step
        if step == "rejoin":
            self._why = record.cause or ""
        if step in FAULTS:
            happened, do = FAULTS[step]
            self._say(logging.WARNING, record, happened, do)
        elif step == "failed":
            self._say(logging.ERROR, record, "can't go on", "")
        elif step in TOLD:
            why = f"· because {self._why}" if step == "synced" and self._why else ""
            self._say(logging.INFO, record, TOLD[step], why)
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("%s", render(record))

    def _say(self, level: int, record: TraceRecord, happened: str, more: str) -> None:
        """Write the line. The step goes with it as `holdfast_step`, for filters."""
        if not log.isEnabledFor(level):
            return
        generation = "" if record.generation is None or record.generation < 0 else f", generation {record.generation}"
        said = what(record)
        text = f"{record.member} of group {record.group}{generation} {happened}{f': {said}' if said else '.'}"
        if more and not more.startswith("·") and not text.endswith("."):
            text += "."
        log.log(level, "%s", one_line(f"{text} {more}".rstrip()), extra={"holdfast_step": record.step})
