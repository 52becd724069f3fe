"""Refusals: one form for all of them, the framework's own as well, and never a word of the request."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.schemas import errors
from strandline.schemas.wire.base import Problem
from strandline.service.gate.problems import KINDS, refusal_of
from tests.support.servers.service_server import RunningService


def problem(answer: httpx2.Response, status: int, kind: str) -> Problem:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), (
        answer.text
    )
    found = Problem.model_validate(answer.json())
    assert (found.type, found.status) == (f"urn:strandline:problem:{kind}", status)
    return found


def test_the_frameworks_own(client: httpx2.Client) -> None:
    problem(client.get("/nothing"), 404, "no-route")
    wrong = client.put("/v1/whoami")
    problem(wrong, 405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET, HEAD"
    assert client.put("/v1/sessions/x/messages").headers["allow"] == "GET, HEAD, POST"
    path, kind = "/v1/sessions/x/messages", {"Content-Type": "application/json"}
    problem(client.post(path, content=b"{", headers=kind), 400, "malformed")
    problem(client.post(path, content=b"\xff\xfe{}", headers=kind), 400, "malformed")
    problem(client.post(path, content=b'{"a":' * 5_000, headers=kind), 400, "malformed")
    problem(client.post(path, content=b"[" + b"9" * 6_000 + b"]", headers=kind), 400, "malformed")
    problem(client.post(path, content=b'{"messages": "\\udfff"}', headers=kind), 422, "invalid")
    problem(client.post(path, content=b"messages=1"), 422, "invalid")
    problem(client.post(path), 422, "invalid")
    problem(client.post(path, content=b"x" * 2_000_000, headers=kind), 413, "too-large")


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"text", "text/plain"),
        (b"{}", ""),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"7", "application/json"),
        (b"null", "application/json; charset=utf-8"),
        (b"\xff{}", "application/json"),
        (b'{"a": "\\udfff"}', "application/problem+json"),
        (b'{"a": NaN', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"more": 1}', "application/json"),
    ],
)
def test_whoever_reads_a_body_refuses_it_alike(client: httpx2.Client, body: bytes, media_type: str) -> None:
    """The endpoints that are asked most often read theirs themselves, the framework those of others."""
    headers = {"Content-Type": media_type}
    direct = client.post("/v1/sessions/x/search", content=body, headers=headers)
    other = client.post("/v1/users/ana/facts/search", content=body, headers=headers)
    assert direct.status_code in (400, 422)

    def told(answer: httpx2.Response) -> Any:
        found = answer.json()
        fields = "; it knows "  # each body has others
        for one in found.get("errors", ()):
            one["detail"] = one["detail"].partition(fields)[0]
        return answer.status_code, found

    assert told(direct) == told(other)


@pytest.mark.parametrize("path", ["/v1/erasures/" + "9" * 5_000, "/v1/erasures/none"])
def test_a_number_that_is_none_is_refused(running: RunningService, path: str) -> None:
    with running.client(running.make_key(scopes=["erase"])) as client:
        problem(client.get(path), 422, "invalid")


@pytest.mark.parametrize("field", ["user_id", "namespace"])
def test_a_field_of_a_body_is_named_there_whatever_it_is_elsewhere(
    running: RunningService, field: str
) -> None:
    spec: dict[str, Any] = {"namespace": "acme", "user_id": "ana", "scopes": ["read"]}
    wrong = {field: "x" * 2_000}
    with running.client(running.make_key(None, scopes=["operate"])) as client:
        found = problem(client.post("/v1/admin/keys", json=spec | wrong), 422, "invalid")
    assert [place.pointer for place in found.errors or ()] == [f"/body/{field}"]


def test_a_query_of_many_parameters_is_refused_by_their_number(client: httpx2.Client) -> None:
    many = client.get("/v1/users/x/facts?" + "topic&" * 10_000)
    (place,) = problem(many, 422, "invalid").errors or []
    assert place.detail == "It has more than 100 parameters."
    assert client.get("/v1/users/x/facts?nope=1", headers={"Authorization": ""}).status_code == 401


def test_a_body_of_many_faults_is_told_by_its_first(client: httpx2.Client) -> None:
    body = {"messages": [dict.fromkeys(map(str, range(20_000)), 1)]}
    places = problem(client.post("/v1/sessions/x/messages", json=body), 422, "invalid").errors
    assert places is not None and len(places) <= 20


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/body/messages"),
        ({"messages": []}, "/body/messages"),
        ({"messages": [{"role": "user", "content": "x", "word": 1}]}, "/body/messages/0"),
        ({"messages": [{"role": "king", "content": "x"}]}, "/body/messages/0/role"),
        ({"messages": [{"role": "user", "content": "x"}], "more": 1}, "/body"),
        (
            {"messages": [{"role": "user", "content": "x", "created_at": "2026-01-01"}]},
            "/body/messages/0/created_at",
        ),
        ({"messages": [{"role": "user"}]}, "/body/messages/0/content"),
        ({"messages": [{"role": "user", "content": "a\u0000b"}]}, "/body/messages/0/content"),
        (
            {"messages": [{"role": "user", "content": "x", "metadata": {"a": "\u0000"}}]},
            "/body/messages/0/metadata",
        ),
        (
            {"messages": [{"role": "user", "content": "x"}], "policy": {"token_limit": "1"}},
            "/body/policy/token_limit",
        ),
    ],
)
def test_bodies_are_strict_and_the_place_is_named(client: httpx2.Client, body: Any, pointer: str) -> None:
    found = problem(
        client.post(
            "/v1/sessions/strict/messages",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        ),
        422,
        "invalid",
    )
    assert found.errors and found.errors[0].pointer == pointer


def test_queries_are_strict(client: httpx2.Client) -> None:
    found = problem(client.get("/v1/sessions", params={"limits": 1}), 422, "invalid")
    assert found.errors and "cursor, limit" in found.errors[0].detail
    problem(client.get("/v1/sessions?limit=1&limit=2"), 422, "invalid")
    problem(client.get("/v1/sessions?limit=0"), 422, "invalid")
    for spelling in ("1e1", "1.0", "%201", "1_0", "%2B1", "01", "-0", "true"):
        found = problem(client.get(f"/v1/sessions?limit={spelling}"), 422, "invalid")
        assert found.errors and found.errors[0].pointer == "/query/limit", spelling
        found = problem(client.get(f"/v1/erasures/{spelling}"), 422, "invalid")
        assert found.errors and found.errors[0].pointer == "/path/number", spelling
    assert client.get("/v1/users/ana/facts?topic=a&topic=b").status_code == 200


@pytest.mark.parametrize("time", [1, 1.5, 1e12, "1", "20260101", "-1", " 5 ", "1e3", True, "10:00"])
def test_a_number_is_no_time(client: httpx2.Client, time: object) -> None:
    """It would be seconds or milliseconds, and a day without its dashes is one of the year 1970."""
    said = {"role": "user", "content": "hi", "created_at": time}
    for path, body, pointer in (
        ("sessions/times/messages", {"messages": [said]}, "/body/messages/0/created_at"),
        ("sessions/times/history", {"since": time}, "/body/since"),
        ("users/ana/facts", {"text": "Plums", "about_date": time}, "/body/about_date"),
    ):
        found = problem(client.post(f"/v1/{path}", json=body), 422, "invalid")
        assert found.errors and "ISO 8601" in found.errors[0].detail
        assert found.errors[0].pointer == pointer


MARK = "zzhiddenzz"
words = st.sampled_from([MARK, f"{MARK}\u0000", f"{MARK}\ud800", f"https://{MARK}", f"{MARK} " * 300])
json_values = st.recursive(
    words | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(words | st.sampled_from(["messages", "role"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    body=st.dictionaries(
        st.sampled_from(
            ["messages", "text", "query", "input", "topics", "policy", "metadata", "actor", "role", MARK]
        ),
        json_values,
    ),
    path=st.sampled_from(
        [
            "/v1/sessions/s/messages",
            "/v1/sessions/s/context",
            "/v1/users/u/facts",
            "/v1/sessions/s/search",
            "/v1/sessions/s/history",
        ]
    ),
)
def test_no_problem_quotes_its_request(
    running: RunningService, client: httpx2.Client, body: Any, path: str
) -> None:
    answer = client.post(
        path,
        content=json.dumps(body),
        params={MARK: MARK} if len(body) == 2 else {},
        headers={"Content-Type": "application/json", "Prefer": MARK},
    )
    if not answer.is_success:
        assert answer.status_code < 500
        assert MARK not in answer.text and MARK not in str(answer.headers)


def test_names_in_paths_and_headers_are_not_quoted(client: httpx2.Client) -> None:
    for path in (
        f"/v1/sessions/{MARK}%00/context",
        f"/v1/sessions/{'x' * 600}{MARK}/context",
        f"/v1/users/%ff{MARK}/facts",
    ):
        answer = client.get(path)
        assert answer.status_code == 422 and MARK not in answer.text
    answer = client.get("/v1/sessions", headers={b"Strandline-User": f"{MARK}\xff".encode("latin-1")})
    assert answer.status_code == 422 and MARK not in answer.text


def test_every_error_that_a_caller_can_meet_has_a_meaning() -> None:
    unmapped = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type)
        and issubclass(kind, errors.StrandlineError)
        and refusal_of(_made(kind)) is None
    }
    assert unmapped == {
        "StrandlineError", "DatabaseError", "BrokerUnavailableError", "UndecodableEventError",
        "BlockCodeError", "LeaseLostError", "ArchiveError", "ServiceError",
    }  # fmt: skip


def _made(kind: type[errors.StrandlineError]) -> errors.StrandlineError:
    made = kind.__new__(kind)
    made.args = ("x",)
    if isinstance(made, errors.InvalidMessageError):
        made.field = "messages[0].content"
    return made


def test_kinds_are_apart_and_say_what_to_do() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert kind.detail.endswith((".", "…")) and kind.title
        assert (kind.retry_after_seconds is not None) == (kind.status in (429, 502, 503))
        assert re.fullmatch(r"[a-z-]+", kind.name)


def test_a_defect_is_found_in_the_log_by_what_the_client_was_told(
    running: RunningService,
    client: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("what somebody said".upper())

    monkeypatch.setattr(running.service.records, "begin", fail)
    body = {"messages": [{"role": "user", "content": "x"}]}
    found = problem(client.post("/v1/sessions/x/messages", json=body), 500, "internal")
    (record,) = (one for one in caplog.records if one.getMessage() == "a request failed")
    assert record.__dict__["instance"] == found.instance is not None
    assert record.__dict__["route"] == "/v1/sessions/{session_id}/messages"
    assert "WHAT SOMEBODY SAID" not in caplog.text


def test_nobody_on_the_way_stores_what_is_somebodys(client: httpx2.Client) -> None:
    fact = client.post("/v1/users/ana/facts", json={"text": "Likes tea."})
    read = client.get(f"/v1/users/ana/facts/{fact.json()['fact_id']}")
    assert fact.headers["cache-control"] == read.headers["cache-control"] == "private, no-cache"
    for answer in (
        client.get("/v1/sessions"),
        client.get("/v1/sessions/none/context"),
        client.get("/v1/whoami"),
    ):
        assert answer.headers["cache-control"] == "no-store"
    assert "cache-control" not in client.get("/healthz/live").headers
