"""Stores for the tests of sinks and state: a folder, and an S3 on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3_server import S3, s3_server

sys.path.insert(0, str(Path(__file__).parent))
from places import Place, local_place, s3_place


@pytest.fixture(scope="session")
def s3_of_the_session() -> Iterator[S3]:
    with s3_server() as s3:
        yield s3


@pytest.fixture
def s3(s3_of_the_session: S3) -> Iterator[S3]:
    """Well, whatever the test before did to it."""
    s3_of_the_session.well_again()
    yield s3_of_the_session
    s3_of_the_session.well_again()


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return local_place(tmp_path) if request.param == "local" else s3_place(request.getfixturevalue("s3"))
