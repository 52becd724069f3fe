"""Each refusal is shown with its reason, each act with its outcome, each list with its filters."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from strandline.service.pages import letters, records, rendering, users, visits
from tests.conftest import rows_of
from tests.strandline.service.pages.conftest import Visitor
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
    monkeypatch.setattr(records, "acts", None)
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
    with Visitor(running, *keys) as visitor:
        page = visitor.get("/page")
        assert page.url.path == "/page"
        assert "No worker is alive." in page.text
        assert 'href="/page/users/ana"' in page.text
