"""The rules of fetching as a table: what each answer does to a partition, and what its reader has to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from holdfast.fetch.planner import LARGEST_BATCH_BYTES, LONGEST_THROTTLE_S, may_name_follower, node_to_ask, step
from holdfast.fetch.values import (
    Answer,
    Asked,
    AskFirst,
    AtEnd,
    Came,
    Cut,
    CutOff,
    Damaged,
    Deliver,
    Effect,
    LeftOut,
    LookUp,
    Nothing,
    OutOfRange,
    Refused,
    Replica,
    Report,
    Rules,
    Stalled,
    Step,
    Track,
    Unanswered,
)
from holdfast.model import ErrorCode, HoldfastError

NOW = 1_000.0
CONSUMER = Rules()
TASK = Rules(backoff_s=0.05, unknown_s=10.0, patience_s=60.0, cut_off_s=10.0)
FRESH = Track()
LEADER_ONLY = Replica(None, NOW + 300.0)
FOLLOWED = Track(replica=Replica(7, NOW + 50.0))


def failure(code: ErrorCode | str) -> HoldfastError:
    return HoldfastError(code if isinstance(code, str) else code.name, "it can't be read.", "Look.")


def refused(code: ErrorCode, *, passes: bool = True) -> Refused:
    return Refused(code=code, error=ERRORS.setdefault(code.name, failure(code)), passes=passes)


ERRORS: dict[str, HoldfastError] = {}
DENIED = refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, passes=False)
BROKEN = refused(ErrorCode.UNKNOWN_SERVER_ERROR, passes=False)
CORRUPT = refused(ErrorCode.CORRUPT_MESSAGE)
GONE = refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
SESSION = refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
RANGE = refused(ErrorCode.OFFSET_OUT_OF_RANGE, passes=False)
DOWN = Unanswered(error=failure("DISCONNECTED"), passes=True)
LOCKED_OUT = Unanswered(error=failure("SASL_AUTHENTICATION_FAILED"), passes=False)
JUNK = Damaged(failure("CORRUPT_BATCH"))
MORE_THERE = Nothing(high_watermark=100)
AT_END = Nothing(high_watermark=40)


def told(answer: Refused) -> Report:
    return Report(error=answer.error, number=int(answer.code))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: offset 40 was asked for at NOW, of a range up to 100 where a task asks."""

    name: str
    answer: Answer
    track: Track = FRESH
    rules: Rules = CONSUMER
    throttle_s: float = 0.0
    follower: int | None = None
    then: Track = FRESH
    effects: tuple[Effect, ...] = field(default=())


WAITS = Track(ready_at=NOW + 0.1)
TASK_WAITS = Track(ready_at=NOW + 0.05)

TABLE = [
    # -- records
    Case(name="records are handed on", answer=Came(5), effects=(Deliver(),)),
    Case(
        name="records end whatever was wrong",
        answer=Came(5),
        track=Track(
            told="X", unknown_since=1, failing_since=1, stalled_since=1, quiet=9, partition_bytes=9, ready_at=9
        ),
        effects=(Deliver(),),
    ),
    Case(
        name="a batch that compaction emptied is handed on, and counts as silence",
        answer=Came(0),
        track=Track(quiet=2),
        then=Track(quiet=3),
        effects=(Deliver(),),
    ),
    Case(
        name="a batch that did not fit is asked for with more room",
        answer=Cut(),
        then=Track(quiet=1, partition_bytes=2 * CONSUMER.partition_bytes, stalled_since=NOW),
        effects=(AskFirst(),),
    ),
    Case(
        name="and not with more than any broker accepts",
        answer=Cut(),
        track=Track(partition_bytes=LARGEST_BATCH_BYTES),
        then=Track(quiet=1, partition_bytes=LARGEST_BATCH_BYTES, stalled_since=NOW),
        effects=(AskFirst(),),
    ),
    Case(
        name="a batch that no size fits is not waited for for ever",
        answer=Cut(),
        track=Track(partition_bytes=LARGEST_BATCH_BYTES, stalled_since=NOW - 60),
        rules=TASK,
        then=Track(quiet=1, partition_bytes=LARGEST_BATCH_BYTES, stalled_since=NOW - 60),
        effects=(Stalled(since=NOW - 60, reach=None),),
    ),
    Case(
        name="bytes that are no batch are reported",
        answer=JUNK,
        then=Track(told="CORRUPT_BATCH", ready_at=NOW + 1),
        effects=(Report(error=JUNK.error),),
    ),
    Case(
        name="and reported once",
        answer=JUNK,
        track=Track(told="CORRUPT_BATCH"),
        then=Track(told="CORRUPT_BATCH", ready_at=NOW + 1),
    ),
    # -- empty answers
    Case(name="a consumer at the end is told so", answer=AT_END, then=Track(quiet=1), effects=(AtEnd(40),)),
    Case(
        name="with read_committed the end is before an open transaction",
        answer=Nothing(high_watermark=100, last_stable=40),
        rules=Rules(read_committed=True),
        then=Track(quiet=1),
        effects=(AtEnd(100),),
    ),
    Case(
        name="an answer that was full before its turn came is asked for first, at once",
        answer=MORE_THERE,
        then=Track(quiet=1, stalled_since=NOW),
        effects=(AskFirst(),),
    ),
    Case(
        name="a broker that gives nothing again is not asked in a busy loop",
        answer=MORE_THERE,
        track=Track(stalled_since=NOW - 1),
        then=Track(quiet=1, stalled_since=NOW - 1, ready_at=NOW + 0.1),
        effects=(AskFirst(),),
    ),
    Case(
        name="a consumer waits for ever",
        answer=MORE_THERE,
        track=Track(stalled_since=1),
        then=Track(quiet=1, stalled_since=1, ready_at=NOW + 0.1),
        effects=(AskFirst(),),
    ),
    Case(
        name="records that a task is not given for too long are not given up in silence",
        answer=MORE_THERE,
        track=Track(stalled_since=NOW - 60),
        rules=TASK,
        then=Track(quiet=1, stalled_since=NOW - 60, ready_at=NOW + 0.05),
        effects=(Stalled(since=NOW - 60, reach=100),),
    ),
    Case(
        name="a log that ends before the range may still grow: a new leader learns how far it goes",
        answer=AT_END,
        track=Track(stalled_since=NOW - 9),
        rules=TASK,
        then=Track(quiet=1, stalled_since=NOW - 9),
        effects=(AtEnd(40),),
    ),
    Case(
        name="after a while it is cut off",
        answer=AT_END,
        track=Track(stalled_since=NOW - 10),
        rules=TASK,
        then=Track(quiet=1, stalled_since=NOW - 10),
        effects=(CutOff(40),),
    ),
    # -- followers
    Case(
        name="the follower that the leader names is read, at once",
        answer=Nothing(high_watermark=100, preferred=7),
        then=Track(quiet=1, replica=Replica(7, NOW + 300)),
    ),
    Case(
        name="a follower that fails is left for the leader, at once, and not named again",
        answer=RANGE,
        track=FOLLOWED,
        follower=7,
        then=Track(replica=LEADER_ONLY),
    ),
    Case(
        name="a follower that does not answer, too",
        answer=DOWN,
        track=FOLLOWED,
        follower=7,
        then=Track(replica=LEADER_ONLY),
        effects=(LookUp(),),
    ),
    Case(
        name="a follower's error says nothing about the topic",
        answer=GONE,
        track=replace(FOLLOWED, unknown_since=1.0),
        follower=7,
        then=Track(replica=LEADER_ONLY, unknown_since=1.0),
        effects=(LookUp(),),
    ),
    Case(
        name="a follower whose log is short does not say that the log was cut off: the leader is asked",
        answer=AT_END,
        track=replace(FOLLOWED, stalled_since=NOW - 10),
        follower=7,
        rules=TASK,
        then=Track(quiet=1, replica=LEADER_ONLY),
    ),
    Case(
        name="nor that records can't be had",
        answer=MORE_THERE,
        track=replace(FOLLOWED, stalled_since=NOW - 60),
        follower=7,
        rules=TASK,
        then=Track(quiet=1, replica=LEADER_ONLY),
        effects=(AskFirst(),),
    ),
    Case(
        name="a leader that names a follower which has just failed is asked again",
        answer=Nothing(high_watermark=100, preferred=7),
        track=Track(replica=LEADER_ONLY),
        then=Track(quiet=1, replica=LEADER_ONLY, stalled_since=NOW),
        effects=(AskFirst(),),
    ),
    # -- partitions that an answer leaves out, and throttles
    Case(name="a partition left out is asked for again", answer=LeftOut(), then=replace(WAITS, stalled_since=NOW)),
    Case(
        name="a throttled answer names no topic: that is no deleted one, and no time is counted",
        answer=LeftOut(),
        rules=TASK,
        throttle_s=2.0,
        then=Track(ready_at=NOW + 2),
    ),
    Case(
        name="however long it goes on",
        answer=LeftOut(),
        track=Track(stalled_since=NOW - 500),
        rules=TASK,
        throttle_s=2.0,
        then=Track(ready_at=NOW + 2, stalled_since=NOW - 498),
    ),
    Case(
        name="a task gives up on a partition that is left out without a reason, and says so",
        answer=LeftOut(),
        track=Track(stalled_since=NOW - 60),
        rules=TASK,
        then=replace(TASK_WAITS, stalled_since=NOW - 60),
        effects=(Stalled(since=NOW - 60, reach=None),),
    ),
    Case(
        name="records that came with a throttle are handed on, and the next are asked for later",
        answer=Came(5),
        throttle_s=0.5,
        then=Track(ready_at=NOW + 0.5),
        effects=(Deliver(),),
    ),
    Case(
        name="an absurd throttle is cut",
        answer=LeftOut(),
        throttle_s=1e9,
        then=Track(ready_at=NOW + LONGEST_THROTTLE_S),
    ),
    # -- errors
    Case(name="out of range: another offset is chosen", answer=RANGE, effects=(OutOfRange(),)),
    Case(
        name="a denied topic is reported",
        answer=DENIED,
        then=Track(told="TOPIC_AUTHORIZATION_FAILED", ready_at=NOW + 1),
        effects=(told(DENIED),),
    ),
    Case(
        name="once, until it is over",
        answer=DENIED,
        track=Track(told="TOPIC_AUTHORIZATION_FAILED"),
        then=Track(told="TOPIC_AUTHORIZATION_FAILED", ready_at=NOW + 1),
    ),
    Case(
        name="a denied topic ends a task at once, and is no deleted topic",
        answer=DENIED,
        rules=TASK,
        then=Track(told="TOPIC_AUTHORIZATION_FAILED", ready_at=NOW + 1),
        effects=(told(DENIED),),
    ),
    Case(
        name="what may stay is reported with every try",
        answer=BROKEN,
        track=Track(told="UNKNOWN_SERVER_ERROR"),
        then=Track(told="UNKNOWN_SERVER_ERROR", ready_at=NOW + 0.5),
        effects=(told(BROKEN),),
    ),
    Case(
        name="a log that the broker can't read is reported to a consumer with every try",
        answer=CORRUPT,
        then=Track(told="CORRUPT_MESSAGE", ready_at=NOW + 0.5),
        effects=(told(CORRUPT),),
    ),
    Case(
        name="and tried again by a task, which a report would end",
        answer=CORRUPT,
        rules=TASK,
        then=replace(TASK_WAITS, failing_since=NOW),
    ),
    Case(
        name="an unknown topic may be new",
        answer=GONE,
        then=replace(WAITS, unknown_since=NOW),
        effects=(LookUp(),),
    ),
    Case(
        name="and is reported after a while, once",
        answer=GONE,
        track=Track(unknown_since=NOW - 3),
        then=Track(unknown_since=NOW - 3, told="UNKNOWN_TOPIC_OR_PARTITION", ready_at=NOW + 1),
        effects=(LookUp(), told(GONE)),
    ),
    Case(
        name="a task waits longer for it",
        answer=GONE,
        track=Track(unknown_since=NOW - 3),
        rules=TASK,
        then=replace(TASK_WAITS, unknown_since=NOW - 3),
        effects=(LookUp(),),
    ),
    Case(
        name="an error of the whole answer that passes changes nothing but the time",
        answer=SESSION,
        then=replace(WAITS, failing_since=NOW),
    ),
    Case(
        name="nobody answers: another broker may lead",
        answer=DOWN,
        then=replace(WAITS, failing_since=NOW),
        effects=(LookUp(),),
    ),
    Case(
        name="a consumer waits for a broker for ever",
        answer=DOWN,
        track=Track(failing_since=1),
        then=replace(WAITS, failing_since=1),
        effects=(LookUp(),),
    ),
    Case(
        name="a task as long as an election may take",
        answer=DOWN,
        track=Track(failing_since=NOW - 60),
        rules=TASK,
        then=Track(failing_since=NOW - 60, told="DISCONNECTED", ready_at=NOW + 1),
        effects=(LookUp(), Report(error=DOWN.error)),
    ),
    Case(
        name="a login that is refused is reported",
        answer=LOCKED_OUT,
        then=Track(told="SASL_AUTHENTICATION_FAILED", ready_at=NOW + 1),
        effects=(LookUp(), Report(error=LOCKED_OUT.error)),
    ),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_each_answer_has_its_consequence(case: Case) -> None:
    asked = Asked(offset=40, at=NOW, end=100 if case.rules is TASK else None, follower=case.follower)
    stepped = step(case.track, asked, case.answer, now=NOW, rules=case.rules, throttle_s=case.throttle_s)
    assert stepped == Step(case.then, case.effects)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
@pytest.mark.parametrize("rules", [CONSUMER, TASK], ids=["consumer", "task"])
def test_a_leader_that_moved_is_looked_up_and_not_reported(code: ErrorCode, rules: Rules) -> None:
    stepped = step(FRESH, Asked(offset=40, at=NOW), refused(code), now=NOW, rules=rules)
    assert stepped == Step(Track(ready_at=NOW + rules.backoff_s, failing_since=NOW), (LookUp(),))


@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("passes", [True, False])
def test_no_error_is_taken_for_records_an_end_or_silence(code: ErrorCode, passes: bool) -> None:
    """Whatever a broker refuses with, no reader moves on by it, and no reader asks again without a pause."""
    if code is ErrorCode.NONE:
        return
    for rules in (CONSUMER, TASK):
        stepped = step(FRESH, Asked(offset=40, at=NOW, end=100), refused(code, passes=passes), now=NOW, rules=rules)
        assert not {type(effect) for effect in stepped.effects} & {Deliver, AtEnd, CutOff, Stalled}
        assert stepped.track.ready_at > NOW or stepped.effects == (OutOfRange(),)


def test_a_failure_counts_from_when_it_was_asked_and_not_from_when_it_was_heard_of() -> None:
    """A look-up that takes a minute has used up the minute."""
    stepped = step(FRESH, Asked(offset=40, at=NOW - 61, end=100), DOWN, now=NOW, rules=TASK)
    assert Report(error=DOWN.error) in stepped.effects


def test_a_follower_is_read_until_the_leader_is_to_be_asked_again() -> None:
    assert node_to_ask(FOLLOWED, NOW) == 7
    assert node_to_ask(FOLLOWED, NOW + 50) is None
    assert may_name_follower(FOLLOWED, NOW + 50)
    failed = Track(replica=LEADER_ONLY)
    assert node_to_ask(failed, NOW) is None
    assert not may_name_follower(failed, NOW)
    assert may_name_follower(failed, NOW + 300)
