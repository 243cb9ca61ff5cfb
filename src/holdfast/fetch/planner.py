"""The rules of fetching: one partition, one answer, one step.

    stepped = step(track, Asked(offset=40, at=before), answer, now=now, rules=rules)

Rules
- Only records, or the leader's own statement, move a position. An empty answer does not prove that there is nothing,
  and a partition that an answer leaves out has not been deleted: both are asked for again.
- A leader whose log lacks what was read says where its log departs from it. Reading goes back to there.
- A follower is read as long as it serves. After its first error only the leader is asked for a while, because the
  leader would name the same follower again.
- A broker's throttle time (`throttle_s`) is waited out, and does not count as time without progress.
- An error that passes by itself is tried again after a pause and reported when the patience is over. A denied topic is
  reported once, until access works again. An error that may never pass is reported with every try.
- Consumers and tasks differ by their `Rules` alone.

No clock, socket, randomness, log or record here: answers come as the types in `values`.
"""

from __future__ import annotations

from dataclasses import replace

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
    Diverged,
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
    Truncated,
    Unanswered,
)
from holdfast.model import ErrorCode

LARGEST_BATCH_BYTES = 128 * 1024 * 1024
"""The most that is asked for when a batch does not fit: more than any broker accepts."""

LONGEST_THROTTLE_S = 60.0
"""The longest throttle time that we obey. Kafka's own is at most its quota window, 11 s by default."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""After these the leader is looked up again."""

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The broker does not know the topic. It may be new, or gone."""


def step(track: Track, asked: Asked, answer: Answer, *, now: float, rules: Rules, throttle_s: float = 0.0) -> Step:
    """The partition after this answer, and what follows."""
    match answer:
        case Came():
            stepped = _came(track, answer)
        case Cut():
            stepped = _cut(track, asked, now, rules)
        case Damaged():
            stepped = _report_once(
                replace(_without_error(track, quiet=track.quiet), told=track.told), answer, now, rules
            )
        case Nothing():
            stepped = _nothing(_without_error(track, quiet=track.quiet + 1), asked, answer, now, rules)
        case Diverged():
            stepped = _diverged(track, asked, answer, now, rules)
        case LeftOut():
            stepped = _left_out(track, asked, now, rules, throttled=throttle_s > 0)
        case Refused():
            stepped = _refused(track, asked, answer, now, rules)
        case Unanswered():
            stepped = _unanswered(track, asked, answer, now, rules)
    return _throttled(stepped, now, throttle_s) if throttle_s > 0 else stepped


def node_to_ask(track: Track, now: float) -> int | None:
    """The follower to read now; None: the leader."""
    return track.replica.node if track.replica is not None and now < track.replica.until else None


def may_name_follower(track: Track, now: float) -> bool:
    """Whether to tell the leader our rack, so that it may name a follower: not soon after a follower has failed."""
    return track.replica is None or track.replica.node is not None or now >= track.replica.until


# -- answers without an error


def _without_error(track: Track, *, quiet: int) -> Track:
    """After any answer without an error. Made without `replace`, which is slow: each answer makes one per partition."""
    return Track(
        replica=track.replica,
        partition_bytes=track.partition_bytes,
        quiet=quiet,
        stalled_since=track.stalled_since,
    )


def _came(track: Track, answer: Came) -> Step:
    return Step(Track(replica=track.replica, quiet=0 if answer.rows else track.quiet + 1), (Deliver(),))


def _cut(track: Track, asked: Asked, now: float, rules: Rules) -> Step:
    """The first batch did not fit. Ask for more bytes, and ask for this partition first: a broker sends a batch that is
    larger than the limit whole only if it is the first of the answer (KIP-74)."""
    larger = min(2 * (track.partition_bytes or rules.partition_bytes), LARGEST_BATCH_BYTES)
    track = replace(_without_error(track, quiet=track.quiet + 1), partition_bytes=larger)
    return _stall(track, asked, now, rules, reach=None, effects=(AskFirst(),))


def _nothing(track: Track, asked: Asked, answer: Nothing, now: float, rules: Rules) -> Step:
    if answer.preferred >= 0 and answer.preferred != asked.follower and may_name_follower(track, now):
        return Step(replace(track, replica=Replica(answer.preferred, now + rules.replica_age_s)))
    stable = answer.last_stable
    reach = stable if rules.read_committed and stable >= 0 else answer.high_watermark
    if reach > asked.offset:
        again = track.stalled_since is not None  # the first time, other partitions may just have filled the answer
        waits = replace(track, ready_at=now + rules.backoff_s if again else 0.0)
        return _stall(waits, asked, now, rules, reach=reach, effects=(AskFirst(),))
    at_end = AtEnd(answer.high_watermark)
    if asked.end is None or rules.cut_off_s is None:
        return Step(track if track.stalled_since is None else replace(track, stalled_since=None), (at_end,))
    since = asked.at if track.stalled_since is None else track.stalled_since
    track = replace(track, stalled_since=since)
    if now - since < rules.cut_off_s:
        return Step(track, (at_end,))
    return Step(track, (CutOff(reach),)) if asked.follower is None else Step(_leader_only(track, now, rules))


def _diverged(track: Track, asked: Asked, answer: Diverged, now: float, rules: Rules) -> Step:
    """Only the leader's log counts: a follower that lags has not got what was read, and may get it yet."""
    if asked.follower is not None:
        return Step(_leader_only(track, now, rules))
    track = replace(_without_error(track, quiet=track.quiet), stalled_since=None)
    return Step(track, (Truncated(min(answer.end_offset, asked.offset), answer.epoch),))


def _left_out(track: Track, asked: Asked, now: float, rules: Rules, *, throttled: bool) -> Step:
    """The answer says nothing about the partition, good or bad."""
    track = replace(track, ready_at=now + rules.backoff_s)
    return Step(track) if throttled else _stall(track, asked, now, rules, reach=None)


def _stall(
    track: Track, asked: Asked, now: float, rules: Rules, *, reach: int | None, effects: tuple[Effect, ...] = ()
) -> Step:
    """There should be records, but none came. A follower gets replaced by the leader before a stall is reported."""
    since = asked.at if track.stalled_since is None else track.stalled_since
    track = replace(track, stalled_since=since)
    if rules.patience_s is None or now - since < rules.patience_s:
        return Step(track, effects)
    if asked.follower is not None:
        return Step(_leader_only(track, now, rules), effects)
    return Step(track, (Stalled(since=since, reach=reach),))


# -- errors


def _refused(track: Track, asked: Asked, answer: Refused, now: float, rules: Rules) -> Step:
    code = answer.code
    moved: tuple[Effect, ...] = (LookUp(),) if code in MOVED else ()
    if asked.follower is not None:  # it may lag, or not be a replica any more: only the leader knows
        return Step(_leader_only(track, now, rules), moved)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Step(
            replace(_without_error(track, quiet=track.quiet), told=track.told, stalled_since=None), (OutOfRange(),)
        )
    if code in UNKNOWN:
        return _unknown(track, asked, answer, now, rules)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _report_once(track, answer, now, rules)
    doubtful = code is ErrorCode.CORRUPT_MESSAGE and rules.patience_s is None
    if not answer.passes or doubtful:  # it may stay: reported with every try, as librdkafka does
        track = replace(track, told=answer.error.code, ready_at=now + rules.error_backoff_s)
        return Step(track, (*moved, Report(error=answer.error, number=int(code))))
    return _failing(track, asked, answer, now, rules, moved)


def _unknown(track: Track, asked: Asked, answer: Refused, now: float, rules: Rules) -> Step:
    since = asked.at if track.unknown_since is None else track.unknown_since
    track = replace(track, unknown_since=since, ready_at=now + rules.backoff_s)
    if now - since < rules.unknown_s:
        return Step(track, (LookUp(),))
    told = _report_once(track, answer, now, rules)
    return Step(told.track, (LookUp(), *told.effects))


def _unanswered(track: Track, asked: Asked, answer: Unanswered, now: float, rules: Rules) -> Step:
    """Another broker may lead by now."""
    if asked.follower is not None:
        return Step(_leader_only(track, now, rules), (LookUp(),))
    if answer.passes:
        return _failing(track, asked, answer, now, rules, (LookUp(),))
    told = _report_once(track, answer, now, rules)
    return Step(told.track, (LookUp(), *told.effects))


def _failing(
    track: Track, asked: Asked, answer: Refused | Unanswered, now: float, rules: Rules, effects: tuple[Effect, ...]
) -> Step:
    """The error usually passes by itself: report it once the patience is over."""
    since = asked.at if track.failing_since is None else track.failing_since
    track = replace(track, failing_since=since, ready_at=now + rules.backoff_s)
    if rules.patience_s is None or now - since < rules.patience_s:
        return Step(track, effects)
    told = _report_once(track, answer, now, rules)
    return Step(told.track, (*effects, *told.effects))


def _report_once(track: Track, answer: Refused | Unanswered | Damaged, now: float, rules: Rules) -> Step:
    error = answer.error
    waits = replace(track, ready_at=now + rules.told_backoff_s, told=error.code)
    if track.told == error.code:
        return Step(waits)
    number = int(answer.code) if isinstance(answer, Refused) else 0
    return Step(waits, (Report(error=error, number=number),))


def _leader_only(track: Track, now: float, rules: Rules) -> Track:
    return replace(track, replica=Replica(None, now + rules.replica_age_s), ready_at=0.0, stalled_since=None)


# -- throttling


def _throttled(stepped: Step, now: float, throttle_s: float) -> Step:
    """Ask nothing until the throttling ends, and extend every running deadline by as much."""
    waits_s = min(throttle_s, LONGEST_THROTTLE_S)
    track = stepped.track
    return replace(
        stepped,
        track=replace(
            track,
            ready_at=max(track.ready_at, now + waits_s),
            unknown_since=_later(track.unknown_since, waits_s),
            failing_since=_later(track.failing_since, waits_s),
            stalled_since=_later(track.stalled_since, waits_s),
        ),
    )


def _later(since: float | None, seconds: float) -> float | None:
    return None if since is None else since + seconds
