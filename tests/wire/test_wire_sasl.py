"""SCRAM's two ends against the RFCs' examples and against each other; PLAIN and OAUTHBEARER."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from holdfast.wire import sasl, scram
from holdfast.wire.errors import MalformedFrame

KEY = b"a secret of the server's"

# RFC 7677, section 3
USER, PASSWORD, CLIENT_NONCE, SERVER_NONCE = "user", "pencil", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RESPONSE = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256", user: str = USER) -> scram.ScramClient:
    return scram.ScramClient(mechanism, user, password, CLIENT_NONCE)


def server(
    find: Callable[[str], scram.ScramCredential | None] | None = None, mechanism: str = "SCRAM-SHA-256"
) -> scram.ScramServer:
    credential = scram.make_credential(mechanism, PASSWORD, salt=SALT)
    users = {USER: credential}
    return scram.ScramServer(mechanism, find or users.get, SERVER_NONCE, fake_key=KEY)


def test_the_client_says_what_rfc_7677_says() -> None:
    one = client()
    assert one.first() == FIRST
    assert one.respond(CHALLENGE) == RESPONSE
    one.finish(FINAL)


def test_the_server_says_what_rfc_7677_says() -> None:
    one = server()
    assert one.challenge(FIRST) == CHALLENGE
    assert one.verify(RESPONSE) == (USER, FINAL)


def test_the_arithmetic_is_rfc_5802s(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 5802's example is SHA-1, which Kafka does not offer: for this test only, as a mechanism of its own."""
    monkeypatch.setitem(scram.MECHANISMS, "SCRAM-SHA-1", "sha1")
    one = scram.ScramClient("SCRAM-SHA-1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    assert one.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    assert one.respond(challenge) == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    one.finish(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


@pytest.mark.parametrize("mechanism", sorted(scram.MECHANISMS))
@pytest.mark.parametrize("user", ["user", "a,b=c", "=2C", "jörg"])
def test_both_ends_understand_each_other(mechanism: str, user: str) -> None:
    credential = scram.make_credential(mechanism, "pass,word=", salt=b"12345678", iterations=5_000)
    there = scram.ScramServer(mechanism, {user: credential}.get, SERVER_NONCE, fake_key=KEY)
    here = scram.ScramClient(mechanism, user, "pass,word=", CLIENT_NONCE)
    name, final = there.verify(here.respond(there.challenge(here.first())))
    here.finish(final)
    assert name == user


def test_a_wrong_password_is_refused_without_saying_what_was_wrong() -> None:
    here, there = client("pencils"), server()
    response = here.respond(there.challenge(here.first()))
    with pytest.raises(scram.ScramError, match="Unknown user or wrong password") as wrong_password:
        there.verify(response)
    here, there = client(user="nobody"), server()
    response = here.respond(there.challenge(here.first()))
    with pytest.raises(scram.ScramError) as unknown_user:
        there.verify(response)
    assert str(wrong_password.value) == str(unknown_user.value)


def test_an_unknown_user_gets_a_salt_that_stays_the_same() -> None:
    first = b"n,,n=nobody,r=x"
    assert server().challenge(first) == server().challenge(first)
    assert server().challenge(first) != server().challenge(b"n,,n=nobody2,r=x")


def test_a_credential_of_another_mechanism_is_no_credential() -> None:
    other = scram.make_credential("SCRAM-SHA-512", PASSWORD, salt=SALT)
    here, there = client(), server(lambda user: other)
    with pytest.raises(scram.ScramError, match="Unknown user"):
        there.verify(here.respond(there.challenge(here.first())))


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    one = client()
    one.respond(CHALLENGE)
    with pytest.raises(scram.ScramError, match="does not know the password"):
        one.finish(b"v=" + base64.b64encode(bytes(32)))


def test_a_final_message_before_the_challenge_proves_nothing() -> None:
    with pytest.raises(scram.ScramError):
        client().finish(b"v=")


@pytest.mark.parametrize("iterations", [0, 1, 4_095, 100_001, 999_999_999])
def test_iterations_outside_the_bounds_are_refused_on_both_sides(iterations: int) -> None:
    challenge = CHALLENGE.replace(b"4096", str(iterations).encode())
    with pytest.raises(scram.ScramError, match="iterations"):
        client().respond(challenge)
    with pytest.raises(scram.ScramError, match="iterations"):
        scram.make_credential("SCRAM-SHA-256", "x", salt=SALT, iterations=iterations)
    weak = scram.ScramCredential(
        mechanism="SCRAM-SHA-256", salt=SALT, iterations=iterations, stored_key=b"", server_key=b""
    )
    with pytest.raises(scram.ScramError, match="iterations"):
        server(lambda user: weak).challenge(FIRST)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"rOprNG", b"xOprNG"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"i=4096", b"i=4e3"),
        CHALLENGE.replace(b"i=4096", "i=٤٠٩٦".encode()),
        CHALLENGE.replace(b"s=W22", b"s=!22"),
        b"m=ext," + CHALLENGE,
        CHALLENGE[:30],
        b"",
        b"\xff",
        b"r=" + b"x" * 9_000,
    ],
)
def test_a_challenge_that_is_not_one_is_refused(challenge: bytes) -> None:
    with pytest.raises(scram.ScramError):
        client().respond(challenge)


@pytest.mark.parametrize(
    "response",
    [
        RESPONSE.replace(b"hNlF$k0,", b"hNlF$k0x,"),
        RESPONSE.replace(b"hNlF$k0,", b"hNlF$k,"),
        RESPONSE.replace(b"biws", b"eSws"),
        RESPONSE.replace(b"p=dHzb", b"p="),
        RESPONSE[:-4],
        b"",
        b"c=biws",
        b"\xff",
    ],
)
def test_a_response_that_differs_in_anything_is_refused(response: bytes) -> None:
    one = server()
    one.challenge(FIRST)
    with pytest.raises(scram.ScramError):
        one.verify(response)


@pytest.mark.parametrize(
    "first", [b"", b"y,,n=user,r=x", b"n,a=admin,n=user,r=x", b"n,,r=x", b"n,,n=us=er,r=x", b"n,,n=user,r=", b"\xff"]
)
def test_a_first_message_that_is_not_one_is_refused(first: bytes) -> None:
    with pytest.raises(scram.ScramError):
        server().challenge(first)


def test_the_proof_comes_after_the_first_message() -> None:
    with pytest.raises(scram.ScramError):
        server().verify(RESPONSE)


def test_a_server_error_is_told() -> None:
    one = client()
    one.respond(CHALLENGE)
    with pytest.raises(scram.ScramError, match="refused"):
        one.finish(b"e=invalid-proof")


def test_nothing_that_is_printed_holds_a_secret() -> None:
    credential = scram.make_credential("SCRAM-SHA-256", PASSWORD, salt=SALT)
    printed = repr(credential) + repr(client()) + repr(sasl.PlainLogin("u", "geheim")) + repr(sasl.OauthLogin("geheim"))
    assert "stored_key" not in printed
    assert PASSWORD not in printed
    assert "geheim" not in printed


def test_plain_round_trip() -> None:
    login = sasl.PlainLogin("jörg", "p w")
    assert sasl.plain_message(login) == "\0jörg\0p w".encode()
    assert sasl.read_plain(sasl.plain_message(login)) == login
    assert sasl.read_plain(b"u\0u\0p") == sasl.PlainLogin("u", "p")


@pytest.mark.parametrize("content", [b"", b"u\0p", b"\0u\0p\0x", b"admin\0u\0p", b"\0\0p", b"\0u\0", b"\0\xff\0p"])
def test_plain_that_is_not_plain_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedFrame) as refused:
        sasl.read_plain(content)
    assert "admin" not in str(refused.value)


def test_oauth_round_trip() -> None:
    login = sasl.OauthLogin("abc.def", {"tenant": "x", "a": "b"})
    message = sasl.oauth_message(login)
    assert message == b"n,,\x01auth=Bearer abc.def\x01a=b\x01tenant=x\x01\x01"
    assert sasl.read_oauth(message) == login


@pytest.mark.parametrize(
    "content", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"auth=Bearer x", b"\xff", b"n,,\x01auth=Bearer x"]
)
def test_oauth_that_is_not_oauth_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedFrame):
        sasl.read_oauth(content)
