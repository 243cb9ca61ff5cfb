"""An HDFS as the place of a sink. What runs on every store runs on a real one nightly (`places.hdfs_place`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from places import hdfs_place

from holdfast.model import HoldfastError
from holdfast.spark.files.hdfs import HdfsStore
from holdfast.spark.files.store import open_store

TOKEN = "very-secret-token"


@contextmanager
def answering(status: int, content: str) -> Iterator[str]:
    """A server that has one answer for everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        do_PUT = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def exception(name: str) -> str:
    return f'{{"RemoteException": {{"exception": "{name}", "message": "told"}}}}'


@pytest.mark.parametrize(
    ("status", "content", "code"),
    [
        (404, "<html>Not Found</html>", "STORE_FAILED"),
        (200, "<html>Welcome</html>", "STORE_FAILED"),
        (401, "<html>Authentication required</html>", "STORE_DENIED"),
        (403, exception("AccessControlException"), "STORE_DENIED"),
        (403, exception("LeaseExpiredException"), "STORE_FAILED"),
        (500, exception("IOException"), "STORE_FAILED"),
    ],
)
def test_what_is_no_answer_of_an_hdfs_is_no_missing_file(status: int, content: str, code: str) -> None:
    """Another server at this address says 404 as well. Taken for "no such file", a sink would look new."""
    options = {"holdfast.store.delegation_token": TOKEN}
    with answering(status, content) as host:
        store = open_store(f"webhdfs://{host}/x", options, patience_s=0.5)
        with pytest.raises(HoldfastError, match=code) as told:
            store.exists("a")
        with pytest.raises(HoldfastError, match=code):
            store.create("a", b"1")
    assert TOKEN not in str(told.value)


def test_a_namenode_that_is_not_active_sends_us_to_the_next() -> None:
    status = '{"FileStatus": {"length": 7, "modificationTime": 1000}}'
    with answering(403, exception("StandbyException")) as standby, answering(200, status) as active:
        store = open_store(f"webhdfs://{standby},{active}/x", patience_s=20.0)
        assert (store.size("a"), store.modified("a")) == (7, 1.0)
        assert isinstance(store, HdfsStore)
        assert store.hosts[0] == active


def test_a_missing_file_is_told_by_the_namenode() -> None:
    with answering(404, exception("FileNotFoundException")) as host:
        store = open_store(f"webhdfs://{host}/x", patience_s=0.5)
        assert (store.read("a"), store.names("a"), store.touch("a")) == (None, [], False)


def test_addresses_and_options_that_can_not_be_meant_are_refused() -> None:
    with pytest.raises(HoldfastError, match=r"STORE_UNSUPPORTED.*webhdfs://namenode:9870/path"):
        open_store("hdfs://namenode:8020/x")
    with pytest.raises(HoldfastError, match=r"INVALID_OPTION.*holdfast\.store\.region"):
        open_store("webhdfs://namenode:9870/x", {"holdfast.store.region": "eu"})


@pytest.mark.nightly
@pytest.mark.java
def test_a_rename_whose_answer_was_lost_counts_as_made(hdfs: str) -> None:
    place = hdfs_place(hdfs)
    store: Any = place.store
    store.prove()
    once = store.once
    lost: list[str] = []

    def losing(method: str, host: str, target: str, body: Any) -> Any:
        answer = once(method, host, target, body)
        if "op=RENAME" in target and not lost:
            lost.append(target)
            raise ConnectionResetError
        return answer

    store.once = losing
    assert store.create("x.json", b"ours")
    assert lost
    assert not place.store.create("x.json", b"theirs")
    lost.clear()
    with store.writing("d/x.parquet") as file:
        file.write(b"whole")
    assert lost
    assert place.store.read("d/x.parquet") == b"whole"
    assert place.store.leftovers("d") == []
