"""Stores for the tests of sinks and state: a folder, an S3 on loopback, and nightly some real servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from s3_server import S3, s3_server

sys.path.insert(0, str(Path(__file__).parent))
from hdfs_server import hdfs_server
from places import Place, hdfs_place, local_place, s3_place, served_place
from store_servers import StoreServer, azurite_server, minio_server, store_server


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


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a MinIO."""
    with minio_server(tmp_path_factory.mktemp("minio")) as url:
        yield url


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Azurite."""
    with azurite_server(tmp_path_factory.mktemp("azurite")) as url:
        yield url


SERVERS = {"minio": ("s3", "minio"), "azurite": ("az", "azurite"), "google": ("gs", "minio")}
"""Servers of the nightly tests: the scheme of their addresses, and who serves."""


def running(name: str, request: pytest.FixtureRequest) -> AbstractContextManager[StoreServer]:
    kind, fixture = SERVERS[name]
    return store_server(kind, request.getfixturevalue(fixture))


@pytest.fixture(params=SERVERS)
def served(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    """Each of the real servers, behind a proxy of its own that makes no faults yet."""
    with running(request.param, request) as server:
        yield server


NIGHTLY = [
    pytest.param("hdfs", marks=[pytest.mark.nightly, pytest.mark.java]),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in SERVERS),
]


@pytest.fixture(params=["s3", *(pytest.param(name, marks=pytest.mark.nightly) for name in SERVERS)])
def bucket(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place in a bucket."""
    if request.param == "s3":
        yield s3_place(request.getfixturevalue("s3"))
    else:
        with running(request.param, request) as server:
            yield served_place(server)


@pytest.fixture(params=["local", "s3", *NIGHTLY])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield local_place(tmp_path)
    elif request.param == "s3":
        yield s3_place(request.getfixturevalue("s3"))
    elif request.param == "hdfs":
        yield hdfs_place(request.getfixturevalue("hdfs"))
    else:
        with running(request.param, request) as server:
            yield served_place(server)
