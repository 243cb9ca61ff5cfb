"""Lines of Apache Kafka's group coordinators: the old one (Scala, 2.x to 3.9) and the new one (Java, 3.7 to 4.x).

Both say the same things in different words, and versions differ in where they put the offsets partition, the number of
members and the client's reason. Each pattern here matches all of them; a line that none matches is counted as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of

_MARK = re.compile(r"\[Group(?:Coordinator|MetadataManager)[^\]]*\]:? ?")

_Fill = Callable[[Event, "re.Match[str]"], None]


def _reason(event: Event, match: re.Match[str]) -> None:
    reason = match["reason"] or ""  # a coordinator of 2.x gives none, nor does a line that was cut short
    event.said = reason[: e.MAX_SAID]
    event.member = culprit_of(reason)
    event.client = client_of(event.member)


def _counted(event: Event, match: re.Match[str]) -> None:
    if match["count"]:
        event.number = float(match["count"])


def _none(event: Event, match: re.Match[str]) -> None:
    """The pattern's named groups already fill the event."""


def _leaver(event: Event, match: re.Match[str]) -> None:
    """The old coordinator prints every field of the member, the new one only its id."""
    who = match["who"]
    event.said = (match["reason"] or "")[: e.MAX_SAID]
    known = dict(_DETAIL.findall(who))
    event.member = known.get("memberId") or known.get("member.id") or who
    event.client = known.get("clientId") or client_of(event.member)
    instance = known.get("groupInstanceId") or known.get("group.instance.id") or "None"
    event.instance = "" if instance == "None" else instance.removeprefix("Some(").rstrip(")")
    event.host = known.get("clientHost", "").lstrip("/")
    if known.get("sessionTimeoutMs", "").isdigit():
        event.number = float(known["sessionTimeoutMs"])
    if protocols := _PROTOCOLS.search(who):
        event.partitions = protocols[1].replace(", ", ",")


_DETAIL = re.compile(r"(memberId|member\.id|clientId|clientHost|groupInstanceId|group\.instance\.id|sessionTimeoutMs)"
                     r"[= ](Some\([^)]*\)|[^,)\]]+)")  # fmt: skip
_PROTOCOLS = re.compile(r"supportedProtocols=List\(([^)]*)\)")


def _replaced(event: Event, match: re.Match[str]) -> None:
    event.said = match["old"]
    event.client = client_of(match["old"])


def _reason_only(event: Event, match: re.Match[str]) -> None:
    event.said = match["reason"][: e.MAX_SAID]


def _new_protocol(event: Event, match: re.Match[str]) -> None:
    event.level = "consumer"


def _fenced_new(event: Event, match: re.Match[str]) -> None:
    """The new protocol: the member's session, or its time to give partitions back, has run out."""
    event.level = "consumer"
    event.said = match["reason"][: e.MAX_SAID]
    event.kind = e.EXPIRED if "session" in event.said else e.EXPELLED


def _loaded(event: Event, match: re.Match[str]) -> None:
    """The generation says nothing about a round: it was completed by another coordinator."""
    event.generation = -1
    _counted(event, match)


_M = r"(?P<member>\S+?)"
_G = r"(?P<group>.+?)"
_SHAPES: tuple[tuple[str, str, str, _Fill], ...] = (
    # (cheap substring to test first, kind, pattern, what fills in the rest)
    (
        "Preparing to rebalance", e.PREPARING,
        rf"Preparing to rebalance group {_G} in state \w+ with old generation (?P<generation>-?\d+)"
        r"(?: \(__consumer_offsets-\d+\))?(?: \(reason: (?P<reason>.*)\))?\.?", _reason,
    ),
    (
        "Stabilized group", e.GENERATION,
        rf"Stabilized group {_G} generation (?P<generation>\d+)(?: \(__consumer_offsets-\d+\))?"
        r"(?: with (?P<count>\d+) members)?\.?", _counted,
    ),
    (
        "Assignment received from leader", e.STABLE,
        rf"Assignment received from leader(?: {_M})? for group {_G} for generation (?P<generation>\d+)"
        r"(?:\. The group has (?P<count>\d+) members, \d+ of which are static)?\.?", _counted,
    ),
    (
        "is now empty", e.EMPTY,
        rf"Group {_G} with generation (?P<generation>\d+) is now empty(?: \(__consumer_offsets-\d+\))?\.?", _none,
    ),
    (
        "Created a new member id", e.ARRIVED,
        rf"(?:Dynamic [Mm]ember|Static member with groupInstanceId=(?P<instance>.+?)) (?:and|with) unknown member id "
        rf"joins group {_G} in (?:state )?\w+(?: state)?\. Created a new member id {_M} .*", _none,
    ),
    (
        "Replacing previously mapped member", e.REPLACED,
        rf"Static member with groupInstanceId=(?P<instance>.+?) and unknown member id joins group {_G} in "
        r"\w+ state\. Replacing previously mapped member (?P<old>\S+) with this groupInstanceId\.?", _replaced,
    ),
    (
        "rejoins, assigning new member id", e.REPLACED,
        rf"Static member (?:Some\()?(?P<instance>.+?)\)? with unknown member id rejoins, assigning new member id {_M}, "
        r"while old member (?P<old>\S+) will be removed\.?", _replaced,
    ),
    (
        "explicit `LeaveGroup`", e.LEFT,
        rf"\[Group {_G}\] Member (?P<who>.+) has left group through explicit `LeaveGroup` request"
        r"(?:; client reason: (?P<reason>.*))?", _leaver,
    ),
    (
        "explicit `LeaveGroup`", e.LEFT,
        rf"Member (?P<who>.+) has left group {_G} through explicit `LeaveGroup`(?: request)?"
        r"(?:; client reason: (?P<reason>.*))?", _leaver,
    ),
    (
        "has left, removing it", e.LEFT,
        rf"(?P<who>Member\[.+\]|Member \S+) in group {_G} has left, removing it from the group(?P<reason>)\.?", _leaver,
    ),
    ("has failed, removing it", e.EXPIRED, rf"Member {_M} in group {_G} has failed, removing it from the group\.?",
     _none),
    (
        "who haven't joined", e.EXPELLED,
        rf"Group {_G} removed dynamic members who haven't joined: (?:Set|HashSet|\[)?\(?"
        r"(?P<member>[^\]\s,)]+).*",
        _none,
    ),
    (
        "is fenced by", e.FENCED,
        rf"Request memberId={_M} for static member with groupInstanceId=(?P<instance>.+?) is fenced by "
        r"(?:current|existing) memberId=(?P<reason>\S+) during operation .*", _reason_only,
    ),
    (
        "because the instance id is",
        e.FENCED,
        rf"\[GroupId {_G}\] Static member {_M} with instance id (?P<instance>.+?) cannot join the group because the "
        r"instance id is (?:is )?owned by member (?P<reason>\S+?)\.?$",
        _reason_only,
    ),
    (
        "is fenced by existing member", e.FENCED,
        rf"\[GroupId {_G}\] Static member {_M} with instance id (?P<instance>.+?) is fenced by existing member "
        r"(?P<reason>\S+?)\.?$", _reason_only,
    ),
    (
        "joins the consumer group using", e.ARRIVED,
        rf"\[GroupId {_G}\] (?:Static member|Member) {_M}(?: with instance id (?P<instance>.+?))? joins the consumer "
        r"group using the \w+ protocol\.?", _new_protocol,
    ),
    (
        "to replace the existing member", e.REPLACED,
        rf"\[GroupId {_G}\] Static member with instance id (?P<instance>.+?) re-joins the consumer group using the \w+ "
        rf"protocol\. Created a new member {_M} to replace the existing member (?P<old>\S+?)\.?$", _replaced,
    ),
    (
        "Bumped group epoch", e.PREPARING,
        rf"\[GroupId {_G}\] Bumped group epoch to (?P<generation>\d+).*", _new_protocol,
    ),
    (
        "Computed a new target assignment", e.STABLE,
        rf"\[GroupId {_G}\] Computed a new target assignment for epoch (?P<generation>\d+) with '[^']*' assignor "
        r"in \d+ms.*", _new_protocol,
    ),
    ("left the consumer group", e.LEFT,
     rf"\[GroupId {_G}\] (?:Static )?[Mm]ember {_M}(?: with instance id (?P<instance>.+?))? left the consumer group\.?",
     _new_protocol),
    (
        "Loaded c", e.LOADED, rf"Loaded (?:classic|consumer) group {_G} with (?P<count>[1-9]\d*) members\.?$", _loaded,
    ),
    (
        "Loading group metadata", e.LOADED,
        rf"Loading group metadata for {_G} with generation (?P<count>)(?P<generation>[1-9]\d*)\.?$", _loaded,
    ),
    (
        "fenced from the group because", e.EXPIRED,
        rf"\[GroupId {_G}\] Member {_M} fenced from the group because (?P<reason>.+?)\.?$", _fenced_new,
    ),
)  # fmt: skip
_COMPILED = tuple((word, kind, re.compile(pattern), fill) for word, kind, pattern, fill in _SHAPES)

LOGGER = re.compile(r" \([\w.$]+\)$")
"""Kafka's own layout, of brokers and of clients, ends a line with the logger."""

_QUIET = (
    "Pending dynamic member", "Pending member", "will not trigger", "Elected as the group coordinator",
    "Resigned as the group", "Scheduling loading", "Finished loading", "Scheduling unloading", "Finished unloading",
    "Loaded classic group", "Loaded consumer group", "Loading group metadata", "Unloading group metadata",
    "Unloaded group metadata", "Starting up.", "Startup complete.", "Shutting down", "Shutdown complete", "Removed ",
    "new assignment state", "updated its subscribed topics", "Computed new subscription metadata", "temporarily left",
    "is dead, skipping", "Dynamic member with unknown member id joins the consumer group", "Event processor closed",
    "Coordinator runtime closed", "Closing coordinator runtime", "The following groups were deleted",
    "The following offsets of the group", "Finished cleaning", "Successfully loaded", "loading of offsets and group",
    "oordinator from __consumer_offsets", "transition", "Creating simple consumer group", "Generated automatic",
)  # fmt: skip
"""Known lines without use here; they must not be reported as unknown."""


def parse(text: str, at_ms: float) -> Event | bool:
    """The event of a coordinator's line; True for a known line without an event; False for an unknown line."""
    mark = _MARK.search(text)
    body = text[mark.end() :] if mark is not None else text
    body = LOGGER.sub("", body)
    for word, kind, pattern, fill in _COMPILED:
        if word not in body:
            continue
        match = pattern.search(body)
        if match is None:
            continue
        named = match.groupdict()
        event = Event(at_ms=at_ms, kind=kind, source=e.BROKER, group=named.get("group") or "", level="classic")
        event.member = named.get("member") or ""
        event.instance = named.get("instance") or ""
        event.client = client_of(event.member)
        if named.get("generation"):
            event.generation = int(named["generation"])
        fill(event, match)
        return event
    return any(word in body for word in _QUIET)


_CULPRITS = (
    re.compile(r"(?:Adding new|Updating metadata for(?: static)?|[Rr]emoving|static) member (\S+?)(?: |;|$)"),
    re.compile(r"Leader (\S+) re-joining"),
    re.compile(r"`LeaveGroup` request for \((\S+?)[,)]"),
    re.compile(r"[Rr]emoving (?:member )?(?:Set|HashSet|List|\[)?\(?([^\s,;)\]]+)"),
    re.compile(r"Member (\S+) joining group during"),
)


def culprit_of(reason: str) -> str:
    """The member named in a round's reason, or ""."""
    for pattern in _CULPRITS:
        if match := pattern.search(reason):
            return match[1]
    return ""
