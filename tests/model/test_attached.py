"""A note behind an assignor's own bytes: both come back as they were, whatever the bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.attached import MAGIC, attach, detach


@given(own=st.none() | st.binary(max_size=64), rest=st.binary(max_size=64))
def test_both_come_back_as_they_were(own: bytes | None, rest: bytes) -> None:
    assert detach(attach(own, MAGIC + rest)) == (own, MAGIC + rest)


@given(data=st.none() | st.binary(max_size=64), tail=st.sampled_from([b"", MAGIC, b"\0\0\0\x04\x01" + MAGIC]))
def test_bytes_of_others_are_left_alone(data: bytes | None, tail: bytes) -> None:
    given_bytes = None if data is None else data + tail
    own, note = detach(given_bytes)
    assert (own, note) == (given_bytes, None) or (note is not None and note.startswith(MAGIC))


def test_what_only_ends_like_ours_is_the_assignors() -> None:
    for odd in (MAGIC, b"\xff\xff\xff\xff\x01" + MAGIC, b"\0\0\0\x63\x01" + MAGIC, b"abcd\0\0\0\x04\x01" + MAGIC):
        assert detach(odd) == (odd, None)
