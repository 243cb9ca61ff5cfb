"""What a member does when a request was refused or not answered: count it, back off, tell the application.

A transient refusal is retried after a back-off that doubles up to a limit. The application is told at once of errors
that may need a person's help, and of all others when they have lasted for half a session timeout.
"""

from __future__ import annotations

from holdfast.group.member.effects import ForgetCoordinator, Tell
from holdfast.group.member.parts import NO_TROUBLE
from holdfast.group.member.state import MemberState
from holdfast.group.member.turn import Turn
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError

TELL_AGAIN_MS = 3_000.0
"""How often the same error is reported again: as often as librdkafka reports it."""

REFUSED = frozenset({Verdict.MOVED, Verdict.LATER, Verdict.TELL})


def back_off_ms(state: MemberState) -> float:
    """How long to wait before the next try; it grows with the failures in a row. `retry_spread` differs from member to
    member, so that they don't all come back at once."""
    config = state.config
    doubled = config.retry_backoff_ms * 2.0 ** min(max(state.trouble.tries - 1, 0), 20)
    return min(doubled, max(config.retry_backoff_ms, config.retry_backoff_max_ms)) * config.retry_spread


def judge(turn: Turn, ask: Ask, code: ErrorCode) -> Verdict:
    """Note an answer, and report it to the application if need be. Acting on the verdict is up to the caller."""
    found = verdict(ask, code)
    if found in REFUSED:
        if found is Verdict.MOVED:
            turn.do(ForgetCoordinator())
        troubled(turn, refusal(ask, code), loud=found is Verdict.TELL)
    elif found is Verdict.FATAL:
        turn.fail(refusal(ask, code))
    return found


def troubled(turn: Turn, error: HoldfastError, *, loud: bool) -> None:
    """Count one more failure in a row. Report it if it is `loud`, or if the failures have lasted."""
    state = turn.state
    since = turn.now if state.trouble.since is None else state.trouble.since
    turn.set_requests(unheard=True)
    turn.set_trouble(tries=state.trouble.tries + 1, since=since)
    lasts = turn.now - since >= state.config.session_timeout_ms / 2
    again = error.code != state.trouble.told or turn.now - state.trouble.told_at >= TELL_AGAIN_MS
    if (loud or lasts) and again:
        turn.set_trouble(told=error.code, told_at=turn.now)
        tell(turn, error)


def clear_trouble(turn: Turn) -> None:
    """A request succeeded: the next failure is the first in a row again."""
    turn.replace(trouble=NO_TROUBLE)


def tell(turn: Turn, error: HoldfastError) -> None:
    turn.trace("told", cause=str(error))
    turn.do(Tell(error))
