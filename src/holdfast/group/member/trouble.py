"""What a member does when something was refused or not answered: count, wait, tell.

A refusal that can pass is tried again after a back-off that doubles up to a bound. The application is told at once of
what may need a person's help, and of anything else once it has lasted for so long that the membership is in danger.
"""

from __future__ import annotations

from holdfast.group.member.effects import ForgetCoordinator, Tell
from holdfast.group.member.state import MemberState
from holdfast.group.member.turn import Turn
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError

TELL_AGAIN_MS = 3_000.0
"""How often the same trouble is told again: as often as librdkafka's clients tell it."""

REFUSED = frozenset({Verdict.MOVED, Verdict.LATER, Verdict.TELL})


def back_off_ms(state: MemberState) -> float:
    """How long to wait before the next try, after so many in a row. Spread, so that members don't come back as one."""
    config = state.config
    doubled = config.retry_backoff_ms * 2.0 ** min(max(state.tries - 1, 0), 20)
    return min(doubled, max(config.retry_backoff_ms, config.retry_backoff_max_ms)) * config.retry_spread


def judge(turn: Turn, ask: Ask, code: ErrorCode) -> Verdict:
    """Take note of an answer, and tell the application of it if need be. What follows from it is the caller's."""
    found = verdict(ask, code)
    if found in REFUSED:
        if found is Verdict.MOVED:
            turn.do(ForgetCoordinator())
        troubled(turn, refusal(ask, code), loud=found is Verdict.TELL)
    elif found is Verdict.FATAL:
        turn.fail(refusal(ask, code))
    return found


def troubled(turn: Turn, error: HoldfastError, *, loud: bool) -> None:
    """One more thing went wrong in a row."""
    state = turn.state
    since = turn.now if state.troubled_at is None else state.troubled_at
    turn.set(unheard=True, tries=state.tries + 1, troubled_at=since)
    lasts = turn.now - since >= state.config.session_timeout_ms / 2
    again = error.code != state.told or turn.now - state.told_at >= TELL_AGAIN_MS
    if (loud or lasts) and again:
        turn.set(told=error.code, told_at=turn.now)
        tell(turn, error)


def settled(turn: Turn) -> None:
    """All is well again: the next trouble is the first."""
    turn.set(tries=0, troubled_at=None, told="")


def tell(turn: Turn, error: HoldfastError) -> None:
    turn.trace("told", cause=str(error))
    turn.do(Tell(error))
