"""One's own memory in a frame: for one user, in pages of named origins alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.keys import NewKey
from tests.conftest import rows_of
from tests.strandline.service.pages.conftest import SECRET, Visitor
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService
from tests.support.whole_words import says

SITE = "https://chat.example"
FRAMED = {"Origin": SITE, "Sec-Fetch-Site": "cross-site"}
_FACT = re.compile(r"(/page/own/facts/[0-9a-f-]{36})/delete")


@pytest.fixture(scope="module")
def framing(stack: EmbeddedStack) -> Iterator[RunningService]:
    """The service, whose pages of one user one site may frame."""
    with (
        temporary_database(stack.database_url) as url,
        RunningService(
            url,
            service_page_secret=SECRET,
            service_page_origins=f"{SITE}/",
            service_trusted_proxies="127.0.0.1",
        ) as service,
    ):
        yield service


class Frame:
    """A frame of the site: sends the cookie, which browsers keep apart for the site, by hand."""

    def __init__(self, client: httpx2.Client, key: NewKey) -> None:
        self.client = client
        self.entered = self.client.post("/page/own", data={"key": key.key}, headers=FRAMED)
        self._cookie = {"Cookie": self.entered.headers.get("set-cookie", "").partition(";")[0]}
        self._token = ""

    def get(self, path: str = "/page/own") -> httpx2.Response:
        """A page of the view."""
        page = self.client.get(path, headers=self._cookie)
        self._token = "".join(re.findall(r'name="token" value="([0-9a-f]+)"', page.text)[:1])
        return page

    def send(self, path: str, **fields: str) -> httpx2.Response:
        """The page that follows a form of the view."""
        headers = {**self._cookie, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
        answer = self.client.post(path, data={"token": self._token, **fields}, headers=headers)
        return self.get(answer.headers["location"]) if answer.status_code == 303 else answer


Enter = Callable[[RunningService, NewKey], Frame]


@pytest.fixture
def enter() -> Iterator[Enter]:
    """Sends a key from the site."""
    with ExitStack() as clients:
        yield lambda service, key: Frame(clients.enter_context(service.client(None)), key)


def test_a_user_sees_and_puts_right_their_own_memory_alone(framing: RunningService, enter: Enter) -> None:
    for user, text in (("ana", "I keep bees."), ("bob", "I box.")):
        with framing.client(framing.make_key(), user=user) as client:
            said = {"messages": [{"role": "user", "content": text}]}
            client.post(f"/v1/sessions/of-{user}/messages", json=said).raise_for_status()
            client.post(f"/v1/users/{user}/facts", json={"text": f"Fact of {user}."}).raise_for_status()
    frame = enter(framing, framing.make_key(user_id="ana", scopes=["read", "facts"]))
    page = frame.get().text
    assert "Fact of ana." in page and "of-ana" in page
    assert not says(page, "bob") and "of-bob" not in page and "<nav" not in page and "/page/users" not in page
    assert "The fact is stored." in frame.send("/page/own/facts", text="Sails.").text
    (first, *_) = dict.fromkeys(_FACT.findall(frame.get().text))
    assert "deleted" in frame.send(f"{first}/delete").text
    (left,) = dict.fromkeys(_FACT.findall(frame.get().text))
    assert "new words" in frame.send(f"{left}/correct", text="Rows.").text
    assert "Rows." in frame.get().text
    others = enter(framing, framing.make_key(user_id="bob", scopes=["read", "facts"]))
    shown = others.get().text
    assert "Fact of bob." in shown and "Rows." not in shown
    assert frame.get("/page/own?session=of-bob").status_code == 404
    frame.get()
    (theirs,) = dict.fromkeys(_FACT.findall(shown))
    for act, fields in (("delete", {}), ("correct", {"text": "x"})):
        assert frame.send(f"{theirs}/{act}", **fields).status_code == 404


def test_a_key_that_may_only_read_has_no_forms(framing: RunningService, enter: Enter) -> None:
    frame = enter(framing, framing.make_key(user_id="ana", scopes=["read"]))
    assert "<form" not in frame.get().text
    assert frame.send("/page/own/facts", text="x").status_code == 403


def test_only_the_named_site_may_frame_it_and_enter(framing: RunningService, enter: Enter) -> None:
    key = framing.make_key(user_id="ana", scopes=["read", "facts"])
    frame = enter(framing, key)
    cookie = frame.entered.headers["set-cookie"]
    for part in ("Path=/page/own;", "HttpOnly", "SameSite=None", "Partitioned", "Secure"):
        assert part in cookie
    assert key.key.rpartition("_")[2] not in cookie
    for answer in (frame.get(), frame.client.get("/page/own"), frame.client.get("/page/own/other")):
        policy = answer.headers["content-security-policy"]
        is_view = answer.request.url.path == "/page/own"
        assert f"frame-ancestors {SITE if is_view else chr(39) + 'none' + chr(39)};" in policy
        assert ("x-frame-options" in answer.headers) is not is_view
    assert "frame-ancestors 'none'" in frame.client.get("/page/login").headers["content-security-policy"]
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        answer = frame.client.post("/page/own", data={"key": key.key}, headers=headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False), headers


@pytest.mark.parametrize(
    ("host", "scheme", "status"),
    [
        ("memory.example", "http", 403),
        ("10.0.0.7:8080", "http", 403),
        ("localhost.example", "http", 403),
        ("[", "http", 403),
        ("memory.example", "https", 303),
        ("LOCALHOST:8080", "http", 303),
        ("127.0.0.2", "http", 303),
        ("[::1]:8080", "http", 303),
    ],
)
@pytest.mark.parametrize("site", [SITE, ""])
def test_no_key_is_taken_in_clear(
    framing: RunningService, site: str, host: str, scheme: str, status: int
) -> None:
    key = framing.make_key(user_id="ana", scopes=["read"])
    headers = {"Origin": site or f"{scheme}://{host}", "Host": host, "X-Forwarded-Proto": scheme}
    with framing.client(None) as client:
        answer = client.post("/page/own", data={"key": key.key}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (status, status == 303)
    assert ("over TLS" in answer.text) is (status == 403)


def test_a_cookie_opens_what_it_was_made_for(framing: RunningService, enter: Enter) -> None:
    frame = enter(framing, framing.make_key(user_id="ana", scopes=["read", "facts"]))
    own = frame.entered.headers["set-cookie"].partition(";")[0]
    with framing.client(None) as client:
        assert client.get("/page", headers={"Cookie": own}).headers["location"] == "/page/login"
        ended = client.get("/page/own")
        assert (ended.status_code, "This view has ended" in ended.text) == (401, True)
        assert "Go to the first page" not in ended.text
        desk = client.post("/page/login", data={"key": framing.make_key().key}).headers["set-cookie"]
        renamed = desk.partition(";")[0].replace("strandline_page", "strandline_own")
        assert client.get("/page/own", headers={"Cookie": renamed}).status_code == 403
        assert client.post("/page/own/facts", data={"text": "x"}, headers={"Cookie": own}).status_code == 403
    for key in (framing.make_key(), framing.make_key(None, scopes=["operate"])):
        assert enter(framing, key).entered.status_code == 403


def test_what_is_shown_is_in_the_trail(framing: RunningService, enter: Enter) -> None:
    key = framing.make_key(user_id="ana", scopes=["read"])
    sql = "SELECT count(*) FROM strandline.audit_entry WHERE act = 'reveal' AND actor = %s"
    frame = enter(framing, key)
    for shown in (1, 2):
        frame.get()
        assert rows_of(framing.database_url, sql, f"key:{key.key_id}") == [(shown,)]


def test_without_named_origins_nothing_frames_it(running: RunningService, enter: Enter) -> None:
    with Visitor(running) as visitor:
        assert "frame-ancestors 'none'" in visitor.get("/page/own").headers["content-security-policy"]
        assert visitor.get("/page/own").headers["x-frame-options"] == "DENY"
    key = running.make_key(user_id="ana", scopes=["read"])
    assert enter(running, key).entered.status_code == 403


@pytest.mark.parametrize("origins", ["*", "https:", "chat.example", "https://a.example;script-src *"])
def test_what_is_no_origin_is_refused(origins: str) -> None:
    with pytest.raises(ConfigurationError, match="STRANDLINE_SERVICE_PAGE_ORIGINS"):
        load_settings(service_page_origins=origins)
