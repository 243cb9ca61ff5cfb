"""What goes wrong at the broker, as happenings: error codes of every group and offset API, cut connections, logins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dropin_happenings import TOLD_S, Happening, Step, prepare
from dropin_run import Run

from holdfast.broker.exchange import Exchange
from holdfast.broker.faults import Condition, Fault
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api

E = ErrorCode
UNHEARD_OF = 999
"""A code that no client has a name for, as a broker of tomorrow may send."""

_COMING = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
_STALE = (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS)
"""Not FENCED_INSTANCE_ID: only a static member is fenced, and then confluent's close() never returns."""
_ODD = (E.UNKNOWN_SERVER_ERROR, E.REQUEST_TIMED_OUT, E.INVALID_REQUEST, UNHEARD_OF)


@dataclass(frozen=True, slots=True)
class Struck:
    """Which codes of an API are tried, and when."""

    api: Api
    codes: tuple[ErrorCode | int, ...]
    when: str
    """start, during or end: when the consumer sends such requests."""


STRUCK = (
    Struck(
        Api.FIND_COORDINATOR,
        (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.GROUP_AUTHORIZATION_FAILED, *_ODD),
        "start",
    ),
    Struck(
        Api.JOIN_GROUP,
        (
            *_COMING,
            *_STALE[1:],
            E.INCONSISTENT_GROUP_PROTOCOL,
            E.INVALID_GROUP_ID,
            E.INVALID_SESSION_TIMEOUT,
            E.GROUP_AUTHORIZATION_FAILED,
            E.GROUP_MAX_SIZE_REACHED,
            *_ODD,
        ),
        "start",
    ),
    Struck(Api.SYNC_GROUP, (*_COMING, *_STALE, E.GROUP_AUTHORIZATION_FAILED, *_ODD), "start"),
    Struck(Api.HEARTBEAT, (*_COMING, *_STALE, E.GROUP_AUTHORIZATION_FAILED, *_ODD), "during"),
    Struck(
        Api.OFFSET_COMMIT,
        (
            *_COMING,
            *_STALE,
            E.GROUP_AUTHORIZATION_FAILED,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.OFFSET_METADATA_TOO_LARGE,
            E.INVALID_COMMIT_OFFSET_SIZE,
            *_ODD,
        ),
        "during",
    ),
    Struck(
        Api.OFFSET_FETCH,
        (
            *_COMING,
            *_STALE[:2],
            E.GROUP_AUTHORIZATION_FAILED,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.UNSTABLE_OFFSET_COMMIT,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            *_ODD,
        ),
        "start",
    ),
    Struck(Api.LEAVE_GROUP, (*_COMING, E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED, *_ODD), "end"),
    Struck(
        Api.METADATA,
        (
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.LEADER_NOT_AVAILABLE,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.INVALID_TOPIC_EXCEPTION,
            *_ODD,
        ),
        "start",
    ),
    Struck(
        Api.LIST_OFFSETS,
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.TOPIC_AUTHORIZATION_FAILED, *_ODD),
        "start",
    ),
)

FOR_GOOD = (
    (Api.FIND_COORDINATOR, E.GROUP_AUTHORIZATION_FAILED, "start"),
    (Api.JOIN_GROUP, E.GROUP_AUTHORIZATION_FAILED, "start"),
    (Api.JOIN_GROUP, E.GROUP_MAX_SIZE_REACHED, "start"),
    (Api.JOIN_GROUP, E.INCONSISTENT_GROUP_PROTOCOL, "start"),
    (Api.OFFSET_FETCH, E.GROUP_AUTHORIZATION_FAILED, "start"),
    (Api.METADATA, E.TOPIC_AUTHORIZATION_FAILED, "start"),
    (Api.OFFSET_COMMIT, E.GROUP_AUTHORIZATION_FAILED, "during"),
    (Api.OFFSET_COMMIT, E.COORDINATOR_LOAD_IN_PROGRESS, "during"),
)
"""What may be refused until somebody does something about it: the program waits to be told and closes."""

Strike = Callable[[Run], Fault]


def _happening(name: str, strike: Strike, when: str, *, group: bool, for_good: bool = False) -> Happening:
    def at_start(run: Run) -> None:
        prepare(run)
        strike(run)

    def struck(run: Run) -> None:
        fault = strike(run)
        if fault.api is Api.HEARTBEAT:
            run.until(lambda: fault.left == 0, "the fault to strike")
        run.more()

    told: Step = _told if for_good and when == "start" else _read_soon if name.startswith("offset_fetch") else Run.read
    match when:
        case "start":
            chance = TWO_LOOKS if name.startswith("find_coordinator") and not for_good else frozenset()
            return Happening(name, prepare=at_start, start=told, kafka=False, group=group, chance=chance)
        case "during":
            return Happening(name, during=struck, kafka=False, group=group)
        case _:
            return Happening(name, closing=lambda run: _ignore(strike(run)), kafka=False, group=group)


def _told(run: Run) -> None:
    told = ("errors", "raised", "error_cb")
    run.until(lambda: any(run.recorder.has(aspect) for aspect in told), "to be told", TOLD_S)
    run.idle()


def _read_soon(run: Run) -> None:
    """confluent's class tells of a refused look at the offsets and then never starts: don't wait for it for long."""
    run.until(run.all_done, "every record", 3.0)
    run.keeping.batch(run)


def _ignore(fault: Fault) -> None:
    """It strikes when it does."""


TWO_LOOKS = frozenset({"errors"})
"""librdkafka looks for its coordinator from two places, and tells of an error only when the first of them meets it."""

MEMBERS_ONLY = frozenset({Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP})


def _errors() -> Iterator[Happening]:
    for struck in STRUCK:
        for code in struck.codes:
            for times in (1, 3):
                yield _happening(
                    f"{_api(struck.api)}-{_code(code)}-x{times}",
                    _refusing(struck.api, code, times),
                    struck.when,
                    group=struck.api in MEMBERS_ONLY,
                )
    for api, code, when in FOR_GOOD:
        yield _happening(
            f"{_api(api)}-{_code(code)}-ever",
            _refusing(api, code, None),
            when,
            group=api in MEMBERS_ONLY,
            for_good=True,
        )


def _refusing(api: Api, code: ErrorCode | int, times: int | None) -> Strike:
    return lambda run: _refused(run, api, code, times)


def _refused(run: Run, api: Api, code: ErrorCode | int, times: int | None) -> Fault:
    """A coordinator that says UNKNOWN_MEMBER_ID has forgotten the member; otherwise it would wait for its return."""
    broker = run.world.broker
    if code is E.UNKNOWN_MEMBER_ID and api in EXPELLING:
        return broker.faults.call(api, lambda exchange: _expel(broker, exchange), times=times)
    return broker.faults.error(api, code, times=times, when=_of_this_group(run))


EXPELLING = frozenset({Api.SYNC_GROUP, Api.HEARTBEAT, Api.OFFSET_COMMIT})


def _expel(broker: Broker, exchange: Exchange) -> None:
    broker.expel(exchange.body.group_id, exchange.body.member_id)


def _cuts() -> Iterator[Happening]:
    for struck in STRUCK:
        for times in (1, 3):
            yield _happening(
                f"{_api(struck.api)}-cut-before-x{times}",
                _cutting_before(struck.api, times),
                struck.when,
                group=struck.api in MEMBERS_ONLY,
            )
            yield _happening(
                f"{_api(struck.api)}-cut-after-x{times}",
                _cutting_after(struck.api, times),
                struck.when,
                group=struck.api in MEMBERS_ONLY,
            )


def _cutting_before(api: Api, times: int) -> Strike:
    return lambda run: run.world.broker.faults.disconnect(api, times=times, when=_of_this_group(run))


def _cutting_after(api: Api, times: int) -> Strike:
    return lambda run: run.world.broker.faults.cut_answer(api, times=times, when=_of_this_group(run))


def _one_partition() -> Iterator[Happening]:
    """An error for the first partition alone: the others are to be kept."""
    for code in (E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED, E.OFFSET_METADATA_TOO_LARGE, UNHEARD_OF):
        yield _happening(
            f"offset_commit-one-{_code(code)}-x1",
            _refusing_the_first(code),
            "during",
            group=False,
        )


def _refusing_the_first(code: int) -> Strike:
    return lambda run: run.world.broker.faults.change(
        Api.OFFSET_COMMIT, lambda body: _first_refused(body, code), times=1, when=_has_the_first
    )


def _has_the_first(exchange: Exchange) -> bool:
    """An automatic commit names what is new: the first partition may not be among it."""
    return any(each.partition_index == 0 for topic in exchange.body.topics for each in topic.partitions)


def _first_refused(body: dict[str, Any], code: int) -> dict[str, Any]:
    topics = [dict(topic) for topic in body["topics"]]
    topics[0]["partitions"] = [
        {**each, "error_code": code} if each["partition_index"] == 0 else each for each in topics[0]["partitions"]
    ]
    return {**body, "topics": topics}


def _of_this_group(run: Run) -> Condition:
    """Not the requests of the harness's own clients, whose metadata has nothing to do with it."""

    def concerns(exchange: Exchange) -> bool:
        if exchange.api not in (Api.METADATA, Api.LIST_OFFSETS):
            return True
        return exchange.frame.client_id == CLIENT

    return concerns


CLIENT = "subject"
"""The client.id of the consumers under test."""


LIBRDKAFKA_LOGS_IN_WITH = 1
"""librdkafka's version of SaslAuthenticate. Ours is newer."""


def _refused_login(times: int | None) -> Strike:
    """Of a few refusals, which connection meets one would be chance: the harness's, librdkafka's or the one we have
    beside it, whose refusals poll() tells. So it is librdkafka's, which both classes have; all but our AsyncConsumer,
    each of whose connections tells error_cb."""

    def strike(run: Run) -> Fault:
        def concerns(exchange: Exchange) -> bool:
            theirs = exchange.version == LIBRDKAFKA_LOGS_IN_WITH or run.kind == "holdfast-aio"
            return times is None or (exchange.frame.client_id == CLIENT and theirs)

        return run.world.broker.faults.error(
            Api.SASL_AUTHENTICATE, E.SASL_AUTHENTICATION_FAILED, times=times, when=concerns
        )

    return strike


def _logins() -> Iterator[Happening]:
    def once(run: Run) -> None:
        prepare(run)
        _refused_login(1)(run)

    def ever(run: Run) -> None:
        prepare(run)
        _refused_login(None)(run)

    login = {"login": True}
    yield Happening("login-refused-x1", prepare=once, world=login, kafka=False, group=False)
    yield Happening("login-refused-ever", prepare=ever, start=_told, world=login, kafka=False, group=False)


def _api(api: Api) -> str:
    return api.name.lower()


def _code(code: ErrorCode | int) -> str:
    return code.name if isinstance(code, ErrorCode) else str(code)


ERRORS = (*_errors(), *_one_partition())
CUTS = tuple(_cuts())
LOGINS = tuple(_logins())
