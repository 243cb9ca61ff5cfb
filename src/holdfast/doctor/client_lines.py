"""Lines of the clients: Java's ConsumerCoordinator and AbstractCoordinator (2.4 to 4.x), and librdkafka.

Java puts its client id and group in front of each line. librdkafka names only its client; the group appears only in
lines of `debug=cgrp`. For the other lines the job finds the group by the client's name.
"""

from __future__ import annotations

import re

from holdfast.doctor import events as e
from holdfast.doctor.broker_lines import LOGGER
from holdfast.doctor.events import Event

_JAVA = re.compile(
    r"\[(?:Consumer|Worker)?\s?(?:instanceId=(?P<instance>[^,\]]+), )?clientId=(?P<client>[^,\]]*), "
    r"(?:groupId|connect cluster)=(?P<group>[^\]]*)\] (?P<body>.*)"
)
_GENERATION = re.compile(r"generationId=(-?\d+), memberId='([^']*)', protocol='([^']*)'|generation (-?\d+)")
_PARTITIONS = re.compile(r"[\w.\-]+-\d+")
_PLAN = re.compile(r"([^\s{,=]+)=Assignment\(partitions=\[([^\]]*)\]")
_MEMBER_LEAVES = re.compile(r"Member (\S+) sending LeaveGroup request to coordinator .*? due to (.*)")
_EPOCH = re.compile(r"Member (\S+) with epoch (-?\d+) transitioned from (\w+) to (\w+)")


def parse_java(text: str, at_ms: float) -> Event | bool:
    """As `broker_lines.parse`."""
    match = _JAVA.search(text)
    if match is None:
        return False
    body = LOGGER.sub("", match["body"])
    event = Event(
        at_ms=at_ms, kind="", source=e.JAVA, group=match["group"], client=match["client"],
        instance=match["instance"] or "",
    )  # fmt: skip
    return event if _fill_java(event, body) else _is_known_java(body)


def _fill_java(event: Event, body: str) -> bool:
    """Fill in the event; false if the line holds none."""
    if body.startswith("(Re-)joining group"):
        event.kind = e.JOINING
    elif body.startswith("Successfully joined group with generation"):
        event.kind = e.JOINED
        _generation(event, body)
    elif body.startswith("Successfully synced group"):
        event.kind = e.SYNCED
        _generation(event, body)
    elif body.startswith("Finished assignment for group at generation"):
        event.kind = e.PLANNED
        _generation(event, body)
        event.partitions = ";".join(f"{who}={' '.join(_PARTITIONS.findall(held))}" for who, held in _PLAN.findall(body))
    elif body.startswith("Request joining group due to:"):
        event.kind, event.said = e.WANTS, body.partition(": ")[2][: e.MAX_SAID]
    elif body.startswith("Adding newly assigned partitions:"):
        event.kind, event.partitions = e.ADDED, _listed(body)
    elif body.startswith(("Revoke previously assigned partitions", "Revoking previously assigned partitions")):
        event.kind, event.partitions = e.REVOKED, _listed(body)
    elif body.startswith(("Lost previously assigned partitions", "Giving away all assigned partitions as lost")):
        event.kind, event.partitions = e.LOST, _listed(body)
    elif "poll timeout has expired" in body and match_leave(body) is None:
        event.kind = e.TOO_SLOW
    elif leave := match_leave(body):
        event.kind, event.member, event.said = e.LEAVING, leave[1], leave[2][: e.MAX_SAID]
    elif "fenced" in body and ("nstance" in body):
        event.kind, event.said = e.FENCED, body[: e.MAX_SAID]
        _generation(event, body)
    elif "commit" in body.lower() and ("failed" in body or "Failing" in body):
        event.kind, event.said = e.COMMIT_FAILED, body[: e.MAX_SAID]
        _generation(event, body)
    elif "session timed out" in body or "session timeout" in body:
        event.kind, event.said = e.SILENT, body[: e.MAX_SAID]
    elif moved := _EPOCH.search(body):
        return _fill_epoch(event, moved)
    else:
        return False
    return True


def match_leave(body: str) -> re.Match[str] | None:
    return _MEMBER_LEAVES.search(body)


def _fill_epoch(event: Event, moved: re.Match[str]) -> bool:
    """A member of the new protocol: STABLE corresponds to the classic protocol's synced."""
    event.member, event.generation, event.level = moved[1], int(moved[2]), "consumer"
    kind = {"STABLE": e.SYNCED, "JOINING": e.JOINING, "FENCED": e.LOST, "STALE": e.TOO_SLOW}.get(moved[4])
    event.kind = kind or ""
    return kind is not None


def _is_known_java(body: str) -> bool:
    """Most of a consumer's lines are of no use here, so only those about joining or leaving count as unknown."""
    return not any(word in body for word in ("rebalancing", "joining", "JoinGroup failed", "LeaveGroup"))


def _generation(event: Event, body: str) -> None:
    match = _GENERATION.search(body)
    if match is None:
        return
    if match[4] is not None:
        event.generation = int(match[4])
        return
    event.generation, event.member = int(match[1]), match[2]
    if event.kind in (e.JOINED, e.SYNCED):
        event.said = "" if match[3] == "null" else match[3]


def _listed(body: str) -> str:
    head, found, rest = body.partition("[")
    return " ".join(_PARTITIONS.findall(rest if found else head.partition("partitions")[2]))


# -- librdkafka

_RDK = re.compile(r"%(?P<level>[0-7])\|[\d.]+\|(?P<fac>\w+)\|(?P<name>.*?)\| \[thrd:[^\]]*\]: (?P<body>.*)")
_RDK_GROUP = re.compile(r'[Gg]roup "([^"]*)"')
_RDK_JOINED = re.compile(
    r"JoinGroup response: GenerationId (-?\d+), Protocol (\S*), LeaderId (\S*), my MemberId (\S*), .*"
)
_MAXPOLL = re.compile(r"maximum poll interval \((\d+) ?ms\) exceeded by (\d+) ?ms")
_SESSION = re.compile(r"session timed out .*after (\d+) ms")
_KNOWN_FACS = frozenset({"FAIL", "ERROR", "INIT", "CONFWARN", "CONNECT", "REQTMOUT", "GETPID", "MEMBERID"})


def parse_librdkafka(text: str, at_ms: float) -> Event | bool:
    """As `broker_lines.parse`."""
    match = _RDK.search(text)
    if match is None:
        return False
    facility, body = match["fac"], match["body"]
    group = _RDK_GROUP.search(body)
    event = Event(
        at_ms=at_ms, kind="", source=e.LIBRDKAFKA, group=group[1] if group else "",
        client=match["name"].rpartition("#")[0] or match["name"],
    )  # fmt: skip
    if _fill_librdkafka(event, facility, body):
        return event
    return facility in _KNOWN_FACS or match["level"] == "7"


def _fill_librdkafka(event: Event, facility: str, body: str) -> bool:
    if slow := _MAXPOLL.search(body):
        event.kind, event.number, event.said = e.TOO_SLOW, float(slow[2]), f"max.poll.interval.ms={slow[1]}"
    elif silent := _SESSION.search(body):
        event.kind, event.number, event.said = e.SILENT, float(silent[1]), body[: e.MAX_SAID]
    elif facility == "FATAL" and "fenced" in body:
        event.kind, event.said = e.FENCED, body[: e.MAX_SAID]
    elif joined := _RDK_JOINED.search(body):
        if int(joined[1]) < 0:
            return False
        event.kind, event.generation, event.said, event.member = e.JOINED, int(joined[1]), joined[2], joined[4]
    elif facility == "SYNCGROUP" and "Success" in body:
        event.kind = e.SYNCED
    elif facility == "JOIN" and "Joining group" in body:
        event.kind = e.JOINING
    elif facility == "LEAVE" and "leav" in body.lower():
        event.kind = e.LEAVING
    elif facility in ("COMMIT", "OFFSET") and event.group and "failed" in body:
        event.kind, event.said = e.COMMIT_FAILED, body[: e.MAX_SAID]
    elif event.group and facility == "SUBSCRIBE":
        event.kind = e.NAMED
    else:
        return False
    return True
