"""What is told of offsets that were moved or deleted, above all when only some were."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli import groups_moved
from holdfast.model import TopicPartition

AT = TopicPartition("orders", 0)


def test_a_byte_order_mark_is_no_part_of_the_first_groups_name(tmp_path: Path) -> None:
    """Excel saves CSV with a mark in front. The first line's offset went to a new group, its name with the mark."""
    file = tmp_path / "kept.csv"
    file.write_bytes(b"\xef\xbb\xbfbilling,orders,0,4\n")

    assert groups_moved._read_file(file, None) == {"billing": {AT: 4}}
