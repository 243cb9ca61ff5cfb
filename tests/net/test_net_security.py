"""Configuration, TLS and logins; nothing that is printed holds a secret."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from net_server import Handler, ScriptedBroker, Talk

from holdfast.model import HoldfastError
from holdfast.net import connection as connection_module
from holdfast.net.config import client_config, parse_bootstrap, parse_properties, read_properties
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.security import Secret, Security, security_from
from holdfast.wire import codec, sasl, scram
from holdfast.wire.api import Api
from holdfast.wire.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_response,
)

HERE = Path(__file__).parent / "certificates"
PASSWORD = "hush-hush"
TLS = {"security.protocol": "SSL", "ssl.ca.location": str(HERE / "ca.pem")}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


# -- configuration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a , [::1]:9093,", (("a", 9092), ("::1", 9093))),
        ("PLAINTEXT://a:1", (("a", 1),)),
        (["a:1", "b"], (("a", 1), ("b", 9092))),
    ],
)
def test_bootstrap_servers_are_read(text: Any, expected: Any) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a:x", ":1", "a:0", "a:70000", "a:1:2", "a:٣"])
def test_bootstrap_servers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match="BOOTSTRAP_INVALID"):
        parse_bootstrap(text)


def test_a_configuration_without_servers_says_what_to_set() -> None:
    with pytest.raises(HoldfastError, match=r"BOOTSTRAP_MISSING.*bootstrap\.servers"):
        client_config({})


def test_times_are_kafkas_keys_in_milliseconds() -> None:
    config = client_config({"bootstrap.servers": "a", "request.timeout.ms": "1500", "retry.backoff.ms": 50})
    assert (config.request_timeout_s, config.backoff_s, config.lookup_timeout_s) == (1.5, 0.05, 60.0)
    for wrong in ("soon", -1, float("inf")):
        with pytest.raises(HoldfastError, match=r"CONFIG_INVALID.*request\.timeout\.ms"):
            client_config({"bootstrap.servers": "a", "request.timeout.ms": wrong})


def test_properties_are_read_as_kafkas_tools_read_them(tmp_path: Path) -> None:
    text = '# comment\n! too\n\nbootstrap.servers = a:1, \\\n   b:2\nsasl.jaas.config=x y="z" ;\nempty=\na:b\nflag\n'
    expected = {"bootstrap.servers": "a:1, b:2", "sasl.jaas.config": 'x y="z" ;', "empty": "", "a": "b", "flag": ""}
    assert parse_properties(text) == expected
    file = tmp_path / "client.properties"
    file.write_text(text)
    assert read_properties(file) == expected
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(HoldfastError, match="CONFIG_UNREADABLE"):
        read_properties(file)
    with pytest.raises(HoldfastError, match="CONFIG_UNREADABLE"):
        read_properties(tmp_path / "missing")


def test_verification_is_on_unless_the_user_says_otherwise() -> None:
    tls = security_from({"security.protocol": "ssl"}).tls
    assert tls is not None
    context = tls.context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    tls = security_from({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).tls
    assert tls is not None
    assert (tls.context().verify_mode, tls.context().check_hostname) == (ssl.CERT_REQUIRED, False)
    tls = security_from({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}).tls
    assert tls is not None
    assert (tls.context().verify_mode, tls.context().check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"security.protocol": "TLS"}, "SECURITY_PROTOCOL_UNKNOWN"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "TLS_CONFIG_INVALID"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "dns"}, "TLS_CONFIG_INVALID"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"}, "CONFIG_INVALID"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "SASL_MECHANISM_UNKNOWN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "SASL_LOGIN_MISSING"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "SASL_LOGIN_MISSING"),
    ],
)
def test_settings_that_can_not_work_are_refused_at_once(config: dict[str, str], code: str) -> None:
    with pytest.raises(HoldfastError, match=code):
        security_from(config)


@pytest.mark.parametrize(
    "config",
    [
        {"ssl.ca.location": "/nowhere"},
        {"ssl.ca.pem": "not a certificate"},
        {"ssl.certificate.location": str(HERE / "client.pem"), "ssl.key.location": str(HERE / "broker.key")},
        {
            "ssl.certificate.location": str(HERE / "client.pem"),
            "ssl.key.location": str(HERE / "client-locked.key"),
            "ssl.key.password": "wrong",
        },
        {"ssl.certificate.location": str(HERE / "client.pem"), "ssl.key.location": str(HERE / "client-locked.key")},
    ],
)
def test_certificates_that_do_not_fit_are_told_without_asking_on_the_terminal(config: dict[str, str]) -> None:
    tls = security_from({"security.protocol": "SSL"} | config).tls
    assert tls is not None
    with pytest.raises(HoldfastError, match="TLS_CONFIG_INVALID"):
        tls.context()


def test_user_and_password_may_come_in_javas_form() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="p=1;";'
    found = security_from({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": line}).sasl
    assert found is not None
    assert (found.user, found.password.reveal()) == ('al"ice', "p=1;")


def test_nothing_that_is_printed_holds_a_secret() -> None:
    key = (HERE / "client.key").read_text()
    config = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.key.pem": key,
        "ssl.key.password": PASSWORD,
    }
    printed = repr(client_config(config))
    assert "alice" in printed
    assert PASSWORD not in printed
    assert key.splitlines()[1] not in printed
    assert PASSWORD not in f"{Secret(PASSWORD)} {Secret(PASSWORD)!r}"


# -- TLS


def server_context(*, client_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / "broker.pem", HERE / "broker.key")
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(HERE / "ca.pem")
    return context


async def beat(connection: Connection, generation: int = 1) -> int:
    body = {"group_id": "g", "generation_id": generation, "member_id": "m"}
    return int((await connection.request(Api.HEARTBEAT, body, timeout_s=30)).error_code)


async def echo(talk: Talk, request: codec.RequestFrame) -> Any:
    return {"error_code": request.body.generation_id}


@pytest.mark.parametrize("inline", [False, True])
def test_a_connection_over_tls_with_a_client_certificate(inline: bool) -> None:
    if inline:
        config = {
            "security.protocol": "SSL",
            "ssl.ca.pem": (HERE / "ca.pem").read_text(),
            "ssl.certificate.pem": (HERE / "client.pem").read_text(),
            "ssl.key.pem": (HERE / "client.key").read_text(),
        }
    else:
        config = TLS | {
            "ssl.certificate.location": str(HERE / "client.pem"),
            "ssl.key.location": str(HERE / "client-locked.key"),
            "ssl.key.password": "open-sesame",
        }

    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: echo}, tls=server_context(client_certificates=True)) as broker:
            connection = await Connection.open("127.0.0.1", broker.port, security=security_from(config))
            assert await asyncio.gather(*(beat(connection, n) for n in range(50))) == list(range(50))
            await connection.close()

    run(scene())


def test_large_answers_come_whole_through_tls() -> None:
    """asyncio hands decrypted bytes to buffered protocols in another rhythm than bytes of a plain socket."""
    records = bytes(range(256)) * 8_000

    async def fetched(talk: Talk, request: codec.RequestFrame) -> Any:
        partition = FetchedPartition(partition=0, records=(records,))
        answer = FetchResponse(topics=(FetchedTopic(topic="t", partitions=(partition,)),))
        parts = encode_fetch_response(request.version, request.correlation_id, answer)
        await talk.write(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]

    async def scene() -> None:
        async with ScriptedBroker({Api.FETCH: fetched, Api.HEARTBEAT: echo}, tls=server_context()) as broker:
            connection = await Connection.open("localhost", broker.port, security=security_from(TLS))
            asked = FetchRequest(topics=(FetchTopic(topic="t"),))
            answers = await asyncio.gather(
                beat(connection, 1), *(connection.fetch(asked, timeout_s=30) for _ in range(3)), beat(connection, 2)
            )
            assert (answers[0], answers[4]) == (1, 2)
            for answer in answers[1:4]:
                assert isinstance(answer, FetchResponse)
                assert answer.topics[0].partitions[0].records == (records,)
            await connection.close()

    run(scene())


@pytest.mark.parametrize(
    ("host", "config"),
    [
        ("127.0.0.1", {"security.protocol": "SSL", "ssl.ca.location": str(HERE / "client.pem")}),
        ("127.0.0.2", TLS),
    ],
    ids=["an authority we don't trust", "a name that is not the broker's"],
)
def test_a_broker_that_can_not_prove_who_it_is_is_refused(host: str, config: dict[str, str]) -> None:
    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: echo}, tls=server_context(), host=host) as broker:
            with pytest.raises(NetError, match="TLS_FAILED") as failed:
                await Connection.open(host, broker.port, security=security_from(config))
            assert not failed.value.retriable

    run(scene())


def test_a_listener_that_does_not_speak_tls_is_told() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            with pytest.raises(NetError):
                await Connection.open("127.0.0.1", broker.port, security=security_from(TLS), timeout_s=5)

    run(scene())


# -- logins


def login_config(mechanism: str, password: str = PASSWORD) -> Security:
    return security_from(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )


class Door:
    """The broker's side of a login, one conversation after the other."""

    def __init__(self, converse: Callable[[], Callable[[bytes], bytes]], *, lifetime_ms: int = 0) -> None:
        self._start = converse
        self._converse = converse()
        self.lifetime_ms = lifetime_ms
        self.logins = 0

    def handlers(self) -> dict[Api, Handler]:
        return {Api.SASL_HANDSHAKE: self._handshake, Api.SASL_AUTHENTICATE: self._message, Api.HEARTBEAT: echo}

    async def _handshake(self, talk: Talk, request: codec.RequestFrame) -> Any:
        known = [*scram.MECHANISMS, "PLAIN", "OAUTHBEARER"]
        if request.body.mechanism not in known:
            return {"error_code": 33, "mechanisms": known}
        self.logins += 1
        self._converse = self._start()
        return {"error_code": 0, "mechanisms": known}

    async def _message(self, talk: Talk, request: codec.RequestFrame) -> Any:
        try:
            said = self._converse(request.body.auth_bytes)
        except HoldfastError:
            return {"error_code": 58, "error_message": "Authentication failed: Invalid username or password"}
        return {"auth_bytes": said, "session_lifetime_ms": self.lifetime_ms}


def scram_door(mechanism: str, *, false_signature: bool = False) -> Callable[[], Callable[[bytes], bytes]]:
    users = {"alice": scram.make_credential(mechanism, PASSWORD, salt=b"12345678")}

    def start() -> Callable[[bytes], bytes]:
        server = scram.ScramServer(mechanism, users.get, "nonce-of-the-server", fake_key=b"k")
        both: list[Callable[[bytes], bytes]] = [server.challenge, lambda response: server.verify(response)[1]]
        steps = iter(both)

        def converse(message: bytes) -> bytes:
            said = next(steps)(message)
            return b"v=" + b"A" * 44 if false_signature and said.startswith(b"v=") else said

        return converse

    return start


def plain_door() -> Callable[[bytes], bytes]:
    def converse(message: bytes) -> bytes:
        if sasl.read_plain(message) != sasl.PlainLogin("alice", PASSWORD):
            raise HoldfastError("NO", "no.", "no.")
        return b""

    return converse


@pytest.mark.parametrize("mechanism", ["PLAIN", *sorted(scram.MECHANISMS)])
def test_a_login_opens_the_connection(mechanism: str) -> None:
    door = Door(plain_door if mechanism == "PLAIN" else scram_door(mechanism))

    async def scene() -> None:
        async with ScriptedBroker(door.handlers()) as broker:
            connection = await Connection.open("127.0.0.1", broker.port, security=login_config(mechanism))
            assert await beat(connection, 5) == 5
            await connection.close()

    run(scene())
    assert door.logins == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", *sorted(scram.MECHANISMS)])
def test_a_wrong_password_is_not_retriable_and_not_printed(mechanism: str) -> None:
    door = Door(plain_door if mechanism == "PLAIN" else scram_door(mechanism))

    async def scene() -> None:
        async with ScriptedBroker(door.handlers()) as broker:
            with pytest.raises(NetError, match="AUTHENTICATION_FAILED") as failed:
                await Connection.open("127.0.0.1", broker.port, security=login_config(mechanism, "wrong-but-secret"))
            assert not failed.value.retriable
            assert "wrong-but-secret" not in str(failed.value)

    run(scene())


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    door = Door(scram_door("SCRAM-SHA-256", false_signature=True))

    async def scene() -> None:
        async with ScriptedBroker(door.handlers()) as broker:
            with pytest.raises(NetError, match=r"AUTHENTICATION_FAILED.*does not know the password"):
                await Connection.open("127.0.0.1", broker.port, security=login_config("SCRAM-SHA-256"))

    run(scene())


def test_a_mechanism_the_broker_does_not_take_is_told_with_those_it_does() -> None:
    async def refuse(talk: Talk, request: codec.RequestFrame) -> Any:
        return {"error_code": 33, "mechanisms": ["OAUTHBEARER"]}

    async def scene() -> None:
        async with ScriptedBroker({Api.SASL_HANDSHAKE: refuse}) as broker:
            with pytest.raises(NetError, match="does not take PLAIN; it offers OAUTHBEARER"):
                await Connection.open("127.0.0.1", broker.port, security=login_config("PLAIN"))

    run(scene())


def oauth_config(callback: Callable[[str], tuple[Any, ...]]) -> Security:
    return security_from(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": callback,
            "sasl.oauthbearer.config": "scope=x",
        }
    )


def test_tokens_come_from_the_callback_with_their_extensions() -> None:
    seen: list[Any] = []

    def callback(argument: str) -> tuple[Any, ...]:
        seen.append(argument)
        return "to.ken", 0.0, "alice", {"tenant": "t"}

    def door() -> Callable[[bytes], bytes]:
        def converse(message: bytes) -> bytes:
            seen.append(sasl.read_oauth(message))
            return b""

        return converse

    async def scene() -> None:
        async with ScriptedBroker(Door(door).handlers()) as broker:
            connection = await Connection.open("127.0.0.1", broker.port, security=oauth_config(callback))
            await connection.close()

    run(scene())
    assert seen == ["scope=x", sasl.OauthLogin("to.ken", {"tenant": "t"})]


def test_a_token_the_broker_does_not_accept_fails_closed() -> None:
    heard: list[bytes] = []

    def door() -> Callable[[bytes], bytes]:
        def converse(message: bytes) -> bytes:
            heard.append(message)
            return b'{"status":"invalid_token"}'

        return converse

    async def scene() -> None:
        async with ScriptedBroker(Door(door).handlers()) as broker:
            with pytest.raises(NetError, match="did not accept the token") as failed:
                await Connection.open("127.0.0.1", broker.port, security=oauth_config(lambda _: ("se.cret", 0)))
            assert "se.cret" not in str(failed.value)

    run(scene())
    assert heard[-1] == sasl.OAUTH_ABORT


def test_a_callback_that_raises_is_named_without_its_words() -> None:
    def callback(argument: str) -> tuple[Any, ...]:
        raise RuntimeError("token abc.def expired")

    async def scene() -> None:
        async with ScriptedBroker(Door(plain_door).handlers()) as broker:
            with pytest.raises(NetError, match="oauth_cb raised RuntimeError") as failed:
                await Connection.open("127.0.0.1", broker.port, security=oauth_config(callback))
            assert "abc.def" not in str(failed.value)
            assert failed.value.retriable

    run(scene())


@contextlib.contextmanager
def nearly_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session that begins in here is due to be renewed at once, however long it lasts."""
    with monkeypatch.context() as hurry:
        hurry.setattr(connection_module, "REAUTHENTICATE_AT", 0.0)
        hurry.setattr(connection_module, "LEAST_SESSION_S", 0.0)
        yield


def test_a_session_that_ends_is_renewed_before_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-368. Nothing may come between the messages of a login: the broker would take it for one of them."""
    door = Door(scram_door("SCRAM-SHA-256"), lifetime_ms=3_600_000)

    async def scene() -> None:
        async with ScriptedBroker(door.handlers()) as broker:
            with nearly_over(monkeypatch):
                connection = await Connection.open("127.0.0.1", broker.port, security=login_config("SCRAM-SHA-256"))
            assert door.logins == 1
            assert await asyncio.gather(*(beat(connection, n) for n in range(100))) == list(range(100))
            assert door.logins == 2
            apis = [asked.api for asked in broker.asked]
            second = len(apis) - 1 - apis[::-1].index(Api.SASL_HANDSHAKE)
            assert apis[second : second + 3] == [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.SASL_AUTHENTICATE]
            assert set(apis[second + 3 :]) == {Api.HEARTBEAT}
            assert await beat(connection, 1) == 1
            assert door.logins == 2, "an hour has not passed"
            await connection.close()

    run(scene())


def test_a_login_given_up_halfway_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(scram_door("SCRAM-SHA-256"), lifetime_ms=3_600_000)

    async def scene() -> None:
        async with ScriptedBroker(door.handlers()) as broker:
            with nearly_over(monkeypatch):
                connection = await Connection.open("127.0.0.1", broker.port, security=login_config("SCRAM-SHA-256"))

            async def never(talk: Talk, request: codec.RequestFrame) -> Any:
                return None

            broker.handlers[Api.SASL_AUTHENTICATE] = never
            with pytest.raises(NetError, match="REQUEST_TIMED_OUT"):
                await connection.request(Api.HEARTBEAT, {}, timeout_s=0.02)
            assert connection.closed
            await connection.close()

    run(scene())
