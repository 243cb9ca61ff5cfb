"""Topic settings: listed once, parsed from that list, and refused beyond it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.broker.storage.config import TOPIC_SETTINGS, LogConfig, Setting, parse
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode


def test_the_defaults_that_are_shown_are_the_defaults_that_apply() -> None:
    assert parse({setting.name: setting.default for setting in TOPIC_SETTINGS}) == parse({}) == LogConfig()


def test_every_setting_is_described_and_they_are_sorted() -> None:
    names = [setting.name for setting in TOPIC_SETTINGS]
    assert names == sorted(set(names))
    assert all(setting.doc.endswith(".") for setting in TOPIC_SETTINGS)


@pytest.mark.parametrize("setting", TOPIC_SETTINGS, ids=lambda setting: setting.name)
def test_values_outside_the_bounds_are_refused_and_those_at_the_bounds_are_not(setting: Setting) -> None:
    good: Sequence[str | int]
    bad: Sequence[str | int]
    if setting.choices:
        good, bad = setting.choices, ["", "none", setting.choices[0] + " "]
    else:
        good, bad = [setting.lowest, setting.highest], [setting.lowest - 1, setting.highest + 1, "", "1.5", "many"]
    for value in good:
        parse({setting.name: str(value)})
    for value in bad:
        with pytest.raises(StorageError) as caught:
            parse({setting.name: str(value)})
        assert caught.value.error == ErrorCode.INVALID_CONFIG
        assert setting.name in caught.value.what


def test_an_unknown_setting_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(StorageError, match=r"no topic setting 'flush.ms'.*retention\.ms"):
        parse({"flush.ms": "1"})
