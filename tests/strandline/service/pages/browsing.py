"""A world to browse: the service with its page, a worker process, a model's stand-in; and Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import NewKey
from tests.conftest import nothing_due, rows_of, wait_until
from tests.strandline.service.pages.conftest import SECRET
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer
from tests.support.servers.service_server import RunningService
from tests.support.workers.worker_processes import launch_worker

# Of a page that may show a user's own view in a frame.
SITE = "http://localhost:1"
CHROMIUM = Path("/usr/bin/chromium")
# Headless, and of itself it asks for nothing; the service is on loopback, a site around it is not.
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-features=LocalNetworkAccessChecks",
]  # fmt: skip
AXE = (Path(__file__).parents[3] / "support/axe/axe.min.js").read_text()
VIOLATIONS = """
async () => (await axe.run(document, {resultTypes: ["violations"]}))
    .violations.map(one => one.id + ": " + one.nodes.map(node => node.html + node.failureSummary).join("; "))
"""


@dataclass
class World:
    """What the browser looks at."""

    service: RunningService
    model: ModelServer
    broker_url: str
    keys: tuple[NewKey, NewKey]

    def put(self, session: str, user: str, *texts: str) -> None:
        """Put what a user said, and deliver it."""
        with self.service.client(self.keys[1], user=user) as client:
            said = [{"role": "user", "content": text} for text in texts]
            client.post(f"/v1/sessions/{session}/messages", json={"messages": said}).raise_for_status()
            client.post(f"/v1/sessions/{session}/flush", json={"all": True}).raise_for_status()

    def settle(self) -> None:
        """Wait until nothing is due."""
        wait_until(lambda: nothing_due(self.service.database_url), timeout=30, what="the workers")

    def await_dead(self, session: str) -> None:
        """Wait until facts and summary have given up on a session."""
        sql = """SELECT count(*) FROM strandline.dead_letter l JOIN strandline.session s USING (session_key)
            WHERE s.session_id = %s AND l.dropped_at IS NULL"""
        wait_until(
            lambda: rows_of(self.service.database_url, sql, session) == [(2,)],
            timeout=30,
            what="two dead letters",
        )


def _settings(model: ModelServer) -> dict[str, Any]:
    server = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-tests"}
    return {**server, "embedding_backend": "local", "service_page_secret": SECRET}


@contextmanager
def begun_world(stack: EmbeddedStack, broker_url: str) -> Iterator[World]:
    """A world with a worker that gives up soon."""
    with (
        temporary_database(stack.database_url) as url,
        ModelServer() as model,
        RunningService(
            url,
            service_page_secret=SECRET,
            service_page_origins=SITE,
            OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY="sk-tests",
            embedding_backend="local",
        ) as service,
    ):
        keys = (
            service.make_key(None, scopes=["operate"], label="operator"),
            service.make_key(scopes=["read", "write", "facts", "erase", "operate"], label="desk"),
        )
        worker = launch_worker(
            url,
            broker_url,
            OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY="sk-tests",
            STRANDLINE_EMBEDDING_BACKEND="local",
            STRANDLINE_RETRY_BASE_SECONDS="0.05",
            STRANDLINE_RETRY_MAX_SECONDS="0.2",
            STRANDLINE_MAX_FAILURES="2",
        )
        try:
            sql = "SELECT count(*) FROM strandline.worker"
            wait_until(lambda: rows_of(url, sql) != [(0,)], timeout=30, what="the worker to register")
            yield World(service, model, broker_url, keys)
        finally:
            worker.end()


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Chromium as it is installed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Walk:
    """One visitor in the browser, whose clicks are counted, and whose console and requests are watched."""

    def __init__(self, world: World, browser: Browser, **context: Any) -> None:
        self.world = world
        self.context = browser.new_context(base_url=world.service.url, **context)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.clicks = 0
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self._note(request.url))

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def log_in(self, *keys: NewKey) -> None:
        """Log in, by default with both keys of the world."""
        self.page.goto("/page/login")
        self.page.fill("#key", " ".join(key.key for key in keys or self.world.keys))
        self.page.click("text=Log in >> nth=-1")
        self.page.wait_for_selector("text=Log out")

    def click(self, what: str) -> None:
        """Click, and count it."""
        self.clicks += 1
        self.page.click(what)

    def violations(self) -> list[str]:
        """What axe-core finds on the page."""
        self.page.evaluate(AXE)
        found: list[str] = self.page.evaluate(VIOLATIONS)
        return found

    def keep_picture(self, name: str) -> None:
        """A picture in the folder of PAGE_PICTURES, if it is set."""
        if folder := os.environ.get("PAGE_PICTURES"):
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note(self, url: str) -> None:
        if not url.startswith((self.world.service.url, "data:")):
            self.elsewhere.append(url)
