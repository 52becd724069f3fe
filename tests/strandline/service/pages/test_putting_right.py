"""The page shows and corrects memory as the routes do: hidden, recorded, and to each their own."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from tests.conftest import rows_of, wait_until
from tests.strandline.service.pages.conftest import Visitor
from tests.strandline.service.test_operators import bury
from tests.support.servers.service_server import RunningService
from tests.support.whole_words import says

HOSTILE = "<script>alert(1)</script> \x1b[31mred\x1b[0m \u202eevil\u202c </td>&amp;"
_FACT = re.compile(r'href="(/page/users/[^"]+/facts/[0-9a-f-]{36})"')


@pytest.fixture
def desk(running: RunningService) -> Iterator[Visitor]:
    """Who looks after users of ``default``."""
    key = running.make_key(scopes=["read", "write", "facts", "erase"])
    with Visitor(running, key) as visitor:
        yield visitor


def say(running: RunningService, user: str, session: str, text: str) -> None:
    with running.client(running.make_key(), user=user) as client:
        body = {"messages": [{"role": "user", "content": text}]}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()


def acts_of(running: RunningService, kind: str) -> list[tuple[str, str]]:
    """Actor and detail of each act of a kind, as the tables have them."""
    sql = "SELECT actor, coalesce(detail::text, '') FROM strandline.audit_entry WHERE act = %s"
    return rows_of(running.database_url, sql, kind)


def test_a_fact_is_added_corrected_and_deleted_by_the_key(running: RunningService, desk: Visitor) -> None:
    page = desk.send("/page/users/ana/facts", text="Lives in Lisbon.")
    assert "The fact is stored." in page.text
    assert "Lives in Lisbon." not in page.text
    shown = desk.send("/page/users/ana/reveal")
    assert "Lives in Lisbon." in shown.text
    (path,) = set(_FACT.findall(shown.text))
    version = re.findall(r'name="version" value="([^"]+)"', shown.text)[0]
    assert desk.send(f"{path}/correct", text="Lives in Porto.", version="stale").status_code == 412
    assert "new words" in desk.send(f"{path}/correct", text="Lives in Porto.", version=version).text
    (path,) = set(_FACT.findall(desk.get("/page/users/ana").text))  # other words are another fact
    fact = desk.send(f"{path}/reveal").text
    assert "Lives in Porto." in fact
    version = re.findall(r'name="version" value="([^"]+)"', fact)[0]
    assert "deleted" in desk.send(f"{path}/delete", version=version).text
    assert "Lives in Porto." not in desk.send("/page/users/ana/reveal").text


def test_a_doubt_is_settled(running: RunningService, desk: Visitor) -> None:
    desk.send("/page/users/dora/facts", text="Lives in Lisbon.")
    desk.send("/page/users/dora/facts", text="Lives in Porto.")
    (path,) = set(_FACT.findall(desk.get("/page/users/dora?doubtful=1").text))
    assert "Settle" in desk.get(path).text
    assert "settled" in desk.send(f"{path}/settle", keep="new").text
    assert not _FACT.findall(desk.get("/page/users/dora?doubtful=1").text)


def test_content_is_shown_after_a_recorded_reveal_alone(running: RunningService, desk: Visitor) -> None:
    say(running, "eve", "secrets", "the canary sings")
    before = len(acts_of(running, "reveal"))
    for path in ("/page/sessions/secrets", "/page/users/eve"):
        assert "the canary sings" not in desk.get(path).text
    assert len(acts_of(running, "reveal")) == before
    assert "the canary sings" in desk.send("/page/sessions/secrets/reveal").text
    assert "the canary sings" not in desk.get("/page/sessions/secrets").text
    assert len(acts_of(running, "reveal")) == before + 1


def test_stored_text_is_shown_as_text(running: RunningService, desk: Visitor) -> None:
    say(running, "mallory", "hostile <b>", HOSTILE)
    desk.send("/page/users/mallory/facts", text=HOSTILE)
    for path in ("/page/sessions/hostile%20%3Cb%3E", "/page/users/mallory"):
        text = desk.send(f"{path}/reveal").text
        assert "<script>alert" not in text
        assert "<b>" not in text
        assert not {"\x1b", "\u202e", "\u202c"} & {*text}
        assert html.escape("<script>alert(1)</script>", quote=False) in text
        assert "\\u202e" in text
        assert "\\x1b[31mred" in text


def test_another_namespaces_names_are_not_found(running: RunningService, desk: Visitor) -> None:
    say(running, "ana", "of-ana", "hello")
    with Visitor(running, running.make_key("acme", scopes=["read", "write", "facts"])) as acme:
        for path in ("/page/sessions/of-ana", "/page/sessions/of-ana/messages/x"):
            assert acme.get(path).status_code == 404, path
            assert acme.send(f"{path}/reveal").status_code == 404, path
        for act in ("flush", "rewind", "replace", "fork"):
            assert acme.send(f"/page/sessions/of-ana/{act}", seq="1").status_code == 404, act


def test_a_users_own_key_sees_that_user_alone(running: RunningService) -> None:
    say(running, "ana", "hers", "hello")
    say(running, "bob", "his", "hello")
    with Visitor(running, running.make_key(user_id="ana", scopes=["read", "facts"])) as ana:
        page = ana.get("/page")
        assert page.url.path == "/page/users/ana"
        assert "hers" in page.text
        assert "Erase" not in page.text
        for path in ("/page/users/bob", "/page/sessions/his"):
            assert ana.get(path).status_code == 404, path
            assert ana.send(f"{path}/reveal").status_code == 404, path
        assert ana.send("/page/users/bob/facts", text="x").status_code == 404
        for path in ("/page/users", "/page/letters", "/page/erasures/1"):
            assert ana.get(path).status_code == 403, path
        assert ana.send("/page/users/ana/erase", name="ana").status_code == 403


def test_an_erasure_asks_for_the_name_and_gives_its_receipt(running: RunningService, desk: Visitor) -> None:
    say(running, "leaver", "gone", "hello")
    assert desk.send("/page/users/leaver/erase", name="leave").status_code == 422
    exported = desk.send("/page/users/leaver/export")
    assert exported.headers["content-disposition"].startswith("attachment")
    assert '"trailer"' in exported.text
    assert exported.headers["cache-control"] == "no-store"
    page = desk.send("/page/users/leaver/erase", name="leaver")
    assert "/page/erasures/" in page.url.path
    assert "Receipt" in page.text
    assert desk.get("/page/sessions/gone").status_code == 404


def test_a_session_is_edited_forked_and_rewound(running: RunningService, desk: Visitor) -> None:
    for text in ("one", "two", "three"):
        say(running, "ana", "edited", text)
    assert "new content" in desk.send("/page/sessions/edited/replace", seq="2", content="2nd").text
    assert says(desk.send("/page/sessions/edited/reveal").text, "2nd")
    fork = desk.send("/page/sessions/edited/fork", through_seq="2")
    assert "This session is the copy." in fork.text
    assert "taken back" in desk.send("/page/sessions/edited/rewind", from_seq="2").text
    assert not says(desk.send("/page/sessions/edited/reveal").text, "2nd")
    assert says(desk.send(f"{fork.url.path}/reveal").text, "2nd")
    assert desk.send("/page/sessions/edited/rewind", from_seq="ten").status_code == 422


def test_a_question_shows_what_a_read_gives(running: RunningService, desk: Visitor) -> None:
    say(running, "ana", "asked", "I keep bees.")
    assert "I keep bees." not in desk.get("/page/question").text
    before = len(acts_of(running, "reveal"))
    page = desk.send("/page/question", session_id="asked", input="What do I keep?").text
    assert "I keep bees." in page
    assert "Tokens: messages" in page
    assert len(acts_of(running, "reveal")) == before + 1
    assert desk.send("/page/question", session_id="never", input="?").status_code == 404


def test_a_generation_is_derived_compared_promoted_and_rolled_back(operator: Visitor) -> None:
    assert "Model calls" in operator.send("/page/replays", pipeline="summary", estimate="1").text
    assert operator.send("/page/replays", pipeline="summary", new="1").status_code == 409
    page = operator.send("/page/replays", pipeline="summary", new="1", force="1", hold="1")
    assert "The replay is under way." in page.text
    (generation,) = set(re.findall(r"/page/generations/(\d+)", page.text))
    wait_until(
        lambda: "filled" not in operator.get("/page/replays").text.partition("<h2>Replays")[0],
        timeout=30,
        what="the generation",
    )
    assert "Compared with generation" in operator.get(f"/page/generations/{generation}").text
    assert "The generation serves." in operator.send(f"/page/generations/{generation}/promote").text
    assert "serves again" in operator.send("/page/pipelines/summary/rollback").text
    assert operator.send("/page/pipelines/nonsense/rollback").status_code in (404, 422)


def test_dead_letters_of_another_namespace_are_not_found(running: RunningService) -> None:
    letter = f"{bury(running, 'default', 'not of acme')} vectors"
    with Visitor(running, running.make_key("acme", scopes=["operate"])) as acme:
        for act in ("retry", "drop"):
            page = acme.send(f"/page/letters/{act}", letter=letter).text
            assert "Nothing was left to do" in page
            assert "There are none." in page
    sql = "SELECT dropped_at FROM strandline.dead_letter WHERE event_id = %s"
    assert rows_of(running.database_url, sql, letter.split(maxsplit=1)[0]) == [(None,)]


def test_the_trail_has_the_pages_acts_with_their_key(running: RunningService, operator: Visitor) -> None:
    operator.send("/page/users/tracy/facts", text="Likes tea.")
    trail = operator.get("/page/trail?kind=facts.add").text
    key = operator.client.cookies["strandline_page"].split(".")[2]
    assert f"key:{key}" in trail
    assert "127.0.0.1" in trail
    assert key in operator.get("/page/keys").text


def test_the_longest_wait_is_named_and_recorded(running: RunningService, operator: Visitor) -> None:
    say(running, "ana", "waiting", "hello")
    operator.send("/page/sessions/waiting/flush", all="1")
    before = len(acts_of(running, "reveal"))
    page = operator.send("/page/longest").text
    assert "extract" in page
    assert "/page/sessions/" in page
    assert len(acts_of(running, "reveal")) == before + 1
    assert operator.get("/page/longest").status_code == 405


def test_no_page_has_a_canary_before_it_is_revealed(running: RunningService, operator: Visitor) -> None:
    canary = "canary-7193"
    say(running, "carl", "cage", f"I keep a {canary}.")
    operator.send("/page/sessions/cage/flush", all="1")
    with running.client(running.make_key(), user="carl") as client:
        fact = client.post(
            "/v1/users/carl/facts", json={"text": f"Keeps a {canary}.", "topics": [canary]}
        ).json()
        doubtful = {"text": f"Does not keep a {canary}."}
        client.post("/v1/users/carl/facts", json=doubtful).raise_for_status()
        path = f"/v1/users/carl/facts/{fact['fact_id']}"
        client.put(f"{path}/feedback", json={"feedback": f"No {canary}!"}).raise_for_status()
        (message,) = client.get("/v1/sessions/cage/messages").json()["items"]
    mine = "/page/users/carl"
    hidden = [mine, f"{mine}/facts/{fact['fact_id']}", "/page/sessions/cage"]
    hidden.append(f"/page/sessions/cage/messages/{message['id']}")
    others = ["/page", "/page/users", "/page/letters", "/page/question", "/page/replays", "/page/trail"]
    for page in (*hidden, *others, "/page/keys", "/page/models", f"{mine}?doubtful=1"):
        answer = operator.get(page)
        assert (answer.status_code, canary in answer.text) == (200, False), page
    for page in hidden:
        assert canary in operator.send(f"{page}/reveal").text, page
