"""An object store as the place of a sink: what it must be able to do, lost answers, marks, and secrets."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from faulty_proxy import LOSSES, Proxy, faulty_proxy
from places import s3_place
from sink_world import Crashed, Disk, Turn
from typer.testing import CliRunner

from holdfast.cli import pipeline
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import proving
from holdfast.spark.files.buckets import parse_address
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.objects import ObjectStore
from holdfast.spark.files.sink import open_sink
from holdfast.spark.files.store import open_store
from holdfast.spark.files.store_options import parse_store_options
from holdfast.spark.files.writing import Written, write_rows
from s3_server import KEY, S3, SECRET

ORDERS = TopicPartition("orders", 0)


def orders(store: Any, start: int, end: int) -> list[Written]:
    count = end - start
    rows = pa.record_batch(
        {
            "topic": pa.array(["orders"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
        }
    )
    return write_rows(store, [rows], columns=Columns(), schema_id="s")


# -- put-if-absent


@pytest.mark.parametrize("fault", ["ignores_conditions", "refuses_conditions"])
def test_a_store_without_conditional_puts_is_refused_before_anything_is_written(
    s3: S3, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ignores If-None-Match tells both of two writers that the entry is theirs, and one batch is lost
    without a word. So a store is tried first, by putting one name several times."""
    monkeypatch.setattr("holdfast.spark.files.buckets.PATIENCE_S", 1.0)
    place = s3_place(s3)
    setattr(s3, fault, True)
    store = open_store(place.path, place.options, patience_s=1.0)
    with pytest.raises(HoldfastError, match=r"STORE_NOT_EXCLUSIVE.*Use a store that does"):
        store.create("_holdfast/sink.json", b"{}")
    s3.well_again()
    assert store.read("_holdfast/sink.json") is None
    assert store.create("_holdfast/sink.json", b"{}")


def test_the_sink_says_so_when_the_query_is_planned(s3: S3) -> None:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from holdfast.spark.files.source import FilesSource

    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    place = s3_place(s3)
    s3.ignores_conditions = True
    with pytest.raises(HoldfastError, match="STORE_NOT_EXCLUSIVE"):
        FilesSource({"path": place.path, **place.options}).streamWriter(schema, False)


def test_a_place_is_tried_once_in_a_process(s3: S3) -> None:
    place = s3_place(s3)
    place.store.create("a", b"1")
    tried = len(s3.requests)
    place.store.create("b", b"1")
    assert len(s3.requests) == tried + 1
    open_store(f"{place.path}/elsewhere", place.options, proven=True).create("c", b"1")
    assert len(s3.requests) == tried + 2


@pytest.mark.parametrize("times", [1, 2])
def test_an_entry_whose_answer_was_lost_is_ours(s3: S3, times: int) -> None:
    """The put is done, the connection breaks, the client sends it again and hears that the name is taken.

    Taken for somebody else's, the batch's files would be removed as not needed, and the entry that names them stands.
    Rule: what lies there is compared with what was sent.
    """
    store = s3_place(s3).store
    store.prove()
    written = orders(store, 0, 10)
    s3.lose_answers = times
    assert commit_files(store, written, columns=Columns()).rows == 10
    assert s3.lose_answers == 0
    (file,) = Ledger(store, ORDERS).load().files
    assert store.exists(file.name)
    s3.lose_answers = 1
    assert store.create("x", b"ours")
    assert not store.create("x", b"theirs")
    assert store.read("x") == b"ours"


def test_of_two_writers_of_one_entry_one_wins_and_the_other_adds_what_is_left(s3: S3) -> None:
    """Both have seen the same end of the chain; the second gets its entry in while the first one's is on its way."""
    place = s3_place(s3)
    slow, quick = place.store, place.store
    zombie, new = orders(slow, 0, 10), orders(quick, 0, 25)
    entry = "/entries/000000000001.json"

    def overtake(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(entry):
            s3.on_request = None
            assert commit_files(quick, new, columns=Columns()).rows == 25

    s3.on_request = overtake
    done = commit_files(slow, zombie, columns=Columns())
    assert (done.rows, done.dropped_rows) == (0, 10)
    content = Ledger(slow, ORDERS).load()
    assert (content.entries, content.end, sum(file.rows for file in content.files)) == (1, 25, 25)
    assert slow.names("data/orders/0") == [content.files[0].name.rpartition("/")[2]]


def test_a_writer_that_dies_at_any_request_loses_and_doubles_nothing(s3: S3) -> None:
    """kill -9 before each request of a batch in turn; then the batch is done again by somebody else."""

    class Killed(BaseException):
        pass

    def batch(store: Any) -> None:
        commit_files(store, orders(store, 0, 10), columns=Columns())

    for after in itertools.count():
        store: Any = s3_place(s3).store
        store.prove()
        client, asked = store.client, itertools.count()

        class Dying:
            def __getattr__(self, name: str, client: Any = client, asked: Any = asked, after: int = after) -> Any:
                if next(asked) >= after:
                    raise Killed
                return getattr(client, name)

        store.client = Dying()
        try:
            batch(store)
            done = True
        except Killed:
            done = False
        store.client = client
        batch(store)
        content = Ledger(store, ORDERS).load()
        assert (content.end, sum(file.rows for file in content.files)) == (10, 10)
        assert all(store.exists(file.name) for file in content.files)
        if done:
            assert after > 5
            return


# -- connections that break


@pytest.fixture
def broken_s3(s3: S3) -> Iterator[tuple[S3, Proxy]]:
    """The S3, and a proxy before it that loses answers."""
    with faulty_proxy(s3.url) as proxy:
        url, s3.url = s3.url, proxy.url
        yield s3, proxy
        s3.url = url


@pytest.mark.parametrize("how", LOSSES)
def test_a_request_whose_connection_broke_is_sent_again(broken_s3: tuple[S3, Proxy], how: str) -> None:
    """Symptom: a connection was reset behind the conditional put of an entry, and the query failed, though the entry
    was in and the docs say that it counts. So did a removal, and a read whose answer broke off in its content.

    Cause: obstore repeats no request that might do harm twice, and no answer that has begun. Rule: each request of ours
    may be repeated, and is, for as long as we have patience.
    """
    s3, proxy = broken_s3
    store = s3_place(s3).store
    store.prove()

    def losing(times: int, ask: Callable[[], Any]) -> Any:
        before, left = len(proxy.lost), [how] * times
        proxy.lose = lambda _method, _path: left.pop() if left else None
        done = ask()
        assert len(proxy.lost) == before + times
        return done

    assert losing(1, lambda: store.create("d/x", b"ours"))
    assert not losing(2, lambda: store.create("d/x", b"theirs"))
    assert losing(2, lambda: store.read("d/x")) == b"ours"
    assert losing(2, lambda: store.names("d")) == ["x"]
    assert losing(2, lambda: store.size("d/x")) == 4
    assert losing(2, lambda: store.touch("d/x"))
    losing(1, lambda: store.remove("d/x"))
    assert not store.exists("d/x")


def test_a_put_that_is_never_answered_is_sent_again(
    broken_s3: tuple[S3, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a server took the entry and fell silent; after a minute the query failed, with two more to go.

    Cause and rule as for a connection that broke.
    """
    monkeypatch.setattr("holdfast.spark.files.buckets.REQUEST_S", 2.0)
    s3, proxy = broken_s3
    store = s3_place(s3).store
    store.prove()
    proxy.lose_next_put("hung")
    assert store.create("x", b"ours")
    assert [how for how, *_ in proxy.lost] == ["hung"]
    assert not store.create("x", b"theirs")


@pytest.mark.parametrize("how", LOSSES)
def test_a_large_file_is_written_though_the_last_answer_is_lost(
    broken_s3: tuple[S3, Proxy], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a file of more than 64 MB was in the bucket, whole, and its batch failed with "NoSuchUpload".

    Cause: the answer to the request that makes one file of all parts was lost; obstore asked again, and an upload that
    has ended is unknown to MinIO, and its blocks to Azure. Rule: who is refused looks whether the file is there.
    """
    monkeypatch.setattr("holdfast.spark.files.objects.ONE_PUT_BYTES", 1024 * 1024)
    s3, proxy = broken_s3
    store, data = s3_place(s3).store, b"0123456789abcdef" * 400_000
    ends = list[str]()

    def lose(method: str, path: str) -> str | None:
        ends.extend([path] if method == "POST" and "uploadId" in path else [])
        return how if len(ends) == 1 and path == ends[0] else None

    proxy.lose = lose
    with store.writing("d/large.parquet") as file:
        file.write(data)
    assert ends
    assert store.size("d/large.parquet") == len(data)
    assert store.names("d") == ["large.parquet"]


def test_an_upload_that_ends_with_an_error_and_no_file_fails(
    broken_s3: tuple[S3, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.files.objects.ONE_PUT_BYTES", 1024 * 1024)
    s3, proxy = broken_s3
    store = s3_place(s3).store
    proxy.refuse = lambda method, path: 400 if method == "POST" and "uploadId" in path else None
    with pytest.raises(HoldfastError, match="STORE_FAILED"), store.writing("d/large.parquet") as file:
        file.write(b"0" * 6_000_000)
    assert store.names("d") == []


# -- marks: every order of the requests of two that touch and remove


class Shared:
    """A bucket in memory, one request at a time."""

    def __init__(self, disk: Disk, turn: Turn, now: float) -> None:
        self.files, self.turn, self.now = disk.ever, turn, now

    def put(self, name: str, data: bytes, **_: Any) -> None:
        with self.turn.operation("put", name):
            self.files[name] = [int(self.now)]

    def head(self, name: str) -> dict[str, Any]:
        from datetime import UTC, datetime

        with self.turn.operation("head", name):
            if name not in self.files:
                raise FileNotFoundError(name)
            return {"last_modified": datetime.fromtimestamp(self.files[name][0], UTC), "size": 1}

    def list(self, folder: str) -> Iterator[list[dict[str, str]]]:
        with self.turn.operation("list", folder):
            return iter([[{"path": name} for name in self.files if name.startswith(f"{folder}/")]])

    def delete(self, name: str) -> None:
        with self.turn.operation("delete", name):
            self.files.pop(name, None)


def actor(told: list[bool], now: float, act: Callable[[ObjectStore], bool]) -> Callable[[Any], None]:
    def action(store: Any) -> None:
        told.append(act(ObjectStore("s3://memory/x", client=Shared(store.disk, store.turn, now))))

    return action


def play(order: tuple[int, ...], acts: list[Callable[[ObjectStore], bool]], crash: int = -1) -> tuple[Disk, list[bool]]:
    """Let the actors forward in this order, whoever is not done behind it; actor 1 may die at its step `crash`."""
    disk, touched, others = Disk(ever={"f/x": [0]}), list[bool](), list[bool]()
    turns = [Turn(str(n), actor(others if n else touched, 100.0, act), disk) for n, act in enumerate(acts)]
    steps = 0
    for number in (*order, *(n for n in range(len(acts)) for _ in range(20))):
        if not turns[number].done:
            steps += number == 1
            turns[number].step("before" if number == 1 and steps == crash else None)
    assert all(turn.error is None or isinstance(turn.error, Crashed) for turn in turns)
    return disk, touched


def touch(store: ObjectStore) -> bool:
    return store.touch("f/x")


def remove(store: ObjectStore) -> bool:
    return store.remove_untouched("f/x", 50.0)


def test_a_file_that_was_touched_is_there_whatever_the_order_of_requests() -> None:
    """Symptom, had it been made of "look, then remove": a writer touches its file, `clean` removes it, an entry names
    it. Rule: each puts its mark before it looks for the other's, so one of the two gives way."""
    outcomes = set()
    for places in itertools.combinations(range(10), 4):
        order = tuple(0 if at in places else 1 for at in range(10))
        disk, (kept,) = play(order, [touch, remove])
        assert not kept or "f/x" in disk.ever, order
        outcomes.add((kept, "f/x" in disk.ever))
    assert outcomes >= {(True, True), (False, False)}


def test_two_removers_one_of_which_dies_take_no_file_that_was_touched() -> None:
    orders_of_three = sorted(set(itertools.permutations((0, 0, 0, 1, 1, 1, 2, 2, 2))))
    for number, order in enumerate(orders_of_three[::7]):
        disk, (kept,) = play(order, [touch, remove, remove], crash=number % 8)
        assert not kept or "f/x" in disk.ever, order


# -- addresses, packages and secrets


def test_a_missing_package_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(HoldfastError, match=r"STORE_PACKAGE_MISSING.*pip install 'holdfast\[object-store\]'"):
        open_store("s3://bucket/x")


def test_addresses_of_the_clouds() -> None:
    for url in ("s3://b/x/y/", "s3a://b/x/y", "gs://b/x/y", "az://b/x/y"):
        found = parse_address(url)
        assert (found.bucket, found.prefix) == ("b", "x/y")
    azure = parse_address("abfss://box@shop.dfs.core.windows.net/x")
    assert (azure.kind, azure.bucket, azure.account, azure.prefix) == ("azure", "box", "shop", "x")
    assert parse_address("s3://b").prefix == ""
    assert isinstance(open_store("gs://b/x", {"holdfast.store.skip_signature": "true"}), ObjectStore)
    key = {"holdfast.store.account_key": "c2VjcmV0"}
    assert isinstance(open_store("abfss://box@shop.dfs.core.windows.net/x", key), ObjectStore)
    with pytest.raises(HoldfastError, match="STORE_ADDRESS") as told:
        open_store(f"s3://{KEY}:topsecret@bucket/x")
    assert "topsecret" not in str(told.value)


def test_an_option_that_the_store_does_not_know_is_refused(s3: S3) -> None:
    with pytest.raises(HoldfastError, match=r"INVALID_OPTION.*secret_acces_key"):
        open_store("s3://bucket/x", {"holdfast.store.secret_acces_key": SECRET})


def test_the_environment_serves_where_no_option_is_given(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    place = s3_place(s3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store(place.path)
    open_sink(store, Columns())
    commit_files(store, orders(store, 0, 10), columns=Columns())
    done = CliRunner().invoke(pipeline.app, ["show", place.path, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["next_offset"] == 10
    done = CliRunner().invoke(pipeline.app, ["files", place.path])
    assert done.output.split() == [f"{place.path}/{name}" for name in place.files()]


def test_a_profile_of_the_aws_tools_serves_too(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home") / "credentials"
    home.write_text(f"[shop]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    place = s3_place(s3)
    options = {"holdfast.store.endpoint_url": s3.url, "holdfast.store.region": "us-east-1"}
    assert open_store(place.path, {**options, "holdfast.store.profile": "shop"}).create("x", b"1")
    with pytest.raises(HoldfastError, match="STORE_DENIED"):
        open_store(place.path, {**options, "holdfast.store.profile": "other"})


def test_secrets_are_in_no_text_and_in_no_file_of_the_sink(s3: S3) -> None:
    """Errors of the library carry the request; on Azure an address may carry its signature."""
    place = s3_place(s3)
    options = parse_store_options(place.options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert SECRET not in repr(options)
    assert s3.url in repr(options)
    text = f"GET https://shop.blob.core.windows.net/box/x?sv=1&sig=abc%3D failed with {SECRET}\n\nDebug source: more"
    assert options.without_secrets(text) == "GET https://shop.blob.core.windows.net/box/x?… failed with ***"
    with pytest.raises(HoldfastError, match=r"STORE_FAILED.*NoSuchBucket"):
        open_store("s3://no-such-bucket/x", place.options, patience_s=1.0).create("x", b"1")
    store = place.store

    class Careless:
        def __getattr__(self, name: str) -> Any:
            raise ValueError(f"{name} by {SECRET}")

    told_by_library: Any = open_store(place.path, place.options)
    told_by_library.client = Careless()
    with pytest.raises(HoldfastError, match=r"STORE_FAILED.*get by \*\*\*") as told:
        told_by_library.read("x")
    assert SECRET not in "".join(traceback.format_exception(told.value))
    commit_files(store, orders(store, 0, 3), columns=Columns(), writer="billing")
    assert isinstance(store, ObjectStore)
    names = [one["path"] for some in store.client.list("") for one in some]
    assert names and not [name for name in names if SECRET.encode() in (store.read(name) or b"")]


def test_a_server_that_does_not_answer_is_told_within_seconds_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.spark.files.source import FilesSource

    nowhere = {"holdfast.store.endpoint_url": "http://127.0.0.1:9", "holdfast.store.access_key_id": "a"}
    monkeypatch.setattr("holdfast.spark.files.source.AT_START_S", 0.5)
    source = FilesSource({"path": "s3://bucket/x", **nowhere, "holdfast.store.secret_access_key": "b"})
    with pytest.raises(HoldfastError, match=r"STORE_FAILED.*See that the address"):
        source.schema()


@pytest.fixture(autouse=True)
def nothing_is_proven() -> None:
    proving.tried_out.clear()
