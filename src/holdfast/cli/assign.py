"""`holdfast assign`: who gets which partition, from a description of a group.

With --jsonl it reads one case per line and writes one answer per line, in order; a malformed case gets an error as its
answer. Without --jsonl one case is read and shown as tables, or as JSON with `-o json`.

    {"strategy": "cooperative-sticky",
     "topics": {"orders": 6, "pay": {"partitions": 2, "racks": [["a","b"],["b"]]}},
     "members": {"c0": {"topics": ["orders"], "owned": {"orders": [0,1]}, "generation": 7,
                        "instance_id": null, "rack": "a"}}}
    ->
    {"assignment": {"c0": {"orders": [0,1,2,3,4,5]}},   of this round, in which transfers are withheld
     "target":     {"c0": {"orders": [0,1,2,3,4,5]}},   when the group has settled
     "revoked": [{"topic", "partition", "from"}],        claimed, and not assigned again in this round
     "moved":   [{"topic", "partition", "from", "to"}],  from one member to another, when settled
     "rounds": 1}

In a member everything but `topics` may be left out or null; unknown fields are ignored. Only the case's topics exist:
claims on others are dropped. A partition that two members claim in one generation belongs to neither: it is revoked
from both, and not in "moved".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from holdfast.assign import RoundPlan
    from holdfast.model import JoinedMember, Subscription, TopicView

MAX_PARTITIONS = 10_000_000
"""The most in one case. A case is planned in memory, and no cluster has more."""

MAX_INT32 = 2**31 - 1


def assign(
    case: Path | None = typer.Argument(
        None, exists=True, dir_okay=False, help="A JSON document with one case; standard input if left out."
    ),
    jsonl: bool = typer.Option(False, "--jsonl", help="Read one case a line and write one answer a line."),
    output: str = typer.Option("table", "-o", "--output", help="table or json."),
) -> None:
    """Plan who gets which partition, from a description of a group."""
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r} is neither table nor json.", param_hint="--output")
    if jsonl:
        _answer_lines(case)
        return
    answer = _answer(sys.stdin.buffer.read() if case is None else case.read_bytes())
    if output == "json" or "error" in answer:
        print(json.dumps(answer))
    else:
        _show(answer)
    if "error" in answer:
        raise typer.Exit(1)


def _answer_lines(source: Path | None) -> None:
    """One answer for every line that is not blank. A malformed case is not fatal: the exit code stays 0."""
    lines = sys.stdin.buffer if source is None else source.open("rb")
    try:
        for line in lines:
            if line.strip():
                sys.stdout.write(json.dumps(_answer(line)) + "\n")
                sys.stdout.flush()
    finally:
        if source is not None:
            lines.close()


def _answer(text: bytes) -> dict[str, Any]:
    try:
        return _planned(json.loads(text))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        return _error("MALFORMED_JSON", f"The case is not JSON: {error}.")
    except RecursionError:
        return _error("MALFORMED_JSON", "The case is nested too deeply.")
    except HoldfastError as error:
        return _error(error.code, f"{error.what} {error.do}")


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _planned(case: Any) -> dict[str, Any]:
    from holdfast.assign import plan_round
    from holdfast.model import ClusterView

    fields = _object(case, "The case")
    strategy = fields.get("strategy")
    if not isinstance(strategy, str):
        raise _malformed("The strategy is not a name", "Use cooperative-sticky, sticky, range or roundrobin.")
    views = {topic: _topic(topic, given) for topic, given in _object(fields.get("topics"), "topics").items()}
    if sum(view.partitions for view in views.values()) > MAX_PARTITIONS:
        raise _malformed(f"The case has more than {MAX_PARTITIONS} partitions", "Split it.")
    members = [_member(strategy, name, given) for name, given in _object(fields.get("members"), "members").items()]
    plan = plan_round(strategy, ClusterView(views), members, return_unknown=False)
    return _written(plan)


def _written(plan: RoundPlan) -> dict[str, Any]:
    from holdfast.model import by_topic

    return {
        "assignment": {member: by_topic(given) for member, given in plan.assignment.items()},
        "target": {member: by_topic(given) for member, given in plan.target.items()},
        "revoked": [{"topic": part.topic, "partition": part.partition, "from": who} for part, who in plan.revoked],
        "moved": [
            {"topic": part.topic, "partition": part.partition, "from": way.source, "to": way.target}
            for part, way in plan.moved.items()
        ],
        "rounds": plan.rounds,
    }


def _topic(name: str, given: Any) -> TopicView:
    from holdfast.model import TopicView

    if not isinstance(given, dict):
        return TopicView(_number(given, f"The number of partitions of {name}"))
    count = _number(given.get("partitions"), f"The number of partitions of {name}")
    racks = given.get("racks") or []
    if not isinstance(racks, list) or len(racks) > count:
        raise _malformed(
            f"The racks of {name} are not a list of at most {count}", "Give one list of racks a partition."
        )
    return TopicView(count, tuple(frozenset(_names(spot or [], f"The racks of {name}")) for spot in racks))


def _member(strategy: str, name: str, given: Any) -> JoinedMember:
    from holdfast.assign import sticky_user_data
    from holdfast.model import JoinedMember, Subscription, TopicPartition
    from holdfast.model.consumer_protocol import encode_subscription

    fields = _object(given, f"The member {name}")
    owned = {
        TopicPartition(topic, _integer(number, f"A partition that {name} owns"))
        for topic, numbers in _object(fields.get("owned") or {}, f"What {name} owns").items()
        for number in _list(numbers, f"What {name} owns of {topic}")
    }
    generation = fields.get("generation")
    generation = -1 if generation is None else _integer(generation, f"The generation of {name}")
    subscription = Subscription(
        topics=tuple(_names(fields.get("topics"), f"The topics of {name}")),
        owned=frozenset(owned),
        generation=generation,
        rack=_text(fields.get("rack"), f"The rack of {name}"),
    )
    if strategy == "sticky":
        subscription = _eager_sticky(subscription, sticky_user_data(frozenset(owned), generation))
    instance = _text(fields.get("instance_id"), f"The instance_id of {name}")
    return JoinedMember(member_id=name, instance_id=instance, metadata=encode_subscription(subscription))


def _eager_sticky(subscription: Subscription, user_data: bytes) -> Subscription:
    """Members of eager `sticky` send their last partitions in their user data, and own nothing when they join."""
    from holdfast.model import Subscription

    return Subscription(topics=subscription.topics, user_data=user_data, rack=subscription.rack)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _malformed(f"{what} is not an object", "See `holdfast assign --help`.")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise _malformed(f"{what} is not a list", "Give a JSON array.")
    return value


def _names(value: Any, what: str) -> list[str]:
    names = _list(value, what)
    if not all(isinstance(name, str) for name in names):
        raise _malformed(f"{what} are not all names", "Give a JSON array of strings.")
    return names


def _text(value: Any, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _malformed(f"{what} is not a name", "Give a string or null.")
    return value


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -MAX_INT32 - 1 <= value <= MAX_INT32:
        raise _malformed(f"{what} is not a whole number of 32 bits", "Give a JSON number without a fraction.")
    return value


def _number(value: Any, what: str) -> int:
    number = _integer(value, what)
    if number < 0:
        raise _malformed(f"{what} is negative", "Give 0 or more.")
    return number


def _malformed(what: str, do: str) -> HoldfastError:
    return HoldfastError("MALFORMED_CASE", f"{what}.", do)


def _show(answer: dict[str, Any]) -> None:
    """Tables for people: one line per member, then the moves."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("MEMBER", "PARTITIONS", "THIS ROUND", "SETTLES WITH"):
        table.add_column(title, justify="right" if title == "PARTITIONS" else "left", overflow="fold")
    for member, target in answer["target"].items():
        total = sum(len(numbers) for numbers in target.values())
        table.add_row(member, str(total), _brief(answer["assignment"][member]), _brief(target))
    console.print(table)
    if answer["moved"]:
        moves = Table(box=box.SIMPLE_HEAD)
        for title in ("TOPIC", "PARTITION", "FROM", "TO"):
            moves.add_column(title, overflow="fold")
        for move in answer["moved"]:
            moves.add_row(move["topic"], str(move["partition"]), move["from"], move["to"])
        console.print(moves)
    console.print(
        f"{len(answer['moved'])} moved, {len(answer['revoked'])} revoked, settled after {answer['rounds']} round(s)"
    )


def _brief(grouped: dict[str, list[int]]) -> str:
    """orders 0-5,7  pay 1"""
    parts = []
    for topic, numbers in grouped.items():
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        parts.append(f"{topic} " + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs))
    return "  ".join(parts)
