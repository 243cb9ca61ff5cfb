"""Logins, TLS and rules: by hand over one socket, and with the real clients."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import make_certificates
from raw_client import Closed, RawClient

from holdfast.broker.limits import Limits
from holdfast.broker.security import sasl
from holdfast.broker.security.rules import Operation, Resource, Rules, parse_rules
from holdfast.broker.security.sasl import Challenge, Check, LoginFailed, start
from holdfast.broker.security.scram import Mechanism, make_verifier, password_is_right
from holdfast.broker.security.tls import check_exposure
from holdfast.broker.security.users import Users, load_users, save_users
from holdfast.broker.settings import Security
from holdfast.model import ErrorCode, HoldfastError
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from patience import PATIENCE_S

ALICE = {"alice": ("open sesame", ["all"])}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    rules = ["read,write:topic:own-*", "describe:topic:seen", "read:group:own-*"]
    users = {**ALICE, "bob": ("wonderland", rules), "nobody": ("nothing", [])}
    with Broker(users=users) as running:
        for name in ("own-1", "seen", "hidden"):
            running.topics.create(name, 1)
        yield running


def scram_first(user: str, nonce: str = "abc") -> str:
    return f"n={user},r={nonce}"


def scram_final(mechanism: str, password: str, first: str, challenge: str, *, nonce: str | None = None) -> bytes:
    """What a client with this password answers, written out from RFC 5802."""
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    bare = f"c=biws,r={nonce or fields['r']}"
    signature = hmac.digest(hashlib.new(name, client_key).digest(), f"{first},{challenge},{bare}".encode(), name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def log_in(client: RawClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> int:
    """The error code of a login; 0 when it worked."""
    assert client.ask(Api.SASL_HANDSHAKE, {"mechanism": mechanism}).error_code == 0
    first = scram_first(user)
    answer = client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": f"n,,{first}".encode()})
    if answer.error_code:
        return int(answer.error_code)
    final = scram_final(mechanism, password, first, answer.auth_bytes.decode())
    return int(client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": final}).error_code)


# -- logins


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_the_right_password_logs_in(broker: Broker, mechanism: str) -> None:
    with RawClient(broker) as client:
        assert log_in(client, "alice", "open sesame", mechanism) == 0
        assert len(client.ask(Api.METADATA, {"topics": None}).topics) == 3


@pytest.mark.parametrize(("user", "password"), [("alice", "close sesame"), ("mallory", "open sesame")])
def test_a_failed_login_says_nothing_and_closes_the_connection(
    caplog: pytest.LogCaptureFixture, user: str, password: str
) -> None:
    # A broker of its own: one writes so many such lines a second, and other tests may have had them.
    with caplog.at_level(logging.INFO), Broker(users=ALICE) as alone, RawClient(alone) as client:
        assert log_in(client, user, password) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    assert len([line for line in caplog.messages if "login failed" in line]) == 1
    assert "sesame" not in caplog.text


def test_an_unknown_user_gets_a_challenge_like_a_known_one_and_the_same_one_each_time() -> None:
    users = Users().with_user("alice", "open sesame")

    def challenge(user: str) -> dict[str, str]:
        step = start("SCRAM-SHA-256", users).step(f"n,,{scram_first(user)}".encode())
        assert isinstance(step, Challenge)
        return dict(part.split("=", 1) for part in step.message.decode().split(","))

    known, unknown, again = challenge("alice"), challenge("mallory"), challenge("mallory")
    assert unknown["i"] == known["i"]
    assert len(unknown["s"]) == len(known["s"])
    assert unknown["s"] == again["s"] != challenge("eve")["s"]
    assert unknown["r"] != again["r"]


@pytest.mark.parametrize("nonce", ["abc", "abcX", ""], ids=["only the client's half", "another one", "none"])
def test_a_nonce_must_be_equal_as_a_whole(nonce: str) -> None:
    login = start("SCRAM-SHA-256", Users().with_user("alice", "open sesame"))
    step = login.step(f"n,,{scram_first('alice')}".encode())
    assert isinstance(step, Challenge)
    final = scram_final("SCRAM-SHA-256", "open sesame", scram_first("alice"), step.message.decode(), nonce=nonce or "-")

    with pytest.raises(LoginFailed):
        login.step(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a,b=c",
        b"n,,m=x,n=alice,r=abc",
        b"n" * 5_000,
    ],
)
def test_a_first_message_that_is_not_understood_is_a_failed_login(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        start("SCRAM-SHA-256", Users().with_user("alice", "open sesame")).step(message)


def test_a_login_can_t_be_finished_before_it_is_begun_or_begun_twice(broker: Broker) -> None:
    with RawClient(broker) as client:
        answer = client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0open sesame"})
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(Api.SASL_HANDSHAKE, {"mechanism": "SCRAM-SHA-256"}).error_code == 0
        again = client.ask(Api.SASL_HANDSHAKE, {"mechanism": "SCRAM-SHA-512"})
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "GSSAPI", ""])
def test_what_is_not_offered_is_refused_and_plain_is_not_offered_without_tls(broker: Broker, mechanism: str) -> None:
    with RawClient(broker) as client:
        answer = client.ask(Api.SASL_HANDSHAKE, {"mechanism": mechanism})

    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")


@pytest.mark.parametrize("api", [Api.METADATA, Api.PRODUCE, Api.FETCH, Api.JOIN_GROUP, Api.CREATE_TOPICS])
def test_nothing_is_served_before_the_login(broker: Broker, api: Api) -> None:
    with RawClient(broker) as client:
        client.send(client.request(api, api.highest, {}))

        assert client.is_closed()


def test_plain_takes_the_right_password_only() -> None:
    login = start("PLAIN", Users().with_user("alice", "open sesame"))

    def right(user: str, password: str) -> bool:
        step = login.step(f"\0{user}\0{password}".encode())
        assert isinstance(step, Check)
        return step.right()

    assert right("alice", "open sesame")
    assert not right("alice", "close sesame")
    assert not right("mallory", "open sesame")
    for message in (b"", b"alice", b"\0alice\0", b"bob\0alice\0open sesame", b"\0\0x", b"\0a\0b\0c"):
        with pytest.raises(LoginFailed):
            login.step(message)


# -- the users file


def test_a_users_file_holds_no_password_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users = Users().with_user("alice", "open sesame", allow=["read:topic:a*"]).with_user("bob", "b", iterations=4_096)

    save_users(path, users)

    assert load_users(path) == users
    assert "sesame" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_users(tmp_path / "absent.json").by_name == {}
    verifier = load_users(path).by_name["alice"].verifiers[Mechanism.SHA_256]
    assert password_is_right(Mechanism.SHA_256, verifier, "open sesame")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 2, "users": {}, "secret": ""}', '{"version": 1}', "[" * 100_000]
)
def test_a_users_file_that_is_not_understood_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(HoldfastError, match="USERS_FILE_INVALID"):
        load_users(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_users_file_that_others_may_use_is_refused_unless_told(tmp_path: Path, mode: int) -> None:
    """Symptom: a users file that everybody on the machine could read was used without a word. Its verifiers can be
    tried against guessed passwords, and who may write it lets himself in. Rule: refused, as ssh does with its keys,
    with what to do; --insecure says that the user knows better.
    """
    path = tmp_path / "users.json"
    save_users(path, Users().with_user("alice", "x"))
    path.chmod(mode)

    with pytest.raises(HoldfastError, match=r"USERS_FILE_OPEN.*chmod 600"):
        load_users(path)
    assert list(load_users(path, others_may=True).by_name) == ["alice"]


def _login(client: RawClient, message: bytes) -> int:
    client.ask(Api.SASL_HANDSHAKE, {"mechanism": "SCRAM-SHA-256"})
    client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"n,,n=alice,r=abc"})
    return int(client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": message}).error_code)


@pytest.mark.parametrize("nonce", ["ä", "abc\u00e9", "\U0001f600", "a b", "\x7f"])
def test_a_nonce_that_is_not_ascii_is_a_failed_login_like_any_other(
    caplog: pytest.LogCaptureFixture, nonce: str
) -> None:
    """Symptom: 1,900 tracebacks a second in the log, from one stranger on one connection that stayed open. Cause:
    Python refuses to compare texts that are not ASCII, which was taken for a mistake of ours. Rule: a message that the
    RFC does not allow is a login that failed: one answer, one line, and the connection is closed.
    """
    with Broker(users=ALICE) as broker, caplog.at_level(logging.INFO), RawClient(broker) as client:
        assert _login(client, f"c=biws,r={nonce},p=AAAA".encode()) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()

    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1: login failed: the last SCRAM message can't be read"
    ]


def test_a_login_that_fails_again_and_again_is_one_line_with_its_repeats_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line for every failed login fills a disk, and the one that matters is not found in it. The first says what is
    wrong; `test_broker_quiet.py` has what is said later."""
    with Broker(users=ALICE) as broker, caplog.at_level(logging.INFO):
        for _ in range(50):
            with RawClient(broker) as client:
                assert _login(client, b"nonsense") == ErrorCode.SASL_AUTHENTICATION_FAILED
    lines = [record.getMessage() for record in caplog.records if "login failed" in record.getMessage()]

    # On a slow machine the fifty may take longer than the ten seconds after which the repeats are told.
    assert lines[0] == "127.0.0.1: login failed: the last SCRAM message can't be read"
    assert all(" more in " in line for line in lines[1:]) and len(lines) < 10


def test_what_no_rule_allows_is_told_in_the_log_with_the_rule_that_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client that may not create a topic was told to look into the broker's log, which said nothing; nobody said
    which right was missing."""
    with Broker(users={"billing": ("x", ["read:topic:orders"])}) as broker, RawClient(broker) as client:
        assert log_in(client, "billing", "x") == 0
        asked = {"name": "x", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = client.ask(Api.CREATE_TOPICS, {"topics": [asked], "timeout_ms": 1000, "validate_only": False})

    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer.topics[0].error_message == "No rule of this user allows create:topic:x."
    told = [record.getMessage() for record in caplog.records]
    assert "billing@127.0.0.1: CREATE_TOPICS refused: no rule allows create:topic:x" in told


@pytest.mark.parametrize("iterations", [4_095, 100_001])
def test_iterations_are_bounded_when_made_and_when_read(tmp_path: Path, iterations: int) -> None:
    with pytest.raises(HoldfastError, match="ITERATIONS_INVALID"):
        Users().with_user("alice", "x", iterations=iterations)
    path = tmp_path / "users.json"
    save_users(path, Users().with_user("alice", "x", iterations=5_000))
    path.write_text(path.read_text().replace("5000", str(iterations)))
    with pytest.raises(HoldfastError, match="USERS_FILE_INVALID"):
        load_users(path)


def test_verifiers_are_those_of_the_rfc() -> None:
    """RFC 7677, section 3: user "user", password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = make_verifier(Mechanism.SHA_256, "pencil", iterations=4_096, salt=salt)
    said = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )

    signature = hmac.digest(verifier.server_key, said.encode(), "sha256")

    assert base64.b64encode(signature).decode() == "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


# -- rules


@pytest.mark.parametrize(
    ("text", "operation", "resource", "name", "allowed"),
    [
        ("read:topic:orders", Operation.READ, Resource.TOPIC, "orders", True),
        ("read:topic:orders", Operation.READ, Resource.TOPIC, "orders2", False),
        ("read:topic:orders", Operation.WRITE, Resource.TOPIC, "orders", False),
        ("read:topic:orders", Operation.DESCRIBE, Resource.TOPIC, "orders", True),
        ("read:topic:orders", Operation.READ, Resource.GROUP, "orders", False),
        ("read:topic:or*", Operation.READ, Resource.TOPIC, "orders", True),
        ("read:topic:or*", Operation.READ, Resource.TOPIC, "o", False),
        ("write,create:topic:*", Operation.CREATE, Resource.TOPIC, "anything", True),
        ("all:group:g", Operation.DELETE, Resource.GROUP, "g", True),
        ("alter-configs:topic:a", Operation.DESCRIBE_CONFIGS, Resource.TOPIC, "a", True),
        ("create:cluster", Operation.CREATE, Resource.CLUSTER, "", True),
        ("create:cluster", Operation.CREATE, Resource.TOPIC, "a", False),
        ("all", Operation.ALTER, Resource.CLUSTER, "", True),
    ],
)
def test_a_rule_allows_what_it_says_and_no_more(
    text: str, operation: Operation, resource: Resource, name: str, allowed: bool
) -> None:
    assert Rules({"u": [text]}).allow("u", operation, resource, name) is allowed
    assert not Rules({"u": [text]}).allow("somebody else", operation, resource, name)


@pytest.mark.parametrize(
    "text", ["", "read", "read:topic:", "read:topic", "fly:topic:a", "read:planet:a", "read:cluster:x"]
)
def test_a_rule_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match="RULE_INVALID"):
        parse_rules(text)


def test_a_topic_that_may_not_be_used_is_refused_at_once_whether_it_is_there_or_not(broker: Broker) -> None:
    """Symptom: a Java producer without rights waited for a minute and heard of a time-out, where Kafka's answer ends it
    at once. Cause: a topic that might not be seen was answered as unknown, which clients ask again. Rule: the error is
    Kafka's, and as it is the same for a topic that does not exist, nobody learns which topics there are."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    names = ("hidden", "missing")
    with RawClient(broker) as client:
        assert log_in(client, "bob", "wonderland") == 0
        described = client.ask(
            Api.DESCRIBE_CONFIGS,
            {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]},
        ).results
        grown = client.ask(
            Api.CREATE_PARTITIONS, {"topics": [{"name": name, "count": 9, "assignments": None} for name in names]}
        ).results
        deleted = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": name, "topic_id": None} for name in names]})
        where = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        offsets = client.ask(
            Api.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": name, "partitions": [where]} for name in names]}
        ).topics

    assert [each.error_code for each in (*described, *grown, *deleted.responses)] == [denied] * 6
    assert [topic.partitions[0].error_code for topic in offsets] == [denied] * 2


def test_a_topic_that_may_not_be_seen_looks_like_one_that_is_not_there(broker: Broker) -> None:
    with RawClient(broker) as client:
        assert log_in(client, "bob", "wonderland") == 0
        listed = client.ask(Api.METADATA, {"topics": None}).topics
        asked = [{"name": name} for name in ("hidden", "missing")]
        unseen = client.ask(Api.METADATA, {"topics": asked}, version=9).topics

        assert [topic.name for topic in listed] == ["own-1", "seen"]
        assert [topic.error_code for topic in unseen] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        assert _produce(client, "hidden") == _produce(client, "missing") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert _fetch(client, "hidden") == _fetch(client, "missing") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert _produce(client, "seen") == _fetch(client, "seen") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert _produce(client, "own-1") == 0
        assert _fetch(client, "own-1") == 0


def test_a_hidden_topic_can_t_be_found_by_its_id(broker: Broker) -> None:
    topic = broker.call(lambda state: state.store.topic("hidden"))
    assert topic is not None
    hidden = topic.topic_id
    with RawClient(broker) as client:
        assert log_in(client, "bob", "wonderland") == 0
        found = client.ask(Api.METADATA, {"topics": [{"topic_id": hidden, "name": None}]}).topics[0]
        asked = FetchTopic(topic_id=hidden, partitions=(FetchPartition(partition=0, offset=0),))
        fetched = client.fetch(FetchRequest(max_wait_ms=0, topics=(asked,)), version=17).topics[0].partitions[0]
        produced = client.produce("", [b"x"], version=13, topic_id=hidden)
        deleted = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": None, "topic_id": hidden}]}).responses[0]

    assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert fetched.error == ErrorCode.UNKNOWN_TOPIC_ID
    assert produced is not None and produced.topics[0].partitions[0].error == ErrorCode.UNKNOWN_TOPIC_ID
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.topics.count("hidden") == 0


def test_what_no_rule_allows_is_denied_whatever_it_is(broker: Broker) -> None:
    with RawClient(broker) as client:
        assert log_in(client, "nobody", "nothing") == 0
        topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.ask(Api.CREATE_TOPICS, {"topics": [topic]}).topics[0].error_code == refused
        assert client.ask(Api.METADATA, {"topics": None}).topics == ()
        assert client.ask(Api.LIST_GROUPS).groups == ()
        no_group = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert client.ask(Api.DESCRIBE_GROUPS, {"groups": ["g"]}).groups[0].error_code == no_group
        assert client.ask(Api.DELETE_GROUPS, {"groups_names": ["g"]}).results[0].error_code == no_group
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        assert client.ask(Api.HEARTBEAT, beat).error_code == no_group
        assert client.ask(Api.OFFSET_DELETE, {"group_id": "g", "topics": []}).error_code == no_group
        found = client.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}).coordinators[0]
        assert found.error_code == no_group
        settings = {"resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]}
        no_cluster = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert client.ask(Api.DESCRIBE_CONFIGS, settings).results[0].error_code == no_cluster
    assert "new" not in broker.topics.names()


def test_allowed_operations_are_listed_as_kafka_lists_them(broker: Broker) -> None:
    with RawClient(broker) as client:
        assert log_in(client, "bob", "wonderland") == 0
        asked = {"topics": [{"name": "own-1"}], "include_topic_authorized_operations": True}
        topic = client.ask(Api.METADATA, asked).topics[0]

    assert topic.topic_authorized_operations == (1 << 3) | (1 << 4) | (1 << 8)


def _produce(client: RawClient, topic: str) -> int:
    answer = client.produce(topic, [b"x"])
    assert answer is not None
    return answer.topics[0].partitions[0].error


def _fetch(client: RawClient, topic: str) -> int:
    asked = FetchTopic(topic=topic, partitions=(FetchPartition(partition=0, offset=0),))
    return client.fetch(FetchRequest(max_wait_ms=0, topics=(asked,))).topics[0].partitions[0].error


# -- TLS, and what may be reached from outside


def tls_security(certificates: Path, client_ca: Path | None = None) -> Security:
    return Security(certificate=certificates / "server.pem", key=certificates / "server.key", client_ca=client_ca)


def client_context(certificates: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates / "ca.pem"))


def test_plain_is_offered_over_tls_and_logs_in(certificates: Path) -> None:
    with Broker(security=tls_security(certificates), users=ALICE) as broker:
        with RawClient(broker, tls=client_context(certificates)) as client:
            answer = client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
            assert (answer.error_code, answer.mechanisms[-1]) == (0, "PLAIN")
            done = client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0open sesame"})
            assert done.error_code == 0
            assert client.ask(Api.LIST_GROUPS).error_code == 0
        with RawClient(broker, tls=client_context(certificates)) as client:
            client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
            done = client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0wrong"})
            assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()


def test_whoever_guesses_passwords_does_not_keep_others_records_from_the_disk(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: 400 strangers that guessed at once held up every acknowledged record for four seconds. Cause: passwords
    were tried in the threads that syncs run in, and the syncs came last. Invariant: whoever is not logged in keeps
    nothing from the disk."""
    gate, begun = threading.Event(), threading.Event()
    with (
        Broker(security=tls_security(certificates), users=ALICE, data=tmp_path / "data", flush="always") as broker,
        RawClient(broker, tls=client_context(certificates)) as alice,
        contextlib.ExitStack() as strangers,
    ):
        broker.topics.create("orders", 1)
        alice.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        assert alice.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0open sesame"}).error_code == 0

        def slow(*_: object) -> bool:
            begun.set()
            return gate.wait(PATIENCE_S) and False

        monkeypatch.setattr(sasl, "password_is_right", slow)
        guessing = []
        for _ in range((os.cpu_count() or 1) + 6):
            stranger = strangers.enter_context(RawClient(broker, tls=client_context(certificates)))
            stranger.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
            stranger.send(stranger.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0wrong"}))
            guessing.append(stranger)
        try:
            assert begun.wait(PATIENCE_S)
            produced = alice.produce("orders", [b"a"])
        finally:
            gate.set()
        assert produced is not None
        assert produced.topics[0].partitions[0].error == 0
        for stranger in guessing:
            stranger.receive()
            assert stranger.is_closed()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")  # Python warns whoever asks for it
def test_tls_before_1_2_is_refused(certificates: Path) -> None:
    context = client_context(certificates)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with Broker(security=tls_security(certificates)) as broker, pytest.raises(ssl.SSLError):
        RawClient(broker, tls=context)


def test_a_client_without_a_certificate_is_refused_where_one_is_required(certificates: Path) -> None:
    security = tls_security(certificates, client_ca=certificates / "ca.pem")
    with Broker(security=security) as broker:
        # TLS 1.3 lets a client believe that all is well until it reads.
        with RawClient(broker, tls=client_context(certificates)) as stranger, pytest.raises((ssl.SSLError, Closed)):
            stranger.ask(Api.API_VERSIONS, version=0)
        context = client_context(certificates)
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        with RawClient(broker, tls=context) as known:
            assert known.ask(Api.API_VERSIONS, version=0).error_code == 0


def test_plain_text_to_a_tls_port_disturbs_nobody(certificates: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(security=tls_security(certificates)) as broker:
        with RawClient(broker) as clumsy:
            clumsy.send(clumsy.request(Api.API_VERSIONS, 0, {}))
            assert clumsy.is_closed()
        with RawClient(broker, tls=client_context(certificates)) as client:
            assert client.ask(Api.API_VERSIONS, version=0).error_code == 0
    told = [record.getMessage() for record in caplog.records]
    assert told == ["127.0.0.1: connection closed: this listener speaks TLS, and its client does not"]


def test_a_client_that_leaves_in_the_hand_shake_is_told_in_words(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log had the name of a Python exception."""
    with Broker(security=tls_security(certificates)) as broker:
        with pytest.raises(ssl.SSLCertVerificationError):
            RawClient(broker, tls=ssl.create_default_context())  # trusts others
        with RawClient(broker, tls=client_context(certificates)) as client:
            assert client.ask(Api.API_VERSIONS, version=0).error_code == 0
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("127.0.0.1: connection closed: ") and "Error" not in told
    assert "hand-shake" in told or "TLS failed" in told


def test_tls_to_a_plaintext_port_is_told_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """The log said "A frame of 369295617 bytes was announced": the first bytes of a TLS hand-shake, read as a size."""
    with Broker() as broker, RawClient(broker) as clumsy:
        clumsy.send(bytes.fromhex("16030100f5010000f1"))
        assert clumsy.is_closed()
    assert "(it looks like TLS)" in caplog.records[0].getMessage()


def test_a_tls_hand_shake_that_is_not_finished_is_given_up(certificates: Path) -> None:
    limits = Limits(frame_seconds=0.2)
    with (
        Broker(security=tls_security(certificates), limits=limits) as broker,
        socket.create_connection((broker.host, broker.port), timeout=20) as silent,
    ):
        assert silent.recv(1) == b""
        deadline = time.monotonic() + PATIENCE_S
        while broker.connections() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert broker.connections() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_an_address_beyond_loopback_needs_tls_and_a_login_or_insistence(host: str, certificates: Path) -> None:
    tls = tls_security(certificates)
    for security, users in ((Security(), False), (Security(), True), (tls, False)):
        with pytest.raises(HoldfastError, match="EXPOSED_WITHOUT_PROTECTION"):
            check_exposure(host, security, users=users)
    check_exposure(host, tls, users=True)
    check_exposure(host, Security(insecure=True), users=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_exposure(host, Security(), users=False)


# -- the real clients


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_confluent_kafka_logs_in_over_tls_and_works(certificates: Path, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer

    with Broker(security=tls_security(certificates), users=ALICE) as broker:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "open sesame",
        }
        producer = Producer(config)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        consumer.close()

    assert message is not None and message.value() == b"one"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
def test_kafka_python_logs_in_and_is_denied_what_it_may_not(broker: Broker) -> None:
    from kafka.consumer.group import KafkaConsumer
    from kafka.errors import KafkaError
    from kafka.producer.kafka import KafkaProducer

    config = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "wonderland",
    }
    producer = KafkaProducer(**config, max_block_ms=3_000)
    assert producer.send("own-1", b"x").get(PATIENCE_S).topic == "own-1"
    with pytest.raises(KafkaError):
        producer.send("seen", b"x").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "own-1", **config, group_id="own-g", auto_offset_reset="earliest", consumer_timeout_ms=9_000
    )
    assert next(iter(consumer)).topic == "own-1"
    consumer.close()


@pytest.mark.java
@pytest.mark.slow
def test_the_java_client_logs_in(broker: Broker, tmp_path: Path) -> None:
    from holdfast.testing.tools import TOPICS, run_tool

    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="bob" password="wonderland";\n'
    )

    listed = run_tool(TOPICS, ["--list", "--command-config", str(settings)], broker.bootstrap).stdout.split()

    assert listed == ["own-1", "seen"]
