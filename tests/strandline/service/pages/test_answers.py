"""Each refusal is shown with its reason, each act with its outcome, each list with its filters."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from strandline.service.pages import letters, now, rendering, users, visits
from strandline.service.pages.routing import HEADERS
from strandline.service.pages.sessions import COOKIE, PageSession, Sealer, cookie_in
from tests.conftest import rows_of
from tests.strandline.service.pages.conftest import SECRET, Visitor
from tests.strandline.service.test_operators import bury
from tests.support.servers.service_server import RunningService

NO_LETTER = "00000000-0000-0000-0000-000000000000 vectors"


@pytest.fixture
def reader(running: RunningService) -> Iterator[Visitor]:
    """Who may not erase, so not export either."""
    with Visitor(running, running.make_key(scopes=["read", "facts"])) as visitor:
        yield visitor


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("/page/users/ana/erase", {"name": "an"}, 422, users.MISTYPED),
        ("/page/users/ana/facts", {"text": ""}, 422, "/text"),
        ("/page/sessions/asked/rewind", {"from_seq": "ten"}, 422, "/from_seq"),
        *(
            ("/page/question", {"session_id": "asked", "token_limit": limit}, 422, "/token_limit")
            for limit in ("²", "٣", "12345678901", "9" * 30, "ten", "-5", "1.5", "3")
        ),
        ("/page/letters/retry", {"letter": "x vectors"}, 422, "/event_id"),
    ],
)
def test_a_refusal_says_its_place_and_its_reason(
    running: RunningService, operator: Visitor, path: str, fields: dict[str, str], status: int, words: str
) -> None:
    with running.client(running.make_key(), user="ana") as client:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        client.post("/v1/sessions/asked/messages", json=body).raise_for_status()
    page = operator.send(path, **fields)
    assert (page.status_code, words in html.unescape(page.text)) == (status, True), page.text
    assert "`errors`" not in page.text


def test_a_defect_is_a_page_with_its_instance(operator: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(now, "acts", None)
    page = operator.get("/page/keys")
    assert page.status_code == 500
    assert re.search(r"urn:uuid:[0-9a-f-]{36}", page.text)


@pytest.mark.parametrize(
    "origin", ["http://[", "http://]", "//", "x", "http://127.0.0.1.example", "²", "http://"]
)
def test_no_origin_is_a_defect(operator: Visitor, origin: str) -> None:
    headers = {b"Origin": origin.encode()}
    answer = operator.client.post("/page/logout", data={"token": operator.token}, headers=headers)
    assert answer.status_code == 403


def test_an_export_that_is_refused_is_no_file(running: RunningService, reader: Visitor) -> None:
    refused = reader.send("/page/users/ana/export")
    assert (refused.status_code, refused.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "log in with another key" in refused.text
    with Visitor(running, running.make_key(user_id="ana", scopes=["read", "erase"])) as ana:
        foreign = ana.send("/page/users/bob/export")
    assert foreign.status_code == 404
    assert "content-disposition" not in foreign.headers


def links(page: str, words: str) -> dict[str, list[str]]:
    """The query of the link with these words."""
    (address,) = re.findall(rf'<a href="([^"]+)">{words}</a>', page)
    return parse_qs(urlsplit(html.unescape(address)).query)


@pytest.mark.parametrize("path", ["/page/users/paul", "/page/users/reveal", "/page/users/a%2Fb"])
def test_the_next_page_of_facts_has_the_filters(
    operator: Visitor, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(users, "FACTS_SHOWN", 1)
    for text in ("Likes tea.", "Has a boat."):
        operator.send(f"{path}/facts", text=text)
    page = operator.get(f"{path}?with_invalidated=1&done=added")
    for shown in (page, operator.send(f"{path}/reveal?with_invalidated=1")):
        query = links(shown.text, "Older ones")
        assert query.pop("cursor")
        assert query == {"with_invalidated": ["1"]}
        (address,) = re.findall(r'href="([^"]+)">Older ones', shown.text)
        following = operator.get(html.unescape(address))
        assert (following.status_code, following.url.path) == (200, page.url.path)
        assert following.text.count("History and sources") == 1


def test_the_next_page_of_letters_and_the_page_after_an_act_have_the_filters(
    running: RunningService, operator: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session in ("filtered-1", "filtered-2"):
        bury(running, "default", session)
    monkeypatch.setattr(letters, "LETTERS_SHOWN", 1)
    page = operator.get("/page/letters?pipeline=vectors&dropped=true")
    query = links(page.text, "Later ones")
    assert query.pop("cursor")
    assert query == {"pipeline": ["vectors"], "dropped": ["true"]}
    for address in re.findall(r'action="(/page/letters/[^"]+)"', page.text):
        answer = operator.send(html.unescape(address))
        assert "Nothing was ticked" in answer.text
        assert dict(answer.url.params) == {"pipeline": "vectors", "dropped": "true", "done": "unticked"}


def test_the_trail_keeps_what_was_asked(running: RunningService, operator: Visitor) -> None:
    with running.client(running.make_key()) as client:
        for number in range(101):
            client.post("/v1/users/trudy/facts", json={"text": f"Owns boat {number}."}).raise_for_status()
    page = operator.get("/page/trail?kind=facts.add&actor=&user_id=trudy")
    for name, value in (("kind", "facts.add"), ("actor", ""), ("user_id", "trudy")):
        assert f'name="{name}" value="{value}"' in page.text
    query = links(page.text, "Earlier ones")
    assert query.pop("cursor")
    assert query == {"kind": ["facts.add"], "user_id": ["trudy"]}


@pytest.mark.parametrize(
    ("act", "buried", "missing", "voided", "words"),
    [
        ("retry", 2, 0, 0, "The events are due again."),
        ("drop", 2, 0, 0, "The events are given up."),
        ("retry", 3, 2, 0, "3 of 5 dead letters are due again"),
        ("drop", 1, 1, 0, "1 of 2 dead letters are given up"),
        ("retry", 1, 0, 1, "1 of 2 dead letters are due again"),
        ("retry", 0, 0, 1, "Nothing was left to do"),
        ("drop", 0, 1, 0, "Nothing was left to do"),
        ("retry", 0, 0, 0, "Nothing was ticked"),
    ],
)
def test_a_notice_counts_the_outcomes(
    running: RunningService, operator: Visitor, act: str, buried: int, missing: int, voided: int, words: str
) -> None:
    case = f"{act}-{buried}-{missing}-{voided}"
    chosen = [f"{bury(running, 'default', f'{case}-{number}')} vectors" for number in range(buried + voided)]
    for letter in chosen[buried:]:
        reset(running, letter)
    gone = [NO_LETTER.replace("0", str(number), 1) for number in range(missing)]
    fields: dict[str, Any] = {"letter": [*gone, *chosen, *chosen[:1]]}
    assert words in operator.send(f"/page/letters/{act}", **fields).text


def test_a_retry_of_a_message_says_its_outcome(running: RunningService, operator: Visitor) -> None:
    event = bury(running, "default", "of a message")
    path = "/page/sessions/of%20a%20message/messages"
    with running.client(running.make_key(), user="ana") as client:
        (message,) = client.get("/v1/sessions/of%20a%20message/messages").json()["items"]
    for words in ("The events are due again.", "Nothing was left to do"):
        page = operator.send(f"{path}/{message['id']}/retry", event_id=event)
        assert (page.status_code, words in page.text) == (200, True), page.text
        assert page.url.path == f"/page/sessions/of a message/messages/{message['id']}"


def reset(running: RunningService, letter: str) -> None:
    """Have the letter be of an earlier state of its session."""
    sql = """UPDATE strandline.dead_letter SET incarnation = gen_random_uuid() WHERE event_id = %s
        RETURNING 1"""
    assert rows_of(running.database_url, sql, letter.split(maxsplit=1)[0]) == [(1,)]


def test_the_login_has_no_notice(running: RunningService, operator: Visitor) -> None:
    with Visitor(running) as nobody:
        for visitor in (nobody, operator):
            assert 'class="notice"' not in visitor.get("/page/login?done=deleted").text


@pytest.mark.parametrize("part", ["", "9" * 9 + " of 1", "<b>3</b>", "3 of 5, and <b>", "{0}", "٣ of ٥"])
def test_a_notice_takes_numbers_alone_from_its_address(operator: Visitor, part: str) -> None:
    page = operator.client.get("/page/letters", params={"done": "part-due", "part": part})
    assert "Some dead letters are due again" in page.text


def test_pages_are_rendered_off_the_event_loop(operator: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def render(template: str, **values: Any) -> str:
        threads.append(threading.current_thread().name)
        return rendering.render(template, **values)

    monkeypatch.setattr(visits, "render", render)
    operator.get("/page/users")
    operator.get("/page/erasures/none")
    assert len(threads) == 2
    assert "service" not in threads


def test_an_operator_with_the_key_of_one_user_sees_the_stages_and_the_user(running: RunningService) -> None:
    keys = running.make_key(None, scopes=["operate"]), running.make_key(user_id="ana", scopes=["read"])
    with running.client(running.make_key(), user="ana") as client:
        said = {"messages": [{"role": "user", "content": "I sail."}]}
        client.post("/v1/sessions/of-ana/messages", json=said).raise_for_status()
    with Visitor(running, *keys) as visitor:
        page = visitor.get("/page")
        assert page.url.path == "/page"
        assert "No worker is alive." in page.text
        assert 'href="/page/users/ana"' in page.text
        assert 'name="generation"' not in visitor.get("/page/question").text
        asked = visitor.send("/page/question", session_id="of-ana", generation="1")
        assert asked.status_code == 403 and "takes a key of the whole namespace" in asked.text


@pytest.mark.parametrize(
    "content",
    ["\nfirst", "a\u200bb", "one\n\ntwo\n", "\t<b>&amp;</b></textarea>", " \u202eevil\u202c ", "👩\u200d🚀"],
)
def test_an_edit_without_a_change_changes_nothing(
    running: RunningService, operator: Visitor, content: str
) -> None:
    with running.client(running.make_key(), user="ed") as client:
        session = f"edited-{content.encode().hex()}"
        body = {"messages": [{"role": "user", "content": content}]}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
        page = operator.send(f"/page/sessions/{session}/reveal").text
        # As a browser reads it: without the first end of line, and with CRLF for each when it is sent.
        (text,) = re.findall(r'<textarea[^>]*name="content"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
        sent = html.unescape(text).replace("\n", "\r\n")
        assert operator.send(f"/page/sessions/{session}/replace", seq="1", content=sent).status_code == 200
        assert client.get(f"/v1/sessions/{session}/messages").json()["items"][0]["content"] == content


@pytest.mark.parametrize("content", ["\x1b[31m", "a\rb", "a\r\nb", "\x0c", "\x9b"])
def test_what_a_form_would_change_is_not_edited_there(
    running: RunningService, operator: Visitor, content: str
) -> None:
    with running.client(running.make_key(), user="ed") as client:
        session = f"uneditable-{content.encode().hex()}"
        body = {"messages": [{"role": "user", "content": content}]}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    page = operator.send(f"/page/sessions/{session}/reveal").text
    assert "<textarea" not in page
    assert "A form would change its control characters" in page


def test_a_long_message_is_cut_and_says_so(running: RunningService, operator: Visitor) -> None:
    with running.client(running.make_key(), user="ed") as client:
        body = {"messages": [{"role": "user", "content": "\n" * 12_345}]}
        client.post("/v1/sessions/long/messages", json=body).raise_for_status()
    page = operator.send("/page/sessions/long/reveal").text
    assert "and 2,345 characters more" in page
    assert page.count("<br>") == rendering.MAX_SHOWN_CHARACTERS


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/page/nothing", 404),
        ("POST", "/page/nothing", 404),
        ("GET", "/page/logout", 405),
        ("PUT", "/page/users", 405),
        ("POST", "/page", 405),
        ("HEAD", "/page/users", 405),
        ("GET", "/page/static/nothing", 404),
        ("GET", "/page/-/standing", 404),
        ("GET", "/page/users/%FF", 422),
        ("GET", "/page/sessions/a%C3/messages/b", 422),
    ],
)
def test_each_refusal_below_the_page_is_a_page(
    operator: Visitor, method: str, path: str, status: int
) -> None:
    answer = operator.client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("others", ["other=one two", "x[y]=1", "a", 'q="', "é=ü", "strandline=1"])
def test_cookies_of_others_do_not_matter(others: str) -> None:
    for header in (f"{others}; {COOKIE}=ours", f"{COOKIE}=ours; {others}"):
        assert cookie_in(header.encode("latin-1"), COOKIE) == "ours"
    assert cookie_in(others.encode("latin-1"), COOKIE) == ""


def test_a_further_key_does_not_prolong_the_time_of_the_first(running: RunningService) -> None:
    first, second = running.make_key(), running.make_key(None, scopes=["operate"])
    sealer, ends_at = Sealer(SECRET), int(time.time()) + 60
    with Visitor(running) as visitor:
        cookie = sealer.seal(PageSession((first.key_id,), ends_at))
        visitor.client.cookies.set(COOKIE, cookie, domain="127.0.0.1", path="/page")
        for typed, ends_early in ((second, True), (first, True), (f"{first.key} {second.key}", False)):
            visitor.get("/page/login")
            visitor.send("/page/login", key=typed if isinstance(typed, str) else typed.key)
            session = sealer.open(visitor.client.cookies[COOKIE], 0)
            assert session is not None
            assert {*session.key_ids} == {first.key_id, second.key_id}
            assert (session.ends_at == ends_at) == ends_early


def test_the_sessions_of_a_user_go_on_behind_the_first_page(
    running: RunningService, operator: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "FACTS_SHOWN", 1)
    with running.client(running.make_key(), user="sue") as client:
        for session in ("sue-1", "sue-2"):
            body = {"messages": [{"role": "user", "content": "hello"}]}
            client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    page = operator.get("/page/users/sue").text
    (address,) = re.findall(r'<a href="([^"]+)">Further sessions</a>', page)
    both = page + operator.get(html.unescape(address)).text
    assert {"sue-1", "sue-2"} <= {*re.findall(r"/page/sessions/(sue-\d)", both)}


def test_a_stage_without_a_worker_is_named_alone(running: RunningService, operator: Visitor) -> None:
    bury(running, "default", "fed")
    sql = """INSERT INTO strandline.worker (worker_id, host, pid, version, stages)
        VALUES (gen_random_uuid(), 'h', 1, '1', %s) RETURNING 1"""
    rows_of(running.database_url, sql, ["extract", "vectors"])
    rows = re.findall(r'<tr><th scope="row">(\w+)(.*?)</tr>', operator.get("/page").text, re.DOTALL)
    rows_of(running.database_url, "DELETE FROM strandline.worker RETURNING 1")
    unserved = {name for name, row in rows if "no live worker runs it" in row}
    assert unserved == {"merge", "summary"}
