"""Rules: who may do what to which topic or group. There is no rule that denies: what no rule allows is denied.

Written as text, in the users file and on the command line alike:

    read,write:topic:orders        two operations on one topic
    read:group:billing-*           every group whose name begins so
    create:cluster                 the cluster has no name
    all                            everything: an administrator

Without users nothing is checked: the broker is open, like a Kafka without an authorizer. Operations and what they imply
are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from holdfast.model import HoldfastError


class Operation(IntEnum):
    """Kafka's operations, by their number in its protocol."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class Resource(IntEnum):
    """What a rule is about, by its number in Kafka's protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


IMPLIES: Mapping[Operation, frozenset[Operation]] = {
    Operation.READ: frozenset({Operation.DESCRIBE}),
    Operation.WRITE: frozenset({Operation.DESCRIBE}),
    Operation.DELETE: frozenset({Operation.DESCRIBE}),
    Operation.ALTER: frozenset({Operation.DESCRIBE}),
    Operation.ALTER_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS}),
}

MEANINGFUL: Mapping[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: tuple(operation for operation in Operation if operation is not Operation.ALL),
    Resource.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}
"""Which operations each resource knows: what an "allowed operations" field may list."""

MAX_NAME_SHOWN = 249
"""Kafka's longest name of a topic; log lines are not filled with longer ones."""

_OPERATIONS = {operation.name.lower().replace("_", "-"): operation for operation in Operation}
_RESOURCES = {resource.name.lower(): resource for resource in Resource}


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission. `resource` None is everything."""

    operation: Operation
    resource: Resource | None
    name: str = ""
    prefix: bool = False

    def allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        if self.resource is not None and self.resource is not resource:
            return False
        implied = IMPLIES.get(self.operation, frozenset())
        if self.operation is not Operation.ALL and self.operation is not operation and operation not in implied:
            return False
        if self.resource is None or resource is Resource.CLUSTER:
            return True
        return name.startswith(self.name) if self.prefix else name == self.name


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules that one line of text stands for."""
    if text == "all":
        return (Rule(Operation.ALL, None),)
    operations, _, rest = text.partition(":")
    kind, _, name = rest.partition(":")
    resource = _RESOURCES.get(kind)
    if resource is None or (resource is Resource.CLUSTER) != (name == ""):
        raise _invalid(text, "Write OPERATIONS:topic:NAME, OPERATIONS:group:NAME, OPERATIONS:cluster, or all.")
    prefix = name.endswith("*")
    return tuple(
        Rule(_operation(word, text), resource, name.removesuffix("*"), prefix) for word in operations.split(",")
    )


def rule_text(operation: Operation, resource: Resource, name: str) -> str:
    """The rule that would allow this, as text. The name comes from a client, so it is cut and quoted if need be."""
    words = [operation.name.lower().replace("_", "-"), resource.name.lower()]
    if resource is not Resource.CLUSTER:
        words.append(name if name.isprintable() and len(name) <= MAX_NAME_SHOWN else repr(name[:MAX_NAME_SHOWN]))
    return ":".join(words)


def _operation(word: str, text: str) -> Operation:
    operation = _OPERATIONS.get(word)
    if operation is None:
        raise _invalid(text, f"The operations are {', '.join(sorted(_OPERATIONS))}.")
    return operation


def _invalid(text: str, do: str) -> HoldfastError:
    return HoldfastError("RULE_INVALID", f"{text!r} is not a rule.", do)


class Rules:
    """The rules of all users. Open while there are no users at all."""

    def __init__(self, by_user: Mapping[str, Iterable[str]] | None = None) -> None:
        self._open = not by_user
        self._by_user = {
            user: tuple(rule for text in texts for rule in parse_rules(text)) for user, texts in (by_user or {}).items()
        }

    @property
    def open(self) -> bool:
        return self._open

    def allow(self, user: str | None, operation: Operation, resource: Resource, name: str) -> bool:
        if self._open:
            return True
        rules = self._by_user.get(user or "", ())
        return any(rule.allows(operation, resource, name) for rule in rules)

    def bits(self, user: str | None, resource: Resource, name: str) -> int:
        """The allowed operations as Kafka's bit field."""
        return sum(1 << operation for operation in MEANINGFUL[resource] if self.allow(user, operation, resource, name))
