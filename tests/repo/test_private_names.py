"""Tests speak to what is public. Where one reaches into a private name it says why, here, and the list only shrinks."""

from __future__ import annotations

import ast

import pytest
from private_names import found, private_names

ALLOWED: dict[tuple[str, str], tuple[int, str]] = {
    ("inside.py", "_holdfast"): (1, "the door into a consumer, and the only one"),
    ("broker/raw_client.py", "_running"): (1, "the same for `testing.Broker`, whose users have no business inside"),
    ("client/test_client_interrupted.py", "_ready"): (1, "a signal in the instant in which poll takes a record"),
    ("client/test_client_aio_dropin.py", "_max_workers"): (1, "the standard library tells a pool's size nowhere else"),
    ("spark/sinks/test_sink_objects_spark.py", "_jdf"): (1, "PySpark shows a plan that was executed nowhere else"),
    ("spark/source/source_engine.py", "_call"): (
        1,
        "a kill -9 inside one process: nobody leaves or commits",
    ),
    ("spark/source/source_engine.py", "_end"): (1, "the same"),
    ("spark/source/source_engine.py", "_plane"): (1, "the same"),
    ("spark/source/test_source_explained.py", "_holdfast_first"): (1, "our mark on a class of PySpark's, taken off"),
}
"""(file, name) -> how often, and why."""


def test_tests_reach_into_no_private_name_without_a_reason() -> None:
    """Symptom: a rename of a private attribute broke forty tests that were about something else, and nobody dared to
    take a class apart. Rule: a test asks what a user could ask, or a part by its module's public names. If something
    inside is worth asking for, it is worth a plain name. What is left stands in ALLOWED with its reason."""
    reached = found()
    new = {where: count for where, count in reached.items() if count > ALLOWED.get(where, (0, ""))[0]}
    assert new == {}, "use a public name, or make one; `python tests/repo/private_names.py` lists all"
    gone = {where: reached[where] for where, (count, _) in ALLOWED.items() if reached[where] < count}
    assert gone == {}, "fewer than listed: shorten ALLOWED"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x._a.b; self._a; cls._a; self.x._b", ["_a", "_b"]),
        ("from m import _a, b", ["_a"]),
        ("monkeypatch.setattr(x, '_a', 1); monkeypatch.setattr('m.n._b', 1); getattr(x, 'c')", ["_a", "_b"]),
        ("P = 'import m\\nm.x._a = 1'", ["_a"]),
        ("KafkaError._STATE; ck.KafkaError._STATE; x._replace(a=1); os._exit(0); x.__class__", []),
    ],
)
def test_what_counts_as_private(code: str, names: list[str]) -> None:
    assert sorted(private_names(ast.parse(code))) == names
