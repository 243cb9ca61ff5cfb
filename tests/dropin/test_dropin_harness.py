"""The harness itself: what it calls a difference, and how often it asks whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from dropin_compare import MODEL_TRIES, VARIES, Comparison
from dropin_outcome import Outcome

ONE = Outcome({"errors": ("start: one",)})
OTHER = Outcome({"errors": ("start: other",)})


class Players:
    """Ours always ends the same way, the model as it is told."""

    def __init__(self, *model: Outcome) -> None:
        self.asked: Counter[str] = Counter()
        self._model: Iterator[Outcome] = iter(model)

    def __call__(self, kind: str) -> Outcome:
        self.asked[kind] += 1
        return ONE if kind == "holdfast" else next(self._model)


def test_the_same_outcome_is_asked_for_once() -> None:
    players = Players(ONE)
    assert not Comparison("auto/nothing/close", players).wrong()
    assert players.asked == {"confluent": 1, "holdfast": 1}


def test_an_unlisted_difference_is_told_and_ours_has_one_try() -> None:
    players = Players(*[OTHER] * MODEL_TRIES)
    wrong = Comparison("auto/nothing/close", players).wrong()
    assert "confluent: start: other" in wrong and "holdfast:  start: one" in wrong
    assert players.asked == {"confluent": MODEL_TRIES, "holdfast": 1}


def test_a_model_with_two_outcomes_is_told_and_fails_nobody() -> None:
    """librdkafka fell silent in two whole runs and never when it was asked again."""
    with pytest.warns(UserWarning, match=VARIES):
        assert not Comparison("auto/nothing/close", Players(OTHER, ONE)).wrong()


def test_what_is_chance_is_not_compared() -> None:
    assert not Comparison("auto/nothing/close", Players(OTHER), chance=frozenset({"errors"})).wrong()
