"""The rendered line has fixed columns and says what the record says."""

from __future__ import annotations

from hypothesis import given
from trace_examples import SYNCED, records

from holdfast.model import TraceRecord
from holdfast.trace import HEADER, partitions_text, render


def test_columns_stand_where_the_header_says() -> None:
    line = render(SYNCED)
    assert (
        line
        == "      12.346  member       c0-1                 3  synced              owned=orders[0-1] · because joined"
    )
    for column in ("source", "member", "step", "what"):
        assert line[HEADER.index(column)] != " " and line[HEADER.index(column) - 1] == " "


def test_partitions_are_drawn_together() -> None:
    assert partitions_text({"pay": [1], "orders": [5, 0, 1, 2]}) == "orders[0-2,5] pay[1]"
    assert partitions_text({}) == "-"


def test_a_culprit_is_named_unless_it_is_the_speaker() -> None:
    record = TraceRecord(at=0.0, source="coordinator", step="round", cause="left", culprit="c1")
    assert render(record).endswith("because left (by c1)")
    itself = TraceRecord(at=0.0, source="member", step="left", member="c1", culprit="c1")
    assert "by" not in render(itself)


def test_long_names_are_cut_in_the_middle_where_they_tell_least() -> None:
    record = TraceRecord(at=0.0, source="member", step="joined", member="consumer-orders-1-aaaa-bbbb-9f2c")
    assert "consume…bbb-9f2c " in render(record) + " "


@given(records)
def test_any_record_is_one_printable_line(record: TraceRecord) -> None:
    line = render(record)
    assert line.isprintable()
