"""Who enters the page, and what a foreign page, a stolen form or an ended key can do."""

from __future__ import annotations

import re

import pytest

from strandline.administration.keys import revoke_key
from strandline.service.gate import authentication
from strandline.service.pages.sessions import COOKIE, PageSession, Sealer, cookie_header
from tests.strandline.service.pages.conftest import Visitor
from tests.support.servers.service_server import RunningService


def test_a_key_opens_the_page_and_is_not_in_the_cookie(running: RunningService) -> None:
    key = running.make_key(None, scopes=["operate"])
    with running.client(None) as client:
        assert client.get("/page").headers["location"] == "/page/login"
        assert "Log in" in client.get("/page/login").text
        response = client.post("/page/login", data={"key": key.key})
        assert (response.status_code, response.headers["location"]) == (303, "/page")
        cookie = response.headers["set-cookie"]
        secret = key.key.rpartition("_")[2]
        assert secret not in cookie
        assert "HttpOnly; SameSite=Strict" in cookie
        assert "Path=/page;" in cookie
        for path in ("/page", "/page/"):
            assert "Does memory keep up?" in client.get(path).text


def test_over_tls_the_cookie_is_sent_over_tls_alone() -> None:
    assert cookie_header("x", is_secure=True).endswith("; Secure")


def test_a_wrong_key_is_refused(running: RunningService) -> None:
    with running.client(None) as client:
        response = client.post("/page/login", data={"key": "sl_0123456789abcdef_" + "0" * 64})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


def test_each_answer_forbids_frames_foreign_sources_and_keeping(operator: Visitor) -> None:
    for path in ("/page", "/page/login", "/page/live"):
        headers = operator.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_form_of_another_origin_is_refused(operator: Visitor, headers: dict[str, str]) -> None:
    for path, fields in (("/page/logout", {"token": operator.token}), ("/page/login", {"key": "x"})):
        response = operator.client.post(path, data=fields, headers=headers)
        assert response.status_code == 403, path


def test_a_form_without_this_sessions_token_is_refused(running: RunningService, operator: Visitor) -> None:
    with Visitor(running, running.make_key()) as other:
        foreign = other.token
    for token in ("", "0" * 64, foreign, "é"):
        assert operator.client.post("/page/logout", data={"token": token}).status_code == 403
    assert operator.get("/page").status_code == 200
    operator.send("/page/logout")
    assert "Log in" in operator.get("/page").text


def test_a_revoked_key_ends_its_sessions(running: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    key = running.make_key()
    with Visitor(running, key) as visitor:
        assert "Log out" in visitor.get("/page").text
        running.database.run(revoke_key(key.key_id))
        monkeypatch.setattr(authentication, "TRUSTED_SECONDS", 0.0)
        assert "Log out" not in visitor.get("/page").text


def test_a_cookie_is_of_one_secret_and_ends() -> None:
    sealer = Sealer("1" * 32)
    session = PageSession(("0123456789abcdef",), 2_000_000_000)
    value = sealer.seal(session)
    assert sealer.open(value, 1_999_999_999) == session
    assert sealer.open(value, 2_000_000_000) is None
    assert Sealer("2" * 32).open(value, 0) is None
    for changed in (value[:-1] + "x", value.replace("0123", "1123"), "3" + value[1:], "", value + "\n"):
        assert sealer.open(changed, 0) is None


def test_without_the_setting_there_is_no_page(running: RunningService) -> None:
    with RunningService(running.database_url) as plain, plain.client(None) as client:
        assert client.get("/page").status_code == 404


def test_the_page_is_not_in_the_description(running: RunningService, operator: Visitor) -> None:
    with running.client(None) as client:
        assert "/page" not in client.get("/openapi.json").text
        assert client.get("/page/-/standing").status_code == 404
    assert COOKIE in operator.client.cookies


def test_the_first_page_and_all_that_it_loads_is_light(operator: Visitor) -> None:
    page = operator.get("/page")
    loaded = set(re.findall(r'(?:href|src)="(/page/static/[^"]+)"', page.text))
    assert loaded == {f"/page/static/{name}" for name in ("icon.svg", "page.css", "htmx.min.js")}
    assert len(page.content) + sum(len(operator.get(path).content) for path in loaded) <= 150_000
    assert operator.get("/page/static/base.html").status_code == 404


def test_a_head_of_http_cannot_name_a_session_of_the_page(running: RunningService) -> None:
    key = running.make_key()
    with running.client(None) as client:
        for name in ("strandline.page_key", "Strandline-Page-Key", "Cookie"):
            assert client.get("/v1/whoami", headers={name: key.key_id}).status_code == 401
