"""Stores for the tests of sinks and state: a folder, and an S3 on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3_server import S3, s3_server

sys.path.insert(0, str(Path(__file__).parent))
from hdfs_server import hdfs_server
from places import Place, hdfs_place, local_place, s3_place


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


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a small HDFS."""
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


@pytest.fixture(params=["local", "s3", pytest.param("hdfs", marks=[pytest.mark.nightly, pytest.mark.java])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return local_place(tmp_path)
    if request.param == "s3":
        return s3_place(request.getfixturevalue("s3"))
    return hdfs_place(request.getfixturevalue("hdfs"))
