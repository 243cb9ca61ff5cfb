"""The page in a real browser: every ready scene is clicked through, and what it shows is what was played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="make setup installs it")

from playwright.sync_api import Browser, Page, Route, expect
from ui_browser import LAPTOP, PHONE, browser, keep, server

from holdfast.sim.ready import SCENES
from patience import PATIENCE_S

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = {"restore", "hundred", "fifty", "storm"}
SHORT = [name for name in SCENES if name not in LONG]
PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    with server() as url:
        yield url


class Shown:
    """One tab, what went wrong in it, and how to do things there."""

    def __init__(self, chrome: Browser, link: str, **options: Any) -> None:
        self.context = chrome.new_context(viewport=options.pop("viewport", LAPTOP), **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.troubles: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", lambda said: self.troubles.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.link = link

    def open(self, scene: str, more: str = "") -> Page:
        base, _, token = self.link.partition("#")
        self.page.goto(f"{base.partition('?')[0]}?scene={scene}{more}#{token}")
        self.page.wait_for_selector("[data-wait=holdfast]")
        return self.page

    def go(self, at_ms: float) -> None:
        scrub = self.page.locator("#scrub")
        scrub.evaluate(
            "(e, at) => { e.value = at; e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); }",
            at_ms,
        )

    def choose(self, kind: str) -> None:
        self.page.click(f"#kinds [data-kind={kind}]")
        expect(self.page.locator(f"#kinds [data-kind={kind}]")).to_have_attribute("aria-pressed", "true")
        self.page.wait_for_function("() => !document.body.classList.contains('busy')")

    def states(self) -> dict[str, str]:
        found: dict[str, str] = self.page.eval_on_selector_all(
            "[data-lane]", "rows => Object.fromEntries(rows.map(r => [r.dataset.lane, r.dataset.state]))"
        )
        return found

    def done(self) -> None:
        self.context.close()
        assert self.troubles == []
        origin = self.link.partition("/?")[0]
        assert all(url.startswith((origin, "blob:", "data:")) for url in self.asked), "nobody else was asked"


@pytest.fixture
def shown(chrome: Browser, link: str) -> Iterator[Shown]:
    tab = Shown(chrome, link)
    yield tab
    tab.done()


WALK = """from => {
    const scrub = document.getElementById('scrub'), step = document.getElementById('step'), seen = {};
    scrub.value = from;
    scrub.dispatchEvent(new Event('input'));
    for (let last = -1; Number(scrub.value) > last;) {
        last = Number(scrub.value);
        step.click();
        for (const { dataset } of document.querySelectorAll('[data-lane]'))
            (seen[dataset.lane] ??= {})[dataset.state] = 1;
    }
    return Object.fromEntries(Object.entries(seen).map(([label, states]) => [label, Object.keys(states)]));
}"""
"""Steps from a moment to the end, and notes the states that each lane shows."""


def lanes_from(shown: Shown, at_ms: float) -> dict[str, set[str]]:
    return {label: set(states) for label, states in shown.page.evaluate(WALK, at_ms).items()}


@pytest.mark.parametrize("name", [n for n in SHORT if SCENES[n].setup.partitions <= 40 and n != "deploy-static"])
def test_eager_darkens_every_lane_and_cooperative_none_that_stays(shown: Shown, name: str) -> None:
    shown.open(name)
    played = shown.page.evaluate("() => document.querySelectorAll('[data-lane]').length")
    assert played == SCENES[name].setup.partitions
    for kind in ("eager", "cooperative", "holdfast"):
        shown.choose(kind)
        seen = lanes_from(shown, _event_ms(name))
        if kind == "eager":
            assert all(states - {"working"} for states in seen.values()), (kind, seen)
        else:
            moved = moved_lanes(shown)
            still = {label: states for label, states in seen.items() if label not in moved}
            assert all(states == {"working"} for states in still.values()), (kind, still)


def _event_ms(name: str) -> float:
    """Just behind the event that the scene is about."""
    event = SCENES[name].setup.events.split(",")[-1 if name == "tick8" else 0]
    return float(event.partition("@")[2].partition("s")[0]) * 1000 + 1


MOVED = """rows => rows
    .filter(r => new Set([...r.querySelectorAll('.seg.working')].map(s => s.getAttribute('class'))).size > 1)
    .map(r => r.dataset.lane)"""


def moved_lanes(shown: Shown) -> set[str]:
    """Lanes that more than one member worked on, by the colours of their strips."""
    return set(shown.page.eval_on_selector_all("[data-lane]", MOVED))


@pytest.mark.parametrize("name", SHORT)
def test_a_ready_scene_is_chosen_and_shows_what_is_told(shown: Shown, name: str) -> None:
    page = shown.open("third-quick")
    page.select_option("#scene", name)
    expect(page.locator("#story")).to_contain_text(SCENES[name].story[:40])
    expect(page.locator("#told li")).to_have_count(len(SCENES[name].claims))
    expect(page.locator("[data-wait] strong").first).to_be_visible()
    expect(page.locator("[data-question]").first).to_be_visible()
    page.wait_for_url(lambda url: f"scene={name}&" in url and "token" not in url)  # written when the page is at rest
    keep(page, f"{name}-laptop-light")


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("device", ["laptop", "phone"])
def test_every_scene_fits_laptop_and_phone_light_and_dark(
    chrome: Browser, link: str, name: str, colours: str, device: str
) -> None:
    tab = Shown(chrome, link, viewport=LAPTOP if device == "laptop" else PHONE, color_scheme=colours)
    page = tab.open(name)
    keep(page, f"{name}-{device}-{colours}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.done()


def test_it_plays_pauses_and_steps_and_the_address_follows(shown: Shown) -> None:
    page = shown.open("third-quick", "&at=0")
    page.select_option("#speed", "20")
    page.click("#play")
    expect(page.locator("#play")).to_contain_text("Pause")
    page.wait_for_function("() => Number(document.getElementById('scrub').value) > 500")
    page.click("#play")
    at = float(page.input_value("#scrub"))
    page.click("#step")
    assert float(page.input_value("#scrub")) >= at
    page.wait_for_url("**at=*")
    page.reload()
    page.wait_for_selector("[data-wait=holdfast]")
    assert page.input_value("#scene") == "third-quick"


def test_the_keyboard_is_enough(shown: Shown) -> None:
    page = shown.open("third-quick", "&at=0")
    page.locator("body").press("ArrowRight")
    first = float(page.input_value("#scrub"))
    assert first > 0
    page.locator("body").press("ArrowLeft")
    assert float(page.input_value("#scrub")) < first
    page.locator("body").press(" ")
    expect(page.locator("#play")).to_contain_text("Pause")
    page.locator("body").press(" ")
    for _ in range(12):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") in ("BUTTON", "SELECT", "INPUT", "A", "SUMMARY")


def test_a_rebalance_is_clicked_and_the_scene_goes_there(shown: Shown) -> None:
    page = shown.open("tick8")
    page.click("[data-rebalance='1']")
    assert float(page.input_value("#scrub")) == pytest.approx(8_000, abs=10)
    expect(page.locator("[data-state=PreparingRebalance]")).to_be_visible()
    expect(page.locator("[data-rebalance='1']")).to_contain_text("by c0")


def test_questions_are_answered_and_a_what_if_is_played_beside(shown: Shown) -> None:
    page = shown.open("tick8")
    page.click("[data-question=everybody]")
    expect(page.locator("#ask .answer")).to_contain_text("give up everything")
    page.click("[data-question=quick]")
    expect(page.locator("#ask .answer")).to_contain_text("as it is")
    page.click("#ask .answer button")
    expect(page.locator("#scene")).to_have_value("")
    page.wait_for_url(lambda url: "max_poll=6s" in url and "scene=" not in url and "batch=" not in url)


def test_an_event_is_added_where_one_looks_and_plays(shown: Shown) -> None:
    page = shown.open("third-quick", "&at=5000")
    page.click("[data-happen=crash]")
    page.wait_for_function("() => document.getElementById('events').value.includes('crash:c0@5.0s')")
    expect(page.locator("[data-rebalance]")).to_have_count(3)
    page.fill("#resize", "4")
    page.locator("#resize").blur()
    page.click("#plan")
    expect(page.locator("#planned")).to_contain_text("members")


def test_what_is_typed_and_a_refusal_outlive_the_answers_that_come_late(shown: Shown) -> None:
    """Seen once: the moment's questions came while somebody typed, the drawing wiped the text out, and the old scene
    played. Had they come behind the refusal, they would have hidden it."""
    page = shown.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    def answer_with(text: str) -> None:
        held.pop().fulfill(json={"questions": [{"id": "late", "text": text, "answer": "Yes."}]})
        expect(page.locator("[data-question=late]")).to_contain_text(text)

    page.route("**/api/questions", hold)
    with page.expect_request("**/api/questions"):
        shown.open("third-quick")
    page.fill("#events", "eat:c0@5s")
    answer_with("First?")
    assert page.input_value("#events") == "eat:c0@5s"
    with page.expect_request("**/api/questions"):
        page.click("#step")
    page.click("#replay")
    expect(page.locator("#notice")).to_contain_text("UNKNOWN_EVENT")
    answer_with("Second?")
    expect(page.locator("#notice")).to_contain_text("UNKNOWN_EVENT")
    shown.troubles.clear()  # the browser logs the answer 400


def test_a_refusal_is_shown_with_its_way_out(shown: Shown) -> None:
    page = shown.open("third-quick")
    page.fill("#events", "eat:c0@5s")
    page.locator("#events").blur()
    page.click("#replay")
    expect(page.locator("#notice")).to_contain_text("UNKNOWN_EVENT")
    shown.troubles.clear()  # the browser logs the answer 400


def test_without_the_token_the_page_says_where_it_is(chrome: Browser, link: str) -> None:
    context = chrome.new_context()
    page = context.new_page()
    page.goto(link.partition("#")[0])
    expect(page.locator("#notice")).to_contain_text("Open the link that was printed")
    context.close()


def test_pictures_are_saved(shown: Shown) -> None:
    page = shown.open("tick8")
    for form, magic in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as got:
            page.click(f"#save-{form}")
        path = got.value.path()
        assert path.read_bytes().startswith(magic)


def test_motion_is_left_out_for_who_asks(chrome: Browser, link: str) -> None:
    tab = Shown(chrome, link, reduced_motion="reduce")
    page = tab.open("third-quick", "&at=0")
    page.click("#play")
    page.wait_for_function("() => Number(document.getElementById('scrub').value) > 0")
    steps = page.evaluate("() => document.getElementById('caption').textContent")
    assert steps
    tab.done()


def test_a_thousand_partitions_and_a_hundred_members_are_usable(shown: Shown) -> None:
    page = shown.open("", "&members=100&partitions=1000&duration=5s")
    expect(page.locator("#map")).to_be_visible()
    shown.go(4_900)
    expect(page.locator("[data-count=working]")).to_contain_text("1,000")
    took = page.evaluate(
        """async () => {
            const scrub = document.getElementById('scrub');
            const began = performance.now();
            for (let at = 0; at < 60; at++) { scrub.value = at * 80; scrub.dispatchEvent(new Event('input')); }
            return (performance.now() - began) / 60;
        }"""
    )
    print(f"a moment of 1,000 partitions takes {took:.1f} ms to draw")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, "thousand-laptop-light")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_phone_has_no_sideways_scrolling_and_nothing_jumps(chrome: Browser, link: str, colours: str) -> None:
    tab = Shown(chrome, link, viewport=PHONE, color_scheme=colours)
    page = tab.open("tick8")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    top = "() => document.getElementById('members').getBoundingClientRect().top + scrollY"
    tab.go(1_500)
    first = page.evaluate(top)
    for at in (3_000, 9_000, 12_400, 30_000):
        tab.go(at)
        assert abs(page.evaluate(top) - first) < 2, "the members stay where they are"
    keep(page, f"tick8-phone-{colours}")
    tab.done()


def test_long_lists_of_events_wrap_on_the_phone(chrome: Browser, link: str) -> None:
    """The scene of a deploy has so many events that its command line made the whole page scroll sideways."""
    tab = Shown(chrome, link, viewport=PHONE)
    page = tab.open("deploy")
    expect(page.locator("#setup code")).to_contain_text("restart:c1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.done()


def test_the_slider_is_moved_by_the_keyboard_from_one_thing_that_happens_to_the_next(shown: Shown) -> None:
    """Its own steps are a tenth of a millisecond: with the arrow keys a scene of half a minute had 320,000 moments."""
    page = shown.open("tick8", "&at=7000")
    page.focus("#scrub")
    page.keyboard.press("ArrowRight")
    assert float(page.input_value("#scrub")) == pytest.approx(8_000, abs=10), "C0 is taken out"


def test_nothing_is_read_aloud_while_it_plays(shown: Shown) -> None:
    """The clock was an `output`, which is read aloud with every frame."""
    page = shown.open("third-quick", "&at=0")
    assert page.get_attribute("#clock", "aria-live") == "off"
    assert page.get_attribute("#caption", "aria-live") == "polite"
    page.click("#play")
    expect(page.locator("#caption")).to_have_attribute("aria-live", "off")
    page.click("#play")
    expect(page.locator("#caption")).to_have_attribute("aria-live", "polite")


def test_the_three_bars_have_one_scale(shown: Shown) -> None:
    """A bar's track took what the figure beside it left, so the shorter figure had the longer bar for the same time."""
    page = shown.open("storm")
    wide = page.eval_on_selector_all(".track", "tracks => tracks.map(t => t.getBoundingClientRect().width)")
    assert len(wide) == 3 and max(wide) - min(wide) < 0.5, wide


TOPS = """() => ['machines', 'lanes', 'members', 'legend', 'waits', 'ask']
    .map(id => Math.round(document.getElementById(id).getBoundingClientRect().top + scrollY))"""


@pytest.mark.parametrize("device", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("name", ["tick8", "third"])
def test_nothing_jumps_from_one_moment_to_the_next(chrome: Browser, link: str, name: str, device: Any) -> None:
    """A member's box grew by a line while the member was on its way into a round, and pushed down what is below."""
    tab = Shown(chrome, link, viewport=device)
    tab.open(name)
    seen = []
    for at in range(2_000, 29_000, 900):
        tab.go(at)
        seen.append(tab.page.evaluate(TOPS))
    assert all(max(tops) - min(tops) < 2 for tops in zip(*seen, strict=True)), seen
    tab.done()


@pytest.mark.parametrize("width", [1440, 900, 390])
def test_two_owners_of_one_name_can_be_told_apart_in_a_lane(chrome: Browser, link: str, width: int) -> None:
    """Members without a client.id are called holdfast and holdfast #2. On a laptop the second was cut to "holdfast …",
    with a hand's breadth of nothing beside it."""
    shown = Shown(chrome, link, viewport={"width": width, "height": 900})
    try:
        owner = shown.open("tick8").locator(".lane .owner").first
        assert f"→ {owner.get_attribute('title')}" == owner.text_content()
        cut = owner.evaluate("e => { e.textContent = '→ holdfast #12'; return e.scrollWidth > e.clientWidth; }")
        assert not cut
    finally:
        shown.done()


def test_answers_are_about_the_scene_that_is_shown_and_not_about_what_is_typed(shown: Shown) -> None:
    """Eight members were typed and not played yet. Questions, plans and pictures were of eight; the lanes of two."""
    page = shown.open("third-quick", "&at=1000")
    page.locator("#setup summary").click()
    page.fill("#set-members", "8")
    page.locator("#set-members").blur()
    page.click("#plan")
    expect(page.locator("#planned")).to_contain_text("From 2 to 6 members")
    page.click("#replay")
    page.wait_for_function("() => document.querySelectorAll('[data-member]').length === 8")
    page.click("#plan")
    expect(page.locator("#planned")).to_contain_text("From 8 to 6 members")


def test_what_somebody_has_opened_stays_open(shown: Shown) -> None:
    """Each drawing closed it: with the next step, with answers that came in, and in a live group twice a second."""
    page = shown.open("third-quick", "&at=1000")
    page.locator("#legend summary").click()
    page.locator("#setup summary").click()
    page.click("#step")
    page.wait_for_function("() => document.getElementById('scrub').value !== '1000'")
    expect(page.locator("#legend details")).to_have_attribute("open", "")
    expect(page.locator("#set-members")).to_be_visible()


def test_no_text_of_the_page_is_turned_around_by_a_name(shown: Shown) -> None:
    """U+202E in a client's name turned around the words beside it, wherever the name was said."""
    page = shown.open("third-quick")
    drawn = page.evaluate(
        """async () => {
            const { show } = await import("/static/dom.js");
            const place = document.createElement("p");
            show(place, ["c\u202e1 stopped"]);
            return place.textContent;
        }"""
    )
    assert drawn == "c\ufffd1 stopped"


def test_a_button_acts_on_the_member_that_the_list_shows(shown: Shown) -> None:
    """C9 was chosen in a scene of ten. In the next one, of two, the list showed C0 and C9 crashed: nothing happened."""
    page = shown.open("ten")
    page.select_option("#target", "c9")
    page.select_option("#scene", "third-quick")
    expect(page.locator("[data-lane]")).to_have_count(4)
    assert page.input_value("#target") == "c0"
    page.click("[data-happen=crash]")
    page.wait_for_function("() => document.getElementById('events').value.includes('crash:')")
    assert "crash:c0@" in page.input_value("#events")
