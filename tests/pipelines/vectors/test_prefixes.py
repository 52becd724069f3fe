"""Prefixes of asymmetric embedders: part of the recipe, sent to the model, and stored nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from strandline import Memory
from strandline.cli.generations import Question, find_answers
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.recipe import differences
from strandline.pipelines.generations.registry import find, serving_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.switching import serve_everybody, switch_owner
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import VECTORS, VECTORS_STAGE
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

Derive = Callable[..., Memory]

QUESTION = "Where is the boat moored?"
SAID = ["My boat is moored at pier seven.", "Its sails are as red as a lobster."]


@pytest.fixture
def plain(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings without prefixes; memories of this process would have others, if they asked their settings."""
    # None of these tests is about how long a query may take.
    variables = {
        "OPENAI_BASE_URL": model_server.base_url,
        "OPENAI_API_KEY": "none",
        "STRANDLINE_TEXT_BACKEND": "local",
        "STRANDLINE_EMBEDDING_BACKEND": "openai",
        "STRANDLINE_EMBEDDING_MODEL": "e5",
        "STRANDLINE_EMBEDDING_DIMENSIONS": "256",
        "STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS": "60",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(database_url=database_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_QUERY_PREFIX", "not recorded: ")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_PASSAGE_PREFIX", "not recorded: ")
    return settings


@pytest.fixture
def prefixed(plain: Settings) -> Settings:
    return with_prefixes(plain, "query: ", "passage: ")


@pytest.fixture
def derive(make_memory: MakeMemory, database: Database, database_url: str) -> Derive:
    """Puts and flushes what was said, and derives its vectors with the given settings."""

    def derive_vectors(settings: Settings, session_id: str = "s", **options: Any) -> Memory:
        memory = make_memory(session_id, **options)
        say(memory, *SAID)
        drain_everything(database, database_url, settings, [VECTORS_STAGE])
        return memory

    return derive_vectors


def with_prefixes(settings: Settings, query: str, passage: str) -> Settings:
    return settings.model_copy(update={"embedding_query_prefix": query, "embedding_passage_prefix": passage})


def embedded_texts(server: ModelServer) -> list[str]:
    """All texts that the server was asked to embed, in order."""
    return [text for one in server.requests if one.path == "/v1/embeddings" for text in one.body["input"]]


def query_embedded_by(server: ModelServer, ask: Callable[[], object]) -> str:
    """The one text that is embedded meanwhile."""
    before = len(embedded_texts(server))
    ask()
    (text,) = embedded_texts(server)[before:]
    return text


@contextmanager
def working(database: Database, settings: Settings) -> Iterator[None]:
    runner = BackgroundRunner(database, prepare_stages(database, settings, [VECTORS_STAGE]), settings)
    runner.start()
    try:
        yield
    finally:
        runner.stop()


def stored_words(database_url: str) -> list[tuple[Any, ...]]:
    return rows_of(database_url, "SELECT from_seq, length, lexemes::text FROM strandline.chunk ORDER BY 1")


def test_messages_and_queries_are_embedded_with_their_prefixes(
    derive: Derive, prefixed: Settings, model_server: ModelServer
) -> None:
    memory = derive(prefixed)
    assert embedded_texts(model_server) == [f"passage: {text}" for text in SAID]
    hits = []
    asked = query_embedded_by(model_server, lambda: hits.extend(memory.search(QUESTION)))
    assert asked == f"query: {QUESTION}"
    assert hits[0].message.text == SAID[0] and hits[0].similarity is not None
    assert query_embedded_by(model_server, lambda: memory.get(QUESTION)) == f"query: {QUESTION}"


def test_a_prefix_is_neither_stored_nor_a_word(
    derive: Derive, prefixed: Settings, database_url: str, database: Database
) -> None:
    lobsters = with_prefixes(prefixed, "lobster: ", "lobster: ")
    memory = derive(lobsters)
    rows = stored_words(database_url)
    assert [("lobst" in words or "lobster" in words) for _, _, words in rows] == [False, True]
    assert [message.text for message in memory.get_all()] == SAID
    (found, *_) = memory.search("lobster", limit=1)
    assert found.message.text == SAID[1]
    assert not verify(database).violations


def test_a_generation_without_prefixes_has_none(
    derive: Derive, plain: Settings, prefixed: Settings, model_server: ModelServer, database: Database
) -> None:
    memory = derive(plain)
    config = serving_generations(database)[VECTORS].recipe.config
    assert config == {"embedder": "e5", "dimensions": 256}
    # Nor does a worker whose settings name some derive with them.
    drained = len(embedded_texts(model_server))
    derive(prefixed, "t")
    assert embedded_texts(model_server) == [*SAID, *SAID] and drained == len(SAID)
    assert query_embedded_by(model_server, lambda: memory.search(QUESTION)) == QUESTION


def test_reads_take_other_prefixes_at_the_moment_that_their_generation_serves(
    derive: Derive, prefixed: Settings, model_server: ModelServer, database: Database
) -> None:
    memories = [derive(prefixed, name, user_id=name) for name in ("ada", "ben")]
    other = with_prefixes(prefixed, "Q ", "P ")
    with working(database, other):
        replay = begin_generation(database, VECTORS, other, hold=True)
        assert derive_generation(database, replay).phase == "held"

    def asked() -> list[str]:
        """How each owner's question is embedded by a search, and by a read."""
        search = [query_embedded_by(model_server, partial(one.search, QUESTION)) for one in memories]
        read = [query_embedded_by(model_server, partial(one.get, QUESTION)) for one in memories]
        assert search == read
        return search

    assert sorted(embedded_texts(model_server)[4:]) == sorted(f"P {text}" for text in SAID * 2)
    assert asked() == [f"query: {QUESTION}"] * 2
    generation = find(database, replay.generation_id)
    assert generation is not None
    switch_owner(database, generation, identify_user("default", "ada").shard_key)
    assert asked() == [f"Q {QUESTION}", f"query: {QUESTION}"]
    serve_everybody(database, generation)
    assert asked() == [f"Q {QUESTION}"] * 2


def test_questions_to_a_generation_have_the_prefix_of_its_vectors(
    derive: Derive, prefixed: Settings, model_server: ModelServer, database: Database
) -> None:
    memory = derive(prefixed, user_id="ada")
    questions = [Question(question=QUESTION, user="ada", session=memory.session_id)]
    serving = serving_generations(database)[VECTORS]
    # As the command has them: the settings name another prefix than the recipe.
    own = with_prefixes(prefixed, "not recorded: ", "not recorded: ")
    asked = query_embedded_by(model_server, lambda: find_answers(database, serving, questions, own))
    assert asked == f"query: {QUESTION}"


def test_other_prefixes_are_another_recipe(plain: Settings, prefixed: Settings) -> None:
    without, recipe = recipe_for(VECTORS, plain), recipe_for(VECTORS, prefixed)
    assert list(differences(without, recipe)) == [
        "passage prefix: none -> passage: ",
        "query prefix: none -> query: ",
    ]
    assert not list(differences(recipe, recipe_for(VECTORS, with_prefixes(plain, "query: ", "passage: "))))
    assert json.loads(json.dumps(recipe.config)) == recipe.config


def test_the_local_embedder_has_none(prefixed: Settings) -> None:
    local = prefixed.model_copy(update={"embedding_backend": "local"})
    assert recipe_for(VECTORS, local) == recipe_for(VECTORS, with_prefixes(local, "", ""))
