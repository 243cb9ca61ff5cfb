"""What is known of commits, when one ends on the control plane's thread while the polling thread goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.client.member.entries import Entries
from holdfast.client.member.known_commits import KnownCommits
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition

FIRST = TopicPartition("orders", 0)
DONE = {FIRST: OffsetEntry(5)}


class Interrupted(dict[Any, Any]):
    """Something happens on another thread just after each look into it."""

    def __init__(self, given: dict[Any, Any], meanwhile: Callable[[], None]) -> None:
        super().__init__(given)
        self._meanwhile = meanwhile

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self._meanwhile()
        return found

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        self._meanwhile()
        return found


class Removed(TopicPartition):
    """Once it is watched, something happens on another thread after it was looked up, and before it is removed."""

    meanwhile: Callable[[], None] | None = None
    looked_up = 0

    def __hash__(self) -> int:
        if self.meanwhile is not None:
            self.looked_up += 1
            if self.looked_up == 2:
                self.meanwhile()
        return super().__hash__()


def given_up_meanwhile(known: KnownCommits) -> tuple[Callable[[], None], list[threading.Thread]]:
    """Another thread forgets the partition, once. It has time enough, if it does not wait for its turn."""
    others: list[threading.Thread] = []

    def forget() -> None:
        if not others:
            others.append(threading.Thread(target=known.forget, args=([FIRST],)))
            others[0].start()
            others[0].join(0.2)

    return forget, others


def test_a_commit_may_end_while_its_partition_is_given_up() -> None:
    """Symptom: once in a long while a commit that the coordinator had taken raised KeyError. Cause: the polling thread
    gave the partition up between the look whether the commit was still under way and its removal. Rule: both are done
    under one lock."""
    known = KnownCommits()
    known.begin(DONE)
    forget, others = given_up_meanwhile(known)
    first = Removed(*FIRST)
    sent: Entries = {first: DONE[FIRST]}
    first.meanwhile = forget
    known.end(sent, sent, assigned=())
    others[0].join()
    assert not known.unanswered() and not known.under_way(FIRST)


def test_a_commit_of_a_partition_that_is_given_up_is_not_remembered() -> None:
    """A partition that comes back may have been set back meanwhile: what was accepted before says nothing then."""
    known = KnownCommits()
    known.begin(DONE)
    forget, others = given_up_meanwhile(known)
    known.end(DONE, DONE, assigned=Interrupted(DONE, forget))
    others[0].join()
    assert FIRST not in known.latest() and known.is_new(FIRST, OffsetEntry(1))
