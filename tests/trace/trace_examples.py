"""Records for the trace's tests: one by hand, and any."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.model import TraceRecord

words = st.text(max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(words, v, max_size=3), max_leaves=8)
records = st.builds(
    TraceRecord,
    at=st.floats(0, 1e12),
    source=words,
    step=words,
    group=words,
    member=words,
    generation=st.none() | st.integers(-1, 2**31),
    cause=st.none() | words,
    culprit=st.none() | words,
    data=st.dictionaries(words, values, max_size=4),
)

SYNCED = TraceRecord(
    at=12345.75,
    source="member",
    step="synced",
    group="g",
    member="c0-1",
    generation=3,
    cause="joined",
    data={"owned": {"orders": [0, 1]}},
)
