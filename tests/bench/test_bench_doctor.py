"""`holdfast bench doctor`: its text is a broker's log that is understood, and its verdict follows from the times."""

from __future__ import annotations

from pathlib import Path

from holdfast.bench.doctor import GROUPS, judged, plain_parse, write_logs
from holdfast.doctor.events import Event
from holdfast.doctor.scanning import parse_line, scan


def test_its_text_is_a_log_in_which_one_line_in_twenty_is_about_a_group(tmp_path: Path) -> None:
    size = write_logs(tmp_path, 1_000_000)
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    quick = scan(data)
    slow = [found for line in data.decode().splitlines() if isinstance(found := parse_line(line), Event)]

    assert size == len(data) >= 1_000_000
    assert not quick.strange
    assert 0.03 < len(quick.events) / quick.lines < 0.07
    assert [(one.kind, one.group, one.at_ms) for one in quick.events] == [(o.kind, o.group, o.at_ms) for o in slow]
    assert GROUPS / 2 < len({one.group for one in quick.events}) <= GROUPS
    assert plain_parse(tmp_path)[0] == size


def test_the_verdict_is_made_of_the_best_rate_and_of_what_a_megabyte_more_takes() -> None:
    assert judged([(100_000_000, 5.0), (400_000_000, 6.5)], 12.0) == [
        "each further megabyte: 5 ms, which is 200 MB/s",
        "goal of 60 MB/s: met, 62",
        "goal of 4 times the plain parse: met, 5.1",
    ]
    assert all("not met" in line for line in judged([(100_000_000, 5.0)], 12.0))
