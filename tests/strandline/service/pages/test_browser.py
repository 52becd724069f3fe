"""The page in Chromium: it can be read by everybody, stays by itself, and a task takes few clicks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from strandline.deploy.embedded.stack import EmbeddedStack
from tests.strandline.service.pages.browsing import (
    AXE,
    CHROMIUM,
    SITE,
    VIOLATIONS,
    Walk,
    World,
    begun_world,
    opened_browser,
)

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs Chromium as {CHROMIUM}")

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "without script": {"java_script_enabled": False},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def world(stack: EmbeddedStack) -> Iterator[World]:
    """Ana with two facts of one session, and a letter that the model refused."""
    assert stack.broker_url is not None
    with begun_world(stack, stack.broker_url.rpartition("/")[0] + "/15") as world:
        world.put("chat-1", "ana", "I moved to Lisbon in May.", "My dog is called Rex.")
        world.settle()
        world.model.behave(wrong_schema=True)
        world.put("chat-2", "ben", "I play the cello.")
        world.await_dead("chat-2")
        yield world
        world.model.behave()


@pytest.mark.parametrize("look", LOOKS)
def test_each_page_reads_well(world: World, browser: Browser, look: str) -> None:
    with Walk(world, browser, **LOOKS[look]) as walk:
        walk.log_in()
        ways = {name: (path, list[str]()) for name, path in PAGES.items()} | BEHIND
        for name, (path, clicks) in ways.items():
            walk.page.goto(path)
            for what in clicks:
                walk.click(what)
            assert walk.page.inner_text("h1")
            walk.keep_picture(f"{name} {look}")
            if look in ("light", "dark"):
                assert walk.violations() == [], (name, look)
            width = walk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, (name, look, width)
        complaints = [text for text in walk.complaints if "404" not in text]  # of the refusal
        assert (complaints, walk.elsewhere) == ([], [])


def test_a_users_own_key_shows_that_user(world: World, browser: Browser) -> None:
    with Walk(world, browser) as walk:
        walk.log_in(world.service.make_key(user_id="ana", scopes=["read", "facts"]))
        assert walk.page.inner_text("h1") == "User ana"
        assert walk.page.locator("nav >> text=Now").count() == 0
        assert walk.violations() == []


@pytest.mark.parametrize("site", [SITE, "http://localhost:2"])
def test_a_named_site_alone_shows_a_users_own_view_in_a_frame(
    world: World, browser: Browser, site: str
) -> None:
    key = world.service.make_key(user_id="gwen", scopes=["read", "facts"])
    around = f"""<!doctype html><title>A chat</title><iframe name="memory" title="Memory"></iframe>
        <form method="post" action="{world.service.url}/page/own" target="memory">
        <input type="hidden" name="key" value="{key.key}"><button>Show my memory</button></form>"""
    with Walk(world, browser) as walk:
        walk.page.route(f"{site}/", lambda route: route.fulfill(body=around, content_type="text/html"))
        walk.page.goto(f"{site}/")
        if site != SITE:
            with walk.page.expect_response("**/page/own") as answer:
                walk.click("text=Show my memory")
            assert answer.value.status == 403
            return
        walk.click("text=Show my memory")
        frame = walk.page.frame_locator("iframe")
        frame.locator("h1:text-is('Your memory')").wait_for()
        frame.locator("#text").fill("Climbs.")
        frame.locator("button:text-is('Add')").click()
        frame.locator("td:has-text('Climbs.')").wait_for()
        assert frame.locator("nav, header").count() == 0
        inside = walk.page.frame(name="memory")
        assert inside is not None
        inside.evaluate(AXE)
        assert inside.evaluate(VIOLATIONS) == []
        frame.locator("text=Correct or delete").click()
        frame.locator("button:text-is('Delete')").click()
        frame.locator("text=The fact is deleted").wait_for()


def test_live_numbers_pause_and_resume(world: World, browser: Browser) -> None:
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.click("text=Pause live numbers")
        walk.page.wait_for_selector("text=Resume live numbers")
        assert walk.page.get_attribute("#live", "hx-trigger") is None
        walk.click("text=Resume live numbers")
        with walk.page.expect_response("**/page/live"):
            walk.page.wait_for_selector("text=Pause live numbers")
        assert walk.page.url.endswith("/page")


def test_a_keyboard_reaches_the_content_first(world: World, browser: Browser) -> None:
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.page.keyboard.press("Tab")
        assert walk.page.evaluate("document.activeElement.className") == "skip"
        walk.page.keyboard.press("Enter")
        assert walk.page.evaluate("document.activeElement.id") == "main"


def test_from_now_to_the_cause_a_retry_and_the_fact(world: World, browser: Browser) -> None:
    world.model.behave(wrong_schema=True)
    world.put("chat-3", "cleo", "I keep bees.")
    world.await_dead("chat-3")
    with Walk(world, browser) as walk:
        walk.log_in()
        assert "of extract: The model's answer stayed unusable" in walk.page.inner_text("main")
        walk.click("#dead-link")
        walk.click("text=chat-3")
        walk.click("a:has-text('Why')")
        assert walk.page.inner_text("h1").startswith("Why was message 1")
        assert "dead" in walk.page.inner_text("main")
        world.model.behave()
        walk.click("button:text-is('Retry')")
        world.settle()
        walk.click("text=Reveal content")
        assert "I keep bees." in walk.page.inner_text("h2:text-is('Facts') + ul")
        assert walk.clicks <= 6


def test_a_dead_letter_is_given_up_by_its_button(world: World, browser: Browser) -> None:
    world.model.behave(wrong_schema=True)
    world.put("chat-6", "fay", "I paint.")
    world.await_dead("chat-6")
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.page.goto("/page/letters")
        for _ in range(2):  # of facts, and of the summary
            letters = walk.page.locator("form", has=walk.page.locator("text=chat-6"))
            letters.first.locator("text=Give the chosen up").click()
            walk.page.wait_for_selector("text=The events are given up.")
        assert walk.page.locator("text=chat-6").count() == 0
    world.model.behave()


def test_a_fact_is_corrected_and_holds(world: World, browser: Browser) -> None:
    world.model.behave()
    world.put("chat-4", "dan", "I play the flute.")
    world.settle()
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.click("text=Users")
        walk.click("text=dan")
        walk.click("text=Reveal content")
        walk.click("text=Correct or delete")
        walk.page.fill("textarea", "Plays the piccolo.")
        walk.click("button:text-is('Correct')")
        assert "The fact has its new words." in walk.page.inner_text("main")
        walk.click("text=Reveal content")
        world.put("chat-4", "dan", "I still play the flute.")
        world.settle()
        assert "Plays the piccolo." in walk.page.inner_text("main")
        assert walk.clicks <= 8


def test_two_generations_are_compared_at_a_question_and_one_is_promoted(
    world: World, browser: Browser
) -> None:
    world.model.behave()
    world.put("chat-8", "hal", "I repair clocks.")
    world.settle()
    with Walk(world, browser, java_script_enabled=False) as walk:
        walk.log_in()
        walk.page.goto("/page/replays")
        for box in ("new", "force", "hold"):
            walk.page.check(f"[name={box}]")
        walk.page.click("text=Begin")
        generation = walk.page.inner_text("dd a").removeprefix("generation ")
        world.settle()
        walk.click("text=All replays")
        walk.click(f"th a:text-is('{generation}')")
        walk.click("text=Compare them at a question")
        walk.page.fill("#session_id", "chat-8")
        walk.page.fill("#input", "What do I repair?")
        walk.click("text=Read and reveal")
        read = [walk.page.inner_text(f"section >> nth={at}") for at in (0, 1)]
        assert "of what serves" in read[0] and f"of generation {generation}" in read[1]
        assert all("repair clocks" in text for text in read)
        with Walk(world, browser) as other:
            other.log_in()
            other.page.goto("/page/question")
            other.page.fill("#session_id", "chat-8")
            other.page.select_option("#against", generation)
            other.click("text=Read and reveal")
            assert other.violations() == []
        walk.click("button:has-text('Promote')")
        assert "The generation serves." in walk.page.inner_text("main")
        assert walk.clicks <= 6


def test_earlier_words_of_a_fact_are_restored(world: World, browser: Browser) -> None:
    world.model.behave()
    world.put("chat-7", "gil", "I play the oboe.")
    world.settle()
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.page.goto("/page/users/gil")
        walk.click("text=Reveal content")
        walk.click("text=Correct or delete")
        walk.page.fill("textarea", "Plays the tuba.")
        walk.click("button:text-is('Correct')")
        walk.click("text=History and sources")
        walk.click("text=Reveal content")
        walk.click("text=Restore these words")
        walk.click("text=Reveal content")
        assert "oboe" in walk.page.inner_text("main")
        assert "tuba" not in walk.page.inner_text("main")
        assert walk.violations() == []


def test_a_model_that_refuses_is_named_on_the_first_page(world: World, browser: Browser) -> None:
    world.model.behave(status=401, message="Incorrect API key provided", code="invalid_api_key")
    world.put("chat-5", "eli", "I sail.")
    with Walk(world, browser) as walk:
        walk.log_in()
        walk.page.wait_for_selector("text=waits:", timeout=60_000)
        walk.keep_picture("refusing")
        words = walk.page.inner_text("main")
        assert "OPENAI_API_KEY" in words, words
        assert walk.clicks <= 2
    world.model.behave()
    world.settle()


PAGES = {
    "now": "/page",
    "login": "/page/login",
    "letters": "/page/letters",
    "users": "/page/users",
    "user": "/page/users/ana",
    "session": "/page/sessions/chat-1",
    "question": "/page/question",
    "replays": "/page/replays",
    "generation": "/page/generations/1",
    "trail": "/page/trail",
    "keys": "/page/keys",
    "models": "/page/models",
    "refusal": "/page/users/nobody/facts/00000000-0000-0000-0000-000000000000",
}
# From a page to another one, by clicks.
BEHIND = {
    "user revealed": ("/page/users/ana", ["text=Reveal content"]),
    "fact": ("/page/users/ana", ["text=History and sources", "text=Reveal content"]),
    "session revealed": ("/page/sessions/chat-1", ["text=Reveal content"]),
    "message": ("/page/sessions/chat-1", ["a:has-text('Why')", "text=Reveal content"]),
}
