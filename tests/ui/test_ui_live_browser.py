"""Live groups in a real browser: what is done to a member for real is seen, and a lost connection heals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

pytest.importorskip("playwright", reason="make setup installs it")

from playwright.sync_api import Browser, Page, Route, expect
from ui_browser import LAPTOP, PHONE, browser, keep
from ui_live import WALL, chronicle, look, member, served
from ui_proxy import wire_to

from holdfast.testing import Broker
from holdfast.ui.live.watch import message
from patience import PATIENCE_S

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=PATIENCE_MS)
LANES = 12
HOSTILE = "<img src=x onerror=alert(1)>"

ALL_WORK = "() => document.querySelectorAll('[data-lane][data-state=working]').length === " + str(LANES)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The link of a demo with three members and twelve partitions."""
    words = ["demo", "--live", "--port", "0", "--partitions", str(LANES), "-o", "json"]
    started = subprocess.Popen(
        [Path(sys.executable).parent / "holdfast", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert started.stdout is not None
    try:
        yield json.loads(started.stdout.readline())["url"]
    finally:
        started.send_signal(signal.SIGINT)
        started.wait(PATIENCE_S)
        started.stdout.close()


class Tab:
    """One tab, and what went wrong in it."""

    def __init__(self, chrome: Browser, link: str, **options: Any) -> None:
        self.context = chrome.new_context(viewport=options.pop("viewport", LAPTOP), **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.page.goto(link)

    def done(self) -> None:
        if self.page.locator("#notice").count():
            expect(self.page.locator("#notice")).to_be_hidden()
        self.context.close()
        assert self.troubles == []


@pytest.fixture
def tab(chrome: Browser, demo: str) -> Iterator[Tab]:
    opened = Tab(chrome, demo)
    opened.page.wait_for_function(ALL_WORK)
    yield opened
    opened.done()


def act(page: Page, name: str, member_name: str = "") -> None:
    if member_name:
        page.select_option("#target", member_name)
    page.click(f"[data-act={name}]")


def new_member(page: Page) -> str:
    """One more, which works: tests don't depend on what others did to theirs."""
    known = page.eval_on_selector_all("[data-member]", "all => all.map(each => each.dataset.member)")
    act(page, "add")
    fresh = "name => !known.includes(name)".replace("known", json.dumps(known))
    page.wait_for_function(
        f"() => [...document.querySelectorAll('[data-member]')].map(e => e.dataset.member).some({fresh})"
    )
    names = page.eval_on_selector_all("[data-member]", "all => all.map(each => each.dataset.member)")
    (name,) = set(names) - set(known)
    expect(page.locator(f"[data-member='{name}'] .owns")).to_contain_text("owns P")
    page.wait_for_function(ALL_WORK)
    return str(name)


KILL = """async name => {
    const lanes = () => [...document.querySelectorAll('[data-lane]')].map(each => each.dataset.state);
    const until = holds => new Promise(done => {
        const look = () => holds() ? done(performance.now()) : requestAnimationFrame(look);
        look();
    });
    const dark = () => lanes().some(state => state !== 'working');
    const gone = () => document.querySelector(`[data-member="${name}"]`).dataset.state === 'gone';
    const began = performance.now();
    document.querySelector('[data-act=kill]').click();
    const seen = await until(() => dark() || gone());
    await until(gone);
    const over = await until(() => !dark());
    return [seen - began, over - began];
}"""
"""From the click until the kill is seen, and until all lanes are lit again, in milliseconds. On a busy machine lanes
may be lit again before the page has drawn them dark: then the member is the first thing that shows it."""


def test_a_live_kill_is_seen_and_the_others_take_over(tab: Tab) -> None:
    page = tab.page
    name = new_member(page)
    page.select_option("#target", name)
    seen, over = page.evaluate(KILL, name)
    print(f"a kill was seen after {seen:.0f} ms, and all lanes were lit again after {over:.0f} ms")
    expect(page.locator(f"[data-member={name}]")).to_have_attribute("data-state", "gone")
    expect(page.locator(".history li").first).to_contain_text(f"by {name}")
    keep(page, "live-kill-laptop-light")


KEEP_STATES = """name => {
    window.states = [];
    const note = () => {
        const stalled = [...document.querySelectorAll('[data-lane][data-state=stalled]')];
        const now = [document.querySelector(`[data-member="${name}"]`)?.dataset.state,
            stalled.some(lane => lane.textContent.includes(`→ ${name}`)) ? 'stalled' : 'lit'].join(' ');
        if (window.states.at(-1) !== now) window.states.push(now);
    };
    note();
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    new MutationObserver(note).observe(document.body, all);
}"""
"""Keeps every state of a member that the page draws, and whether a lane of it stands still. A member that is restarted
is gone for less time than lies between two looks of a test."""


def went_through(page: Page, *states: str) -> None:
    """Wait until the page has drawn one of these states."""
    page.wait_for_function("wanted => window.states.some(drawn => wanted.some(w => drawn.includes(w)))", arg=states)


def test_members_drain_restart_and_hang_for_real(tab: Tab) -> None:
    page = tab.page
    name = new_member(page)
    page.evaluate(KEEP_STATES, name)
    act(page, "restart", name)
    expect(page.locator("#acted")).to_contain_text("as in a deploy")
    went_through(page, "gone", "out", "joining")
    expect(page.locator(f"[data-member={name}]")).to_have_attribute("data-state", "in")
    expect(page.locator(f"[data-member={name}] .owns")).to_contain_text("owns P")
    act(page, "hang", name)
    went_through(page, "hung")
    went_through(page, "stalled")
    keep(page, "live-hang-laptop-light")
    page.wait_for_function(ALL_WORK)  # ten seconds later the group goes on without it
    expect(page.locator(f"[data-member={name}] .owns")).to_contain_text("owns nothing")
    act(page, "kill", name)
    other = new_member(page)
    act(page, "drain", other)
    expect(page.locator(f"[data-member={other}]")).to_have_attribute("data-state", "gone")
    page.wait_for_function(ALL_WORK)


def test_actions_need_the_token_a_post_and_a_member_of_the_demo(tab: Tab, demo: str) -> None:
    answers = tab.page.evaluate(
        """async token => {
            const ask = async (method, body, headers) => {
                const answer = await fetch('/api/live/act', { method, headers, body: body && JSON.stringify(body) });
                return `${answer.status} ${await answer.text()}`;
            };
            const sent = { 'x-holdfast-token': token };
            const kill = member => ({ act: 'kill', member });
            return [await ask('GET', null, sent), await ask('POST', kill('c0'), {}),
                await ask('POST', kill('1'), sent), await ask('POST', { act: 'rm', member: 'c0' }, sent)];
        }""",
        demo.partition("token=")[2],
    )
    for answer, expected in zip(answers, ("405", "BAD_TOKEN", "NOT_OUR_MEMBER", "UNKNOWN_ACT"), strict=True):
        assert expected in answer


def test_the_past_can_be_gone_through_and_questions_asked_while_it_is_live(tab: Tab) -> None:
    page = tab.page
    page.click(".history [data-rebalance='0']")
    expect(page.locator("#play")).to_contain_text("To now")
    page.click("[data-question=lag]")
    expect(page.locator("#ask .answer")).to_contain_text("How far is the group behind?")
    page.fill("#resize", "1")
    page.locator("#resize").blur()
    page.click("#plan")
    expect(page.locator("#planned")).to_contain_text("1 members")
    at = page.input_value("#scrub")
    page.click("#play")
    expect(page.locator("#play")).to_contain_text("Pause")
    page.wait_for_function("at => Number(document.getElementById('scrub').value) > at", arg=float(at))
    with page.expect_download() as got:
        page.click("#save-svg")
    assert got.value.path().read_bytes().startswith(b"<svg")


def test_a_lost_connection_shows_and_heals_by_itself(chrome: Browser, demo: str) -> None:
    """Seen once: a question that the page had asked when the connection went left its refusal there for good."""
    port = urlsplit(demo).port
    assert port is not None
    with wire_to(port) as wire:
        tab = Tab(chrome, demo.replace(f":{port}/", f":{wire.port}/"))
        page = tab.page
        page.wait_for_function(ALL_WORK)
        expect(page.locator("#connection")).to_have_text("● live")
        page.route("**/api/live/questions", lambda route: route.abort())  # one is under way when the wire is cut
        page.click("#back")
        expect(page.locator("#notice")).to_contain_text("NOT_REACHED")
        page.click("#play")
        wire.cut()
        expect(page.locator("#connection")).to_contain_text("connection lost")
        page.unroute("**/api/live/questions")
        wire.mend()
        expect(page.locator("#connection")).to_have_text("● live")
        before = page.input_value("#scrub")
        page.wait_for_function("at => Number(document.getElementById('scrub').value) > at", arg=float(before))
        tab.done()


FRAMES = """async () => {
    let frames = 0, longest = 0, last = performance.now();
    const began = last;
    await new Promise(done => {
        const count = now => {
            longest = Math.max(longest, now - last);
            [last, frames] = [now, frames + 1];
            now - began > 2000 ? done() : requestAnimationFrame(count);
        };
        requestAnimationFrame(count);
    });
    return [frames * 1000 / (last - began), longest];
}"""


def test_frames_a_second_with_twelve_lanes(tab: Tab, demo: str) -> None:
    """Printed, and not judged: the machine may be busy."""
    page = tab.page
    rate, longest = page.evaluate(FRAMES)
    print(f"live, {LANES} lanes: {rate:.0f} frames a second, the longest {longest:.0f} ms")
    page.select_option("#scene", "deploy")
    page.wait_for_selector("[data-wait=holdfast]")
    assert page.locator("[data-lane]").count() == LANES
    page.click("#play")
    rate, longest = page.evaluate(FRAMES)
    print(f"a scene, {LANES} lanes: {rate:.0f} frames a second, the longest {longest:.0f} ms")
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.locator("[data-act]")).to_have_count(0)


def test_groups_of_strangers_are_listed_and_shown_as_text_and_only_shown(chrome: Browser) -> None:
    with Broker() as broker:
        broker.topics.create("orders", partitions=3)
        with member(broker, HOSTILE, group=HOSTILE), served(broker) as server:
            tab = Tab(chrome, server.link(live=""))
            page = tab.page
            expect(page.locator("[data-group]")).to_contain_text(HOSTILE)
            page.click("[data-group]")
            expect(page.locator("[data-lane]").first).to_contain_text(f"→ {HOSTILE}")
            expect(page.locator("#story")).to_contain_text("Looks are half a second apart")
            assert page.locator("img, [data-act]").count() == 0
            assert page.url.endswith(f"?live={quote(HOSTILE, safe='').replace('%20', '+')}")
            page.reload()
            expect(page.locator("[data-lane]")).to_have_count(3)
            tab.done()


def large_story() -> dict[str, Any]:
    """A thousand partitions and a hundred members; one joins."""
    seen = chronicle()
    shares = {f"c{n}": range(n * 10, n * 10 + 10) for n in range(100)}
    seen.looked(look(shares, of=1000, lag=5), WALL)
    moved = {name: list(share)[:9] if name != "c0" else list(share) for name, share in shares.items()}
    seen.looked(look({**moved, "new": [n * 10 + 9 for n in range(1, 100)]}, of=1000, lag=9), WALL + 4_000)
    return seen.story()


def test_a_thousand_partitions_and_a_hundred_members_live(chrome: Browser, demo: str) -> None:
    tab = Tab(chrome, "about:blank")
    page = tab.page
    body = message("story", {"group": "billing", "story": large_story()}).decode()

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/event-stream")

    page.route("**/api/live/events", answer)
    page.goto(demo)
    expect(page.locator("#map")).to_be_visible()
    expect(page.locator("[data-count=working]")).to_contain_text("1,000")
    assert page.locator("[data-member]").count() == 101
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, "live-thousand-laptop-light")
    tab.done()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_live_page_fits_a_phone(chrome: Browser, demo: str, colours: str) -> None:
    tab = Tab(chrome, demo, viewport=PHONE, color_scheme=colours)
    page = tab.page
    page.wait_for_function(ALL_WORK)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, f"live-phone-{colours}")
    tab.done()
