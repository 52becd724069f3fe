"""The page in Chromium: it can be read by everybody, stays by itself, and a task takes few clicks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from strandline.deploy.embedded.stack import EmbeddedStack
from tests.strandline.service.pages.browsing import (
    CHROMIUM,
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
        world.await_dead()
        yield world
        world.model.behave()


@pytest.mark.parametrize("look", LOOKS)
def test_each_page_reads_well(world: World, browser: Browser, look: str) -> None:
    with Walk(world, browser, **LOOKS[look]) as walk:
        walk.log_in()
        for name, path in PAGES.items():
            walk.page.goto(path)
            assert walk.page.inner_text("h1")
            walk.keep_picture(f"{name} {look}")
            if look != "without script":
                assert walk.violations() == [], (name, look)
                width = walk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert width <= 0, (name, look, width)
        assert (walk.complaints, walk.elsewhere) == ([], [])


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


PAGES = {"now": "/page", "login": "/page/login", "letters": "/page/letters"}
