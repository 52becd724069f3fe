"""Model calls of producers stand in the ledger, and count for the budget of their namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from strandline import ConfigurationError, Facts, Memory, ModelError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.engine.budgets import Budgets
from strandline.pipelines.inspect.explain_fact import Where, explain_fact
from strandline.schemas.errors import BudgetError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.work.limits import ListLimits, SetLimits
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.schemas.wire.explanations import FactExplanation
from tests.conftest import rows_of
from tests.producers.facts.test_fact_optimizing import BOTH, COFFEE, TEA, merging
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

PRICES = '{"gpt-4.1-mini": {"input": 1.0, "output": 2.0}}'
LEDGER = """
SELECT c.stage, c.step, c.generation_id, c.input_tokens, c.output_tokens,
    c.cost_usd = (c.input_tokens + 2 * c.output_tokens) / 1000000.0, c.seconds > 0
FROM strandline.model_call c JOIN strandline.session_owner o ON o.owner_key = c.shard_key
WHERE o.namespace = %s AND c.stage IN ('choose', 'optimize', 'summarize_last') ORDER BY c.created_at
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack, server: ModelServer) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, temporary_database(stack.database_url) as url:
        patch.setenv("OPENAI_BASE_URL", server.base_url)
        patch.setenv("STRANDLINE_MODEL_PRICES", PRICES)
        yield url


@pytest.fixture
def memory(url: str, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A memory of a namespace of its own; its user has two facts."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("STRANDLINE_MODEL_PRICES", PRICES)
    monkeypatch.setenv("OPENAI_API_KEY", uuid4().hex)  # what a test learns of the server is its own
    server.behave()
    namespace = uuid4().hex
    memory = Memory.from_defaults("s", database_url=url, memory_blocks=[], user_id="ana", namespace=namespace)
    memory.put({"role": "user", "content": "I sail."})
    for text in (TEA, COFFEE):
        memory.facts.add(text)
    server.requests.clear()
    yield memory
    memory.close()


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
    yield database
    database.close()


def limit(database: Database, memory: Memory, **limits: Any) -> None:
    names = ("max_lanes", "max_lanes_per_worker", "calls_per_day", "tokens_per_day", "usd_per_day")
    unset: dict[str, Any] = dict.fromkeys((*names, "agents_read_only", "max_sessions", "max_bytes"))
    database.fetch(SetLimits(namespace=memory.namespace, **{**unset, **limits}))


def used(database: Database, memory: Memory) -> tuple[int, int, float]:
    (row,) = database.fetch(ListLimits(dead_after_seconds=30, namespace=memory.namespace))
    return row.calls_today, row.tokens_today, row.usd_today


def test_a_call_is_in_the_ledger_whether_there_is_a_budget_or_not(memory: Memory, url: str) -> None:
    chosen = memory.facts.choose("Which tea?")
    summary = memory.summarize_last(5)
    assert summary is not None
    assert rows_of(url, LEDGER, memory.namespace) == [
        ("choose", "choose", None, chosen.input_tokens, chosen.output_tokens, True, True),
        ("summarize_last", "summary", None, summary.input_tokens, summary.output_tokens, True, True),
    ]
    assert rows_of(url, "SELECT 1 FROM strandline.budget_slice WHERE namespace = %s", memory.namespace) == []


def test_a_proposal_is_in_the_ledger_and_explains_the_facts_that_it_made(
    memory: Memory, url: str, server: ModelServer, database: Database
) -> None:
    settings = load_settings(database_url=url, embedding_backend="local")
    facts = Facts.for_owner(user_id="rui", namespace=memory.namespace, database_url=url)
    facts.create_from([{"role": "user", "content": text} for text in (TEA, COFFEE)])
    drain_everything(database, url, settings, (EXTRACT_STAGE, MERGE_STAGE))
    merging(server)
    facts.apply_optimization(facts.optimize())
    assert [row[:2] for row in rows_of(url, LEDGER, memory.namespace)] == [("optimize", "condense")]
    (merged,) = [fact for fact in facts.list() if fact.text == BOTH]
    where = Where(namespace=memory.namespace, session_id=None, user_id="rui", without_user=False)
    owner_key = identify_user(memory.namespace, "rui").shard_key
    explained = explain_fact(database, where, owner_key, merged.fact_id)
    assert isinstance(explained, FactExplanation)
    assert "condense" in {call.step for revision in explained.revisions for call in revision.calls}


def test_what_is_used_counts_and_without_a_budget_no_model_is_asked(
    memory: Memory, server: ModelServer, database: Database
) -> None:
    limit(database, memory, calls_per_day=2, usd_per_day=1.0)
    chosen = memory.facts.choose("Which tea?")
    again = asyncio.run(_choose(memory))
    tokens = sum(one.input_tokens + one.output_tokens for one in (chosen, again))
    cost = sum(one.input_tokens + 2 * one.output_tokens for one in (chosen, again)) / 1_000_000
    calls, counted, usd = used(database, memory)
    assert (calls, counted, round(usd, 9)) == (2, tokens, round(cost, 9))
    asked = len(server.requests)
    for call in (lambda: memory.facts.choose("?"), lambda: memory.summarize_last(5)):
        with pytest.raises(ModelError, match="used up its budget of calls") as refused:
            call()
        assert isinstance(refused.value, BudgetError)
        assert 0 < (refused.value.retry_after_seconds or 0) <= 86_400, "until the next day"
    assert len(server.requests) == asked and used(database, memory)[0] == 2
    with pytest.raises(BudgetError):
        Budgets(database, uuid4()).admit(memory.namespace, 10)


async def _choose(memory: Memory) -> Any:
    try:
        return await memory.facts.achoose("Which coffee?")
    finally:
        await memory.aclose()


def test_what_workers_hold_is_not_spent_twice(memory: Memory, database: Database) -> None:
    limit(database, memory, calls_per_day=1)
    worker = Budgets(database, uuid4())
    worker.admit(memory.namespace, 10)
    with pytest.raises(BudgetError):
        memory.facts.choose("Which tea?")
    worker.settle(memory.namespace, 0, 0.0, calls=-1)
    worker.return_slices(everything=True)
    assert memory.facts.choose("Which tea?")


def test_callers_at_the_same_moment_stay_within_the_budget(memory: Memory, database: Database) -> None:
    limit(database, memory, calls_per_day=3)

    def is_answered(_number: int) -> bool:
        try:
            memory.facts.choose("Which tea?")
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(8) as callers:
        assert sum(callers.map(is_answered, range(8))) == 3
    assert used(database, memory)[0] == 3


def test_a_call_that_was_refused_unread_is_not_counted(
    memory: Memory, server: ModelServer, database: Database, url: str
) -> None:
    limit(database, memory, tokens_per_day=10_000)
    server.behave(status=429, message="slow down", retry_after="0.001")
    with pytest.raises(ModelError):
        memory.facts.choose("Which tea?")
    assert used(database, memory)[:2] == (0, 0)
    server.behave(status=500)
    with pytest.raises(ModelError):
        memory.facts.choose("Which tea?")
    calls, tokens, _usd = used(database, memory)
    assert (calls, tokens) == (1, sum(map(len, ("Which tea?", TEA, COFFEE))) // 4 + 1), (
        "it may have been paid for"
    )
    assert rows_of(url, LEDGER, memory.namespace) == []


def test_a_call_that_this_process_cannot_make_is_not_counted(
    memory: Memory, database: Database, url: str
) -> None:
    limit(database, memory, calls_per_day=50)
    for number in range(8):
        memory.facts.choose("Which tea?", model=f"model-{number}")
    with pytest.raises(ConfigurationError, match="8 models"):
        memory.facts.choose("Which tea?", model="one-too-many")
    assert used(database, memory)[0] == len(rows_of(url, LEDGER, memory.namespace)) > 0
