"""What ``reset(derived=True)`` leaves of a session in what other sessions of its user gave rise to."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline import Memory
from strandline.pipelines.verification import verify
from strandline.schemas.database import Database
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import nothing_due, rows_of
from tests.consuming import say
from tests.draining import drain_everything
from tests.model_server import ModelServer, RecordedRequest

MakeMemory = Callable[..., Memory]

ANSWERS = (
    "SELECT convert_from(body, 'UTF8') FROM strandline.answer a JOIN strandline.batch b USING (batch_id)"
)


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    return load_settings(database_url=database_url, embedding_backend="local")


def chatty(request: RecordedRequest) -> str | None:
    """A merge model that says why: it adds what is new, and quotes what it knows."""
    prompt = json.dumps(request.body)
    if "<candidates>" not in prompt:
        return None
    known = "beside Otto the cat" if "Otto" in prompt else ""
    return json.dumps({"operations": [{"op": "add", "candidate": 1, "fact": None, "text": f"New {known}"}]})


def test_answers_to_other_sessions_do_not_quote_what_is_forgotten(
    make_memory: MakeMemory,
    database: Database,
    database_url: str,
    settings: Settings,
    model_server: ModelServer,
) -> None:
    model_server.behave(responder=chatty)
    one, two = (make_memory(name, user_id="maren", memory_blocks=["facts"]) for name in ("one", "two"))
    other = make_memory("three", user_id="nils", memory_blocks=["facts"])
    say(one, "My cat is called Otto.")
    drain_everything(database, database_url, settings)
    for memory in (two, other):
        say(memory, "My cat sleeps all day.")
        say(memory, "My cat likes herring.")
    drain_everything(database, database_url, settings)
    merges = rows_of(database_url, f"{ANSWERS} WHERE b.stage = 'merge'")
    assert any("Otto" in body for (body,) in merges), "a sibling's answer quotes it"
    one.reset(derived=True)
    assert all("Otto" not in body for (body,) in rows_of(database_url, ANSWERS))
    tables = rows_of(
        database_url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'strandline'"
    )
    for (table,) in tables:
        rows = rows_of(database_url, f"SELECT t::text FROM strandline.{table} t")
        assert all("Otto" not in row for (row,) in rows), table
    # What was derived from the others stays, as do the answers to another user's sessions.
    assert sorted(fact.text for fact in two.facts.list()) == [
        "My cat likes herring.",
        "My cat sleeps all day.",
    ]
    assert len(rows_of(database_url, f"{ANSWERS} WHERE b.stage = 'merge'")) == 1
    extracted = f"{ANSWERS} JOIN strandline.session s ON s.session_key = b.scope_key WHERE s.session_id = %s"
    assert rows_of(database_url, extracted, "two"), "extract has seen its own session alone"
    say(two, "My cat is grey.")
    drain_everything(database, database_url, settings)
    assert nothing_due(database_url)
    assert verify(database, deep=True).violations == ()
