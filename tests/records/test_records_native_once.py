"""The decoder is linked once in a process, however many consumers start at the same moment."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from holdfast.records import native


def test_threads_that_start_together_link_the_decoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a hundred consumers started together on a new machine took a minute of two cores. Cause: what is kept
    after the first call was not kept yet when the others called, and each thread of the pool compiled for itself."""
    linked: list[int] = []
    everybody = threading.Barrier(8)

    def link(code: bytes) -> object:
        linked.append(len(code))
        time.sleep(0.05)  # the others are there by now, and must wait
        return lambda *_: 0

    native.decode()  # whatever compiles has compiled: this is about who links
    monkeypatch.setattr(native, "link", link)
    monkeypatch.setattr(native, "linked", cache(native.made))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: (everybody.wait(), native.decode())[1], range(8)))
    assert len(linked) == 1
    assert len({id(entry) for entry in found}) == 1
