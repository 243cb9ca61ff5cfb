"""Keys of librdkafka's that half of our connections passed over: keystores, revoked certificates, ciphers, curves, the
address family, and tokens from an identity provider.

The data plane is librdkafka and heeded them, the control plane and the watchdog are ours and did not: a consumer could
fetch, and not join; or the other way round it trusted a certificate that its user had revoked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from net_server import ScriptedBroker

from holdfast.client.watchdog.guard import tls_settings
from holdfast.model import HoldfastError
from holdfast.net.config import client_config
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.security import Login, Secret, Tls, security_from

HERE = Path(__file__).parent / "certificates"
STORE_PASSWORD = "store-hush"
CA_CONFIG = """
[ca]
default_ca = authority
[authority]
database = index.txt
serial = serial
default_md = sha256
default_crl_days = 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate that it revoked, and the client's of this folder as a keystore."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True, timeout=60)

    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    openssl(f"req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    openssl(f"req {key} -subj /CN=server -keyout server.key -out server.csr")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem"
    )
    (folder / "ca.cnf").write_text(CA_CONFIG)
    (folder / "index.txt").touch()
    openssl("ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out nobody.crl")
    openssl("ca -config ca.cnf -revoke server.pem -keyfile ca.key -cert ca.pem")
    openssl("ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out server.crl")
    openssl(
        f"pkcs12 -export -in {HERE / 'client.pem'} -inkey {HERE / 'client.key'} -certfile {HERE / 'ca.pem'} "
        f"-out client.p12 -passout pass:{STORE_PASSWORD}"
    )
    return folder


def opened(settings: dict[str, Any], tls: ssl.SSLContext) -> str | None:
    """Connect to a server with this context, and return the cipher that was agreed on."""

    async def scene() -> str | None:
        async with ScriptedBroker(tls=tls) as broker:
            security = security_from({"security.protocol": "SSL", **settings})
            connection = await Connection.open("127.0.0.1", broker.port, security=security, timeout_s=30)
            await connection.close()
            return None if broker.cipher is None else broker.cipher[0]

    return asyncio.run(asyncio.wait_for(scene(), 60))


def server(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


# -- TLS


def test_a_keystore_proves_who_we_are(made: Path) -> None:
    """Python's ssl module can't read PKCS#12, and the key was taken for a PEM file or refused."""
    context = server(HERE / "broker.pem", HERE / "broker.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(HERE / "ca.pem")
    keys = {"ssl.ca.location": str(HERE / "ca.pem"), "ssl.keystore.location": str(made / "client.p12")}
    assert opened({**keys, "ssl.keystore.password": STORE_PASSWORD}, context)


def test_a_keystore_that_can_not_be_opened_says_what_to_do_and_no_secret(made: Path, tmp_path: Path) -> None:
    java = tmp_path / "client.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed" + b"x" * 100)
    cases = {
        "can't be opened as PKCS#12. Check ssl.keystore.password": (made / "client.p12", "wrong-hush"),
        "is a JKS keystore": (java, "wrong-hush"),
        "can't be read": (tmp_path / "nowhere", "wrong-hush"),
    }
    for what, (location, password) in cases.items():
        settings = {"ssl.keystore.location": str(location), "ssl.keystore.password": password}
        with pytest.raises(HoldfastError, match=what) as refused:
            security_from({"security.protocol": "SSL", **settings})
        assert "wrong-hush" not in str(refused.value)
    with pytest.raises(HoldfastError, match=r"without ssl\.keystore\.password"):
        security_from({"security.protocol": "SSL", "ssl.keystore.location": str(made / "client.p12")})


def test_a_broker_whose_certificate_was_revoked_is_refused(made: Path) -> None:
    keys = {"ssl.ca.location": str(made / "ca.pem")}
    assert opened(
        {**keys, "ssl.crl.location": str(made / "nobody.crl")}, server(made / "server.pem", made / "server.key")
    )
    with pytest.raises(NetError, match=r"TLS_FAILED.*revoked"):
        opened({**keys, "ssl.crl.location": str(made / "server.crl")}, server(made / "server.pem", made / "server.key"))


def test_ciphers_and_a_curve_are_what_was_asked_for() -> None:
    context = server(HERE / "broker.pem", HERE / "broker.key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the list is for 1.2; 1.3 has its own
    keys = {"ssl.ca.location": str(HERE / "ca.pem"), "ssl.cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert opened({**keys, "ssl.curves.list": "P-256"}, context) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    context.set_ecdh_curve("prime256v1")
    with pytest.raises(NetError):
        opened({**keys, "ssl.curves.list": "P-384"}, context)
    for wrong in (
        {"ssl.cipher.suites": "NONSENSE"},
        {"ssl.curves.list": "nonsense"},
        {"ssl.curves.list": "P-256:P-384"},
    ):
        with pytest.raises(HoldfastError, match="TLS_CONFIG_INVALID"):
            opened(wrong, context)


@pytest.mark.parametrize("key", ["ssl.sigalgs.list", "ssl.engine.location", "ssl.providers"])
def test_what_only_half_of_our_connections_would_heed_is_refused(key: str) -> None:
    with pytest.raises(HoldfastError, match=f"{key} is set"):
        security_from({"security.protocol": "SSL", key: "x"})
    assert security_from({key: "x"}).tls is None, "without TLS it means nothing"


def test_the_watchdog_gets_every_setting_of_tls_through_its_pipe() -> None:
    """It builds the context from these fields; one that is no plain value would end it when it is needed."""
    tls = Tls(key_password=Secret("x"), crl_location="crl", ciphers="c", curve="d")
    told = tls_settings(security_from({"security.protocol": "SSL"})) or {}
    assert set(told) == set(Tls.__dataclass_fields__)
    assert json.loads(json.dumps(told)) == told
    assert (tls.crl_location, tls.ciphers, tls.curve) == ("crl", "c", "d")


# -- addresses


@pytest.mark.parametrize(
    ("name", "family"), [("any", socket.AF_UNSPEC), ("v4", socket.AF_INET), ("v6", socket.AF_INET6)]
)
def test_the_address_family_is_the_one_that_was_asked_for(name: str, family: int) -> None:
    assert client_config({"bootstrap.servers": "a:1", "broker.address.family": name}).family == family


def test_an_address_of_the_other_family_is_not_tried() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            connection = await Connection.open("127.0.0.1", broker.port, family=socket.AF_INET)
            await connection.close()
            with pytest.raises(NetError, match="CONNECTION_FAILED"):
                await Connection.open("127.0.0.1", broker.port, family=socket.AF_INET6)

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_an_unknown_address_family_is_refused() -> None:
    with pytest.raises(HoldfastError, match=r"broker\.address\.family is 'v5'"):
        client_config({"bootstrap.servers": "a:1", "broker.address.family": "v5"})


# -- logins


def test_a_login_that_is_changed_is_the_one_of_the_next_connection() -> None:
    security = security_from(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    )
    assert security.sasl is not None
    alike = Login("a", "b")
    assert security.sasl.login == alike and hash(security.sasl.login) == hash(alike)
    security.sasl.login.change("c", "d")
    assert (security.sasl.user, security.sasl.password) == ("c", Secret("d"))
    assert security.sasl.login == alike, "what shares a connection must not change its place in a table"


def jwt(claims: dict[str, Any]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.signature"


class Provider(ThreadingHTTPServer):
    """An identity provider on loopback: answers with `answer`, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Ask)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: Callable[[], dict[str, Any]] = dict
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class _Ask(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider = self.server
        assert isinstance(provider, Provider)
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        provider.asked.append((self.headers["Authorization"], form))
        content = json.dumps(provider.answer()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running
        running.shutdown()


def oidc(provider: Provider, **more: str) -> Callable[[], tuple[Any, ...]]:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.token.endpoint.url": provider.url,
    }
    sasl = security_from({**settings, **more}).sasl
    assert sasl is not None and sasl.token is not None
    return sasl.token


def test_an_identity_provider_is_asked_for_a_token(provider: Provider) -> None:
    """`sasl.oauthbearer.method=oidc` was refused for want of an oauth_cb, which nobody needs who has a provider."""
    ends = time.time() + 3_600
    provider.answer = lambda: {"access_token": jwt({"sub": "orders", "exp": ends})}
    more = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=p"}
    ask = oidc(provider, **more)
    token, until, whose, extensions = ask()
    assert (token, until, whose) == (jwt({"sub": "orders", "exp": ends}), ends, "orders")
    assert extensions == {"logicalCluster": "lkc-1", "pool": "p"}
    login = base64.b64encode(b"orders:hush").decode()
    assert provider.asked == [(f"Basic {login}", {"grant_type": ["client_credentials"], "scope": ["kafka"]})]
    assert ask()[0] == token
    assert len(provider.asked) == 1, "a token is kept as long as it lasts, not asked for with every connection"


def test_a_token_that_nears_its_end_is_not_used_again(provider: Provider) -> None:
    provider.answer = lambda: {"access_token": f"opaque-{len(provider.asked)}", "expires_in": 0}
    ask = oidc(provider)
    assert [ask()[0], ask()[0]] == ["opaque-1", "opaque-2"]


def test_what_a_provider_can_not_be_asked_for_is_refused(provider: Provider) -> None:
    for more, what in (
        ({"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "Use client_credentials"),
        ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, "Use none"),
        ({"sasl.oauthbearer.client.secret": ""}, r"OIDC needs sasl\.oauthbearer\.client\.secret"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "not an http or https address"),
        ({"sasl.oauthbearer.method": "magic"}, "Use default or oidc"),
    ):
        with pytest.raises(HoldfastError, match=what) as refused:
            oidc(provider, **more)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize("yes", ["true", "1", "t", "on", "yes", True])
def test_a_token_that_nobody_signed_is_made_for_development(yes: object) -> None:
    """Symptom: with `=on` in a command's properties file, a source of tokens was missed. Cause: this setting had words
    for "true" of its own. Rule: all settings have the same (`as_boolean`)."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": yes,
        "sasl.oauthbearer.config": "principal=admin scope=a,b lifeSeconds=60 extension_pool=p",
    }
    sasl = security_from(settings).sasl
    assert sasl is not None and sasl.token is not None
    token, until, whose, extensions = sasl.token()
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["sub"], claims["scope"], claims["exp"]) == ("admin", ["a", "b"], pytest.approx(until))
    assert (whose, extensions, token.count(".")) == ("admin", {"pool": "p"}, 2)
