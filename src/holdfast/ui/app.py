"""The page's server: static files, and a few requests that take work and so need the token.

Rules. GET changes nothing. What takes work is a POST with the token of the printed link, which no other page in the
same browser knows. The page may load nothing from elsewhere and run only scripts that are our own files. Requests under
another host name are refused: with a name that resolves to loopback, a foreign page could reach this server.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.model import HoldfastError
from holdfast.sim.happenings import KINDS as EVENTS
from holdfast.sim.ready import SCENES, ReadyScene, scene_named, told_and_played
from holdfast.sim.setup import KINDS, Setup, setup_of
from holdfast.ui.asked import members_in, moment_in
from holdfast.ui.library import Library
from holdfast.ui.live.answers import Acts, LiveAnswers
from holdfast.ui.live.hub import Hub
from holdfast.ui.plan import resized
from holdfast.ui.questions import WHAT_IFS, compared, questions
from holdfast.ui.svg import picture
from holdfast.ui.work import done_unless

log = logging.getLogger("holdfast.ui")

STATIC = Path(__file__).parent / "static"
MAX_BODY_BYTES = 65_536
TOKEN_HEADER = "x-holdfast-token"  # noqa: S105  # its name, not its value
HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})

STATUS: Mapping[str, int] = {"PAGE_FAULT": 500, "PAGE_ENDS": 503, "TOO_MANY_VIEWERS": 503, "TOO_MANY_GROUPS": 503}
"""The status of errors that are not the client's fault."""

Answer = Callable[[Mapping[str, Any]], Any]


def page(token: str, hub: Hub | None = None, acts: Acts | None = None) -> Starlette:
    """The application. `token` is in the printed link. Once `state.ending` is set, no request waits for work.

    `hub` knows the live groups, if there are any; `acts` can act on their members, if they were started for that.
    """
    library = Library()
    ending = asyncio.Event()

    def post(path: str, answer: Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answered(request, token, ending, lambda body: _response(answer(body)))

        return Route(path, endpoint, methods=["POST"])

    def stream(path: str, feed: Callable[[Mapping[str, Any]], AsyncIterator[bytes]]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _streamed(request, token, feed)

        return Route(path, endpoint, methods=["POST"])

    async def scenes(_: Request) -> Response:
        return JSONResponse({**_catalogue(), "live": hub is not None, "acts": list(acts.names) if acts else []})

    routes: list[BaseRoute] = [
        Route("/", _index, methods=["GET"]),
        Route("/api/scenes", scenes, methods=["GET"]),
        post("/api/play", partial(play_answer, library)),
        post("/api/questions", partial(questions_answer, library)),
        post("/api/what-if", partial(what_if_answer, library)),
        post("/api/plan", partial(plan_answer, library)),
        post("/api/picture", partial(picture_answer, library)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    if hub is not None:
        answers = LiveAnswers(hub, acts)
        routes += [
            stream("/api/live/events", lambda body: answers.events(body, ending)),
            post("/api/live/questions", answers.questions),
            post("/api/live/plan", answers.plan),
            post("/api/live/picture", answers.picture),
            post("/api/live/act", answers.act),
        ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard)])
    app.state.ending = ending
    app.state.hub = hub
    return app


class Guard:
    """Refuses other host names, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in names]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        if host.rpartition(":")[0] not in LOOPBACK and host not in LOOPBACK:
            refusal = _refusal(421, "WRONG_HOST", "the page answers to loopback names alone.", "Use the printed link.")
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


async def _index(_: Request) -> Response:
    return FileResponse(STATIC / "index.html")


def _catalogue() -> dict[str, Any]:
    return {
        "scenes": [
            {"name": name, "title": scene.title, "story": scene.story, "look": scene.look, "at": scene.at_ms}
            | {"setup": scene.setup.as_words()}
            for name, scene in SCENES.items()
        ],
        "kinds": dict(KINDS),
        "events": dict(EVENTS),
        "usual": {k: getattr(Setup(), k) for k in Setup.__dataclass_fields__},
    }


async def _streamed(
    request: Request, token: str, feed: Callable[[Mapping[str, Any]], AsyncIterator[bytes]]
) -> Response:
    """Server-sent events. Errors are answered before the first event."""
    if not _has_token(request, token):
        return _no_token()
    try:
        events = feed(await _body(request))
        first = await anext(events)
    except HoldfastError as error:
        return _refused(error)

    async def all_of_them() -> AsyncIterator[bytes]:
        yield first
        async for event in events:
            yield event

    return StreamingResponse(all_of_them(), media_type="text/event-stream")


def _has_token(request: Request, token: str) -> bool:
    return hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), token.encode())


async def _answered(
    request: Request, token: str, ending: asyncio.Event, answer: Callable[[Mapping[str, Any]], Response]
) -> Response:
    if not _has_token(request, token):
        return _no_token()
    try:
        body = await _body(request)
        return await done_unless(ending, lambda: _sound(answer, body))
    except HoldfastError as error:
        return _refused(error)


def _sound(answer: Callable[[Mapping[str, Any]], Response], body: Mapping[str, Any]) -> Response:
    """The answer. An unexpected exception becomes an error like any other for the page, and a traceback in the log."""
    try:
        return answer(body)
    except HoldfastError:
        raise
    except Exception as error:
        log.exception("an answer failed")
        raise HoldfastError(
            "PAGE_FAULT",
            f"the page's server failed at this: {type(error).__name__}: {error}.",
            "That is a fault of holdfast. Report it with what `holdfast ui` printed; other settings may work.",
        ) from error


async def _body(request: Request) -> Mapping[str, Any]:
    text = b""
    try:
        async for piece in request.stream():
            text += piece
            if len(text) > MAX_BODY_BYTES:
                raise HoldfastError("TOO_LARGE", "the request is too large.", "Give fewer events.")
    except ClientDisconnect as error:  # a page that is closed or reloaded is no fault, and nobody reads the answer
        raise HoldfastError("BAD_REQUEST", "the request broke off.", "Send it again.") from error
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HoldfastError("BAD_REQUEST", "the request is not a JSON object.", "Use the page.")
    return body


def _response(answer: Any) -> Response:
    if isinstance(answer, str):
        return Response(answer, media_type="image/svg+xml")
    return JSONResponse(answer)


def _refused(error: HoldfastError) -> Response:
    return _refusal(STATUS.get(error.code, 400), error.code, error.what, error.do)


def _no_token() -> Response:
    return _refusal(403, "BAD_TOKEN", "the link's token is missing or old.", "Open the link that was printed.")


def _refusal(status: int, code: str, what: str, do: str) -> Response:
    return JSONResponse({"error": {"code": code, "what": what, "do": do}}, status_code=status)


# The answers


def _setup(body: Mapping[str, Any]) -> Setup:
    scene, words = _scene(body), body.get("setup")
    start = scene.setup if scene else None
    given = {k: v for k, v in words.items() if isinstance(v, str)} if isinstance(words, dict) else {}
    return setup_of(given, start)


def _scene(body: Mapping[str, Any]) -> ReadyScene | None:
    name = body.get("scene")
    return scene_named(name) if isinstance(name, str) and name else None


def _kind(body: Mapping[str, Any]) -> str:
    return str(body.get("kind", "holdfast"))


def play_answer(library: Library, body: Mapping[str, Any]) -> dict[str, Any]:
    """The story of one kind, and the wait-time of all."""
    setup, kind = _setup(body), _kind(body)
    setup.config(kind)  # raises for a setup that can't be played, before anything is played
    all_kinds = {each: library.get(setup, each) for each in KINDS}
    scene = _scene(body)
    # A scene's claims hold only for the unchanged scene.
    told = told_and_played(scene, {k: p for k, (p, _) in all_kinds.items()}) if scene and scene.setup == setup else []
    return {
        "setup": setup.as_words(),
        "command": _command(setup),
        "story": all_kinds[kind][1],
        "waits": {each: made["wait"] for each, (_, made) in all_kinds.items()},
        "told": told,
        "violations": [str(v) for played, _ in all_kinds.values() for v in played.result.violations],
    }


def _command(setup: Setup) -> str:
    """What plays the same. Without --event the command would play events of its own."""
    return f"holdfast sim --compare {setup.as_options()}".rstrip() + ("" if setup.events else " --event ''")


def questions_answer(library: Library, body: Mapping[str, Any]) -> dict[str, Any]:
    setup = _setup(body)
    _, made = library.get(setup, _kind(body))
    return {"questions": questions(made, moment_in(body), setup)}


def what_if_answer(library: Library, body: Mapping[str, Any]) -> dict[str, Any]:
    """The same events and seed in another setup."""
    setup, kind = _setup(body), _kind(body)
    what_if = WHAT_IFS.get(str(body.get("id")))
    if what_if is None:
        raise HoldfastError("UNKNOWN_QUESTION", "that is not a what-if.", f"Use one of {', '.join(WHAT_IFS)}.")
    other = what_if.change(setup)
    _, mine = library.get(setup, kind)
    _, then = library.get(other, kind)
    return {"answer": compared(mine["wait"], then["wait"]), "setup": other.as_words(), "wait": then["wait"]}


def plan_answer(library: Library, body: Mapping[str, Any]) -> dict[str, Any]:
    members = members_in(body)
    _, made = library.get(_setup(body), _kind(body))
    return resized(made, moment_in(body), members)


def picture_answer(library: Library, body: Mapping[str, Any]) -> str:
    setup, scene = _setup(body), _scene(body)
    _, made = library.get(setup, _kind(body))
    waits = {each: library.get(setup, each)[1]["wait"] for each in KINDS}
    title = scene.title if scene else ""
    return picture(made, min(moment_in(body), made["end"]), title=title, waits=waits)
