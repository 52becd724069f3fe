"""What is read of facts is bounded in bytes as well as in number, and no fact is lost by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from strandline import Facts
from strandline.cli.entry import run
from strandline.client import RemoteFacts, RemoteService
from strandline.producers.facts.edit_operations import Wording
from strandline.producers.facts.importing import ImportedFact
from strandline.producers.facts.listing import FACTS_PAGE_BYTES
from strandline.schemas.values.identity import identify_user
from strandline.schemas.wire.keys import NewKey
from tests.conftest import rows_of
from tests.support.opened_rows import clear_only
from tests.support.servers.service_server import RunningService

COUNT = 400
# Three bytes each in UTF-8: some 24 kB a fact, and 170 facts a page.
INPUT = "€" * 8_000
SORTS = ("newest", "oldest", "updated")


@pytest.fixture(scope="module")
def user() -> str:
    return f"user-{uuid4().hex}"


@pytest.fixture(scope="module")
def facts(running: RunningService, user: str) -> Iterator[Facts]:
    """Facts of nearly 10 MB."""
    facts = Facts.for_owner(user_id=user, database_url=running.database_url)
    wordings = [
        Wording.check(f"Boat {n} is in the harbour.", topics=None, about_date=None, input=INPUT)
        for n in range(COUNT)
    ]
    for first in range(0, COUNT, 200):
        facts.import_facts([ImportedFact(uuid4(), one, "harbour") for one in wordings[first : first + 200]])
    yield facts
    facts.close()


def pages(client: httpx2.Client, user: str, **query: str) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        at = {} if cursor is None else {"cursor": cursor}
        answer = client.get(f"/v1/users/{user}/facts", params={"limit": "1000", **query, **at})
        assert len(answer.raise_for_status().content) < FACTS_PAGE_BYTES + 100_000
        yield answer.json()
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return


@pytest.mark.parametrize("sort", SORTS)
def test_a_page_goes_on_where_the_one_before_was_full(
    client: httpx2.Client, facts: Facts, user: str, sort: str
) -> None:
    read = list(pages(client, user, sort=sort))
    ids = [UUID(fact["fact_id"]) for page in read for fact in page["items"]]
    assert len(read) > 2 and {page["total"] for page in read} == {COUNT}
    assert len(ids) == len(set(ids)) == COUNT
    near: list[UUID] = []
    while page := facts.list(limit=1_000, offset=len(near), sort=sort):  # type: ignore[arg-type]
        assert page.total == COUNT and page.is_cut is (len(near) + len(page) < COUNT)
        near += [fact.fact_id for fact in page]
    assert near == ids


def test_a_page_that_ends_by_its_number_is_not_cut(client: httpx2.Client, facts: Facts, user: str) -> None:
    assert [facts.list(limit=n).is_cut for n in (0, 1, 100)] == [False] * 3
    one = next(pages(client, user, contains="Boat 17 "))
    assert (len(one["items"]), one["next_cursor"]) == (1, None)


def test_the_newest_are_kept_of_the_last_ones_asked_for(facts: Facts) -> None:
    last = facts.list(last_n=1_000)
    assert last.is_cut and len(last) < COUNT
    assert [fact.fact_id for fact in last] == [fact.fact_id for fact in facts.list(limit=len(last))][::-1]


def test_a_search_gives_the_best_that_fill_a_page(client: httpx2.Client, facts: Facts, user: str) -> None:
    query = "Which boat is in the harbour?"
    body = {"query": query, "limit": 1_000}
    answer = client.post(f"/v1/users/{user}/facts/search", json=body).raise_for_status()
    assert len(answer.content) < FACTS_PAGE_BYTES + 100_000
    found = [item["fact"]["fact_id"] for item in answer.json()["items"]]
    assert 100 < len(found) < COUNT
    best = client.post(f"/v1/users/{user}/facts/search", json=body | {"limit": 50}).raise_for_status()
    assert found[:50] == [item["fact"]["fact_id"] for item in best.json()["items"]]
    assert found == [str(match.fact.fact_id) for match in facts.search(query, limit=1_000)]


def test_the_client_and_the_command_read_all_pages(
    running: RunningService, key: NewKey, facts: Facts, user: str
) -> None:
    ids = {fact.fact_id for page in range(3) for fact in facts.list(limit=150, offset=150 * page)}
    with RemoteService(running.url, key.key) as service:
        far = RemoteFacts.for_owner(user_id=user, service=service)
        assert {fact.fact_id for fact in far.list(limit=1_000)} == ids
        assert len(far.list(limit=1_000, offset=COUNT - 3)) == 3
    listed: list[str] = []
    offset: int | None = 0
    while offset is not None:
        out = StringIO()
        arguments = ["--user", user, "--limit", "1000", "--offset", str(offset), "--json"]
        with redirect_stdout(out):
            assert run(["facts", "list", *arguments, "--database-url", running.database_url]) == 0
        report = json.loads(out.getvalue())
        listed += [fact["fact_id"] for fact in report["facts"]]
        offset = report["next_offset"]
    assert set(map(UUID, listed)) == ids and len(listed) == COUNT


def test_a_substring_is_looked_for_beyond_a_page(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.producers.facts.listing.MAX_LIMIT", 90)
    assert facts.list(contains="boat", limit=0).total == COUNT
    monkeypatch.setattr("strandline.producers.facts.listing.MAX_SCANNED_FACTS", 180)
    assert facts.list(contains="boat", limit=0).total == 180


@clear_only("makes revisions by SQL")
def test_the_newest_of_a_long_history_is_shown(running: RunningService, client: httpx2.Client) -> None:
    """By every reader of it: a fact, its history, and its explanation, whose sources are large as well."""
    user, session = f"user-{uuid4().hex}", f"s-{uuid4().hex}"
    fact = client.post(f"/v1/users/{user}/facts", json={"text": "Sails."}).raise_for_status().json()
    path = f"/v1/sessions/{session}/messages"
    headers = {"Strandline-User": user}
    for text in "abcdef":
        body = {"messages": [{"role": "user", "content": text * 900_000}]}
        client.post(path, json=body, headers=headers).raise_for_status()
    owner = identify_user("default", user).shard_key
    # Each revision cites all of the messages.
    rows_of(
        running.database_url,
        "WITH s AS (SELECT * FROM strandline.session WHERE shard_key = %s), made AS ("
        " INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,"
        "   fingerprint, lexemes, seqs, event_id, session_key, extract_batch_id, merge_batch_id, model,"
        "   prompt_hash)"
        " SELECT r.shard_key, r.generation_id, r.fact_id, 1 + n, 'duplicate', repeat('x', 900),"
        "   r.fingerprint, '{}', '{1,2,3,4,5,6}', gen_random_uuid(), s.session_key, gen_random_uuid(),"
        "   gen_random_uuid(),"
        "   'm', 'p' FROM strandline.fact_revision r, s, generate_series(1, 3000) AS n"
        " WHERE r.shard_key = s.shard_key RETURNING 1) SELECT count(*) FROM made",
        owner,
    )
    history = client.get(f"/v1/users/{user}/facts/{fact['fact_id']}/history").raise_for_status().json()
    assert len(history["revisions"]) == 1_000
    explained = client.get(f"/v1/explain/facts/{fact['fact_id']}", headers=headers).raise_for_status().json()
    assert [one["revision"] for one in explained["revisions"]] == list(range(2_002, 3_002))
    with_sources = [len(one["messages"]) for one in explained["revisions"] if one["messages"]]
    assert with_sources == [5] and explained["revisions"][-1]["messages"][-1]["seq"] == 6


@clear_only("makes changes by SQL")
def test_the_newest_changes_of_a_session_are_shown(running: RunningService, client: httpx2.Client) -> None:
    session = f"s-{uuid4().hex}"
    body = {"messages": [{"role": "user", "content": "hello", "id": f"m-{session}"}]}
    client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    for statement in (
        "INSERT INTO strandline.policy_change (shard_key, session_key, number, flushed_through, before,"
        " after) SELECT shard_key, session_key, n, 0, jsonb_build_object('token_limit', n),"
        " jsonb_build_object('token_limit', n + 1) FROM strandline.session, generate_series(1, 1500) AS n"
        " WHERE session_id = %s RETURNING 1",
        "INSERT INTO strandline.correction (shard_key, session_key, incarnation, number, correction_id, kind,"
        " from_seq, through_seq)"
        " SELECT shard_key, session_key, incarnation, n, gen_random_uuid(), 'rewind', 1, 1"
        " FROM strandline.session, generate_series(1, 1500) AS n WHERE session_id = %s RETURNING 1",
    ):
        rows_of(running.database_url, statement, session)
    explained = client.get(f"/v1/explain/messages/m-{session}").raise_for_status().json()
    for changes in (explained["policy_changes"], explained["corrections"]):
        assert [change["number"] for change in changes] == list(range(501, 1_501))
