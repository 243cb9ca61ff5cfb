"""The page's server: what it answers, what it refuses, and that nothing gets in from elsewhere."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.sim.ready import SCENES
from holdfast.ui.app import MAX_BODY_BYTES, STATIC, TOKEN_HEADER, page
from patience import PATIENCE_S

TOKEN = "the-token-of-the-link"
HOST = "127.0.0.1:8642"
Got = tuple[int, dict[str, str], bytes]


def call(
    method: str, path: str, *, body: Any = None, token: str | None = TOKEN, host: str = HOST, raw: bytes | None = None
) -> Got:
    """One request to the application, without a socket."""
    sent: list[Any] = []
    headers = [(b"host", host.encode())]
    if token is not None:
        headers.append((TOKEN_HEADER.encode(), token.encode()))
    content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }

    asked = 0

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        if asked > 1:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(page(TOKEN)(scope, receive, send))
    start = next(message for message in sent if message["type"] == "http.response.start")
    text = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, text


def answer(path: str, **body: Any) -> Any:
    status, _, text = call("POST", path, body=body)
    assert status == 200, text
    return json.loads(text)


def test_the_page_and_its_files_are_served_under_a_strict_policy() -> None:
    for path in ("/", "/static/main.js", "/static/style.css", "/api/scenes", "/nowhere"):
        _, headers, _ = call("GET", path, token=None)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_no_file_has_an_inline_script_or_asks_anybody_else() -> None:
    html = (STATIC / "index.html").read_text()
    assert "<script>" not in html and " on" not in "".join(p for p in html.split("<") if p.startswith("button"))
    assert "style=" not in html
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text, file.name
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "eval(" not in text, file.name


def test_every_module_that_is_imported_is_there() -> None:
    import re

    for file in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([a-z]+\.js)"', file.read_text()):
            assert (STATIC / name).is_file(), f"{file.name} imports {name}"


@pytest.mark.parametrize("path", ["/api/play", "/api/questions", "/api/what-if", "/api/plan", "/api/picture"])
def test_what_costs_work_needs_the_token_and_a_post(path: str) -> None:
    assert call("GET", path)[0] == 405
    for token in (None, "", "wrong", TOKEN + "x"):
        status, _, text = call("POST", path, body={"scene": "tick8"}, token=token)
        assert status == 403 and json.loads(text)["error"]["code"] == "BAD_TOKEN"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "192.168.0.1:8642"]
)
def test_a_name_that_somebody_points_at_us_is_refused(host: str) -> None:
    """A stranger's page in the same browser could give its own name our address, and then read what we answer."""
    status, _, text = call("GET", "/", host=host)
    assert status == 421 and json.loads(text)["error"]["code"] == "WRONG_HOST"


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:1", "[::1]:8642", "localhost"])
def test_loopback_names_are_answered(host: str) -> None:
    assert call("GET", "/", host=host)[0] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"scene": "nowhere"}, "UNKNOWN_SCENE"),
        ({"setup": {"members": "2001"}}, "BAD_SIZE"),
        ({"setup": {"members": "x"}}, "BAD_SETTING"),
        ({"setup": {"events": ",".join(f"create:t{n}=9999@1s" for n in range(9))}}, "BAD_SIZE"),
        ({"setup": {"events": "eat:c0@2s"}}, "UNKNOWN_EVENT"),
        ({"setup": {"heartbeat": "0ms"}}, "BAD_TIMEOUT"),
        ({"kind": "lazy"}, "UNKNOWN_KIND"),
        ([1], "BAD_REQUEST"),
        ({"scene": ["tick8"], "kind": "lazy"}, "UNKNOWN_KIND"),
    ],
)
def test_what_can_not_be_played_is_refused_with_a_code_and_a_way_out(body: Any, code: str) -> None:
    status, _, text = call("POST", "/api/play", body=body)
    error = json.loads(text)["error"]
    assert status == 400 and error["code"] == code and error["what"] and error["do"]


def test_a_fault_of_ours_is_an_answer_with_a_code_and_a_traceback_where_the_server_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was the server's own page, "Internal Server Error", which the page showed as JSON that can't be parsed."""

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("holdfast.ui.library.play", fails)
    status, headers, text = call("POST", "/api/play", body={"scene": "tick8"})
    error = json.loads(text)["error"]
    assert status == 500 and error["code"] == "PAGE_FAULT" and error["do"]
    assert "ZeroDivisionError: division by zero" in error["what"]
    assert "content-security-policy" in headers
    assert "Traceback" in caplog.text and "in fails" in caplog.text


def test_a_request_without_end_is_cut_off() -> None:
    status, _, text = call("POST", "/api/play", raw=b"[" * (MAX_BODY_BYTES + 1))
    assert status == 400 and json.loads(text)["error"]["code"] == "TOO_LARGE"
    assert json.loads(call("POST", "/api/play", raw=b"[" * 60_000)[2])["error"]["code"] == "BAD_REQUEST"


@pytest.mark.parametrize("path", ["/api/play", "/api/questions"])
def test_a_page_that_is_closed_in_the_middle_of_its_request_is_no_traceback(path: str) -> None:
    """It was one of forty lines on the terminal of `holdfast ui`."""
    came = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    headers = [(b"host", HOST.encode()), (TOKEN_HEADER.encode(), TOKEN.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    scope |= {"http_version": "1.1", "scheme": "http", "root_path": ""}
    sent: list[Any] = []

    async def receive() -> Any:
        return next(came)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(page(TOKEN)(scope, receive, send))
    assert sent[0]["status"] == 400


def test_a_scene_is_played_in_all_ways_with_what_is_told_of_it() -> None:
    played = answer("/api/play", scene="tick8", kind="eager")
    assert played["story"]["kind"] == "eager" and set(played["waits"]) == {"eager", "cooperative", "holdfast"}
    assert len(played["told"]) == len(SCENES["tick8"].claims)
    assert played["waits"]["eager"]["paused"] > 10 * played["waits"]["holdfast"]["paused"]
    assert played["command"].startswith("holdfast sim --compare --")
    own = answer("/api/play", scene="tick8", setup={"members": "5"}, kind="eager")
    assert own["told"] == [], "what is told of a scene is not told of what somebody made of it"


def test_the_command_line_plays_the_same_when_it_is_copied_into_a_shell() -> None:
    """Events with spaces came apart in the shell, and without events the command played its own."""
    played = answer("/api/play", setup={"events": "join@1s, leave:c0@2s", "duration": "4s", "spread": "0.123456789"})
    words = shlex.split(played["command"])
    assert words[words.index("--event") + 1] == "join@1s, leave:c0@2s"
    assert words[words.index("--batch-spread") + 1] == "0.123456789"
    quiet = shlex.split(answer("/api/play", setup={"duration": "2s"})["command"])
    assert quiet[quiet.index("--event") + 1] == ""


def test_questions_what_ifs_plans_and_pictures_are_answered() -> None:
    asked = answer("/api/questions", scene="tick8", kind="eager", at=12_000)["questions"]
    assert {"waiting", "cause", "everybody"} <= {each["id"] for each in asked}
    assert "as it is" in answer("/api/what-if", scene="third-quick", kind="eager", id="static")["answer"]
    assert answer("/api/plan", scene="tick8", kind="holdfast", at=1_900, members=6)["to"] == 6
    status, headers, text = call("POST", "/api/picture", body={"scene": "tick8", "at": 12_400})
    assert status == 200 and headers["content-type"].startswith("image/svg+xml") and text.startswith(b"<svg")


@pytest.mark.parametrize("at", [-1, "soon", True, 1e14])
def test_a_moment_that_is_none_is_refused(at: Any) -> None:
    status, _, text = call("POST", "/api/questions", body={"scene": "third-quick", "at": at})
    assert status == 400 and json.loads(text)["error"]["code"] == "BAD_TIME"


# The command


def test_the_command_prints_a_link_that_works_and_ends_with_its_interrupt() -> None:
    started = subprocess.Popen(
        [Path(sys.executable).parent / "holdfast", "ui", "--port", "0", "-o", "json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        url = json.loads(started.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:") and "#token=" in url
        with urllib.request.urlopen(url.partition("#")[0], timeout=60) as got:
            assert b"<title>holdfast" in got.read()
    finally:
        started.send_signal(signal.SIGINT)
        assert started.wait(60) in (0, -signal.SIGINT, 130)
        assert started.stdout is not None
        started.stdout.close()


PLAYS_FOR_EVER = """
import sys
from holdfast.cli.main import main
from holdfast.ui import library

def play(setup, kind):
    print("plays", flush=True)
    while True:
        pass

library.play = play
main(["ui", "--port", "0", "-o", "json"])
"""


def test_one_interrupt_ends_the_command_while_it_plays() -> None:
    """A large scene plays for a minute, in a thread that the process waited for: Ctrl-C seemed to do nothing.

    This one plays without end, so that no patience is enough unless the play is left behind.
    """
    started = subprocess.Popen(
        [sys.executable, "-c", PLAYS_FOR_EVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        url, _, token = json.loads(started.stdout.readline())["url"].partition("#token=")
        asked = urllib.request.Request(
            url.partition("?")[0] + "api/play", b'{"scene": "tick8"}', {TOKEN_HEADER: token}, method="POST"
        )
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(urllib.request.urlopen, asked, timeout=PATIENCE_S)
            assert started.stdout.readline() == "plays\n"
            started.send_signal(signal.SIGINT)
            _, said = started.communicate(timeout=PATIENCE_S)
            refused = answered.exception()
        assert started.returncode in (0, -signal.SIGINT, 130) and "Traceback" not in said, said
        assert isinstance(refused, urllib.error.HTTPError) and refused.code == 503
        assert json.loads(refused.read())["error"]["code"] == "PAGE_ENDS", "whoever waited is told"
    finally:
        started.kill()
        started.communicate()


def test_others_are_not_let_in(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", "--host", "0.0.0.0"])
    assert ended.value.code == 1 and "NOT_LOOPBACK" in capsys.readouterr().err
