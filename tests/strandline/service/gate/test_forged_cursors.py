"""Cursors that no page gave: each list refuses them, or begins behind them, and none is a defect."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, timedelta, timezone
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.schemas.places import place_text, read_place
from strandline.schemas.wire.keys import SCOPES
from strandline.service.params import cursor_of
from tests.support.servers.service_server import RunningService

# Each list with the name in its cursors; a test below holds that none is missing.
LISTS = {
    "/v1/sessions": "sessions",
    "/v1/users": "users",
    "/v1/sessions/s/messages": "messages",
    "/v1/users/ana/facts": "facts/newest",
    "/v1/users/ana/erasures": "erasures",
    "/v1/erasures": "erasures",
    "/v1/admin/keys": "keys",
    "/v1/admin/audit": "audit",
    "/v1/admin/dead-letters": "dead-letters",
    "/v1/admin/operations": "operations",
}
ID = "00000000-0000-4000-8000-000000000001"
MOMENTS = st.sampled_from(
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+00:00",
        "9999-12-31T23:59:59.999999+00:00",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+00:00",
        "2026-W01-1T00:00:00+00:00",
        "10000-01-01T00:00:00+00:00",
    ]
)
NUMBERS = st.sampled_from(
    ["0", "-1", "1", "+1", "01", "\u0661", "1_0", str(2**31), str(2**63 - 1), str(2**63), "9" * 400]
)
PIECES = MOMENTS | NUMBERS | st.sampled_from([ID, ID.upper(), "{" + ID + "}", "", "x", "\0", "\ud800", "/"])
PLACES = (
    st.lists(PIECES, max_size=6).map("/".join)
    | st.integers(-(2**70), 2**70)
    | st.none()
    | st.booleans()
    | st.floats()
    | st.lists(PIECES, max_size=2)
    | st.text(max_size=6)
)
PLACED = st.builds("{}/{}".format, MOMENTS | NUMBERS, st.just(ID) | NUMBERS) | st.builds(
    "{}/{}/{}/{}/extract".format, MOMENTS, st.just(ID), NUMBERS, NUMBERS
)


@pytest.fixture(scope="module")
def clients(running: RunningService) -> Iterator[dict[str, httpx2.Client]]:
    with (
        running.client(running.make_key("lists", scopes=SCOPES), user="ana") as tenants,
        running.client(running.make_key(None, scopes=("operate",))) as root,
    ):
        tenants.post("/v1/sessions/s/messages", json={"messages": [{"role": "user", "content": "hi"}]})
        yield {path: root if path.endswith("operations") else tenants for path in LISTS}


def forged(name: str, place: Any) -> str:
    return urlsafe_b64encode(json.dumps([name, place]).encode()).decode().rstrip("=")


def test_every_list_is_tried(running: RunningService) -> None:
    document = running.app.openapi()
    paths = {
        path.replace("{session_id}", "s").replace("{user}", "ana")
        for path, methods in document["paths"].items()
        if any(one["name"] == "cursor" for one in methods.get("get", {}).get("parameters", ()))
    }
    assert paths == set(LISTS)


@pytest.mark.parametrize("path", LISTS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=PLACES | PLACED)
def test_no_forged_cursor_is_a_defect(clients: dict[str, httpx2.Client], path: str, place: Any) -> None:
    answer = clients[path].get(path, params={"cursor": forged(LISTS[path], place)})
    assert answer.status_code in (200, 422), (place, answer.text)  # a defect is 500


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_postgres_does_not_have_is_no_cursor(
    clients: dict[str, httpx2.Client], moment: str
) -> None:
    answer = clients["/v1/admin/audit"].get(
        "/v1/admin/audit", params={"cursor": cursor_of("audit", f"{moment}/{ID}")}
    )
    assert answer.status_code == 422, answer.text


@given(
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9))])),
    st.integers(0, 2**63 - 1),
    st.uuids(),
    st.text(),
)
def test_a_place_is_read_as_it_was_written(moment: Any, number: int, id_: Any, text: str) -> None:
    try:
        written = place_text(moment, number, id_, text)
    except OverflowError:  # its year in UTC is not 1 to 9999
        return
    assert read_place(written, type(moment), int, type(id_), str) == (moment, number, id_, text)
