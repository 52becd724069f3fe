"""Searches with embedders unlike the local one: all cosines are alike, or the vectors say nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources
from statistics import mean
from typing import Any

import numpy as np
import pytest

from strandline import Memory, VectorMemoryBlock
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.generations.registry import serving_generations
from strandline.producers.search.search import SearchRequest, search_messages
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import VECTORS, VECTORS_STAGE
from tests.support.servers.databases import temporary_database
from tests.support.servers.embedder_servers import (
    StandIn,
    embedder_server,
    random_vectors,
    settings_of,
    squeezed_vectors,
)
from tests.support.workers.draining import drain_everything

USER = "maren"
FIRST = 10


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Searches:
    """The ids of the first hits for each question of the sample, by vectors and words, and by words alone."""

    hits: Sequence[Sequence[str]]
    hits_by_words: Sequence[Sequence[str]]
    embedder: str


def read_sample(name: str) -> str:
    return (resources.files("strandline") / "samples" / name).read_text(encoding="utf-8")


MESSAGES: list[dict[str, Any]] = [json.loads(line) for line in read_sample("conversation.jsonl").splitlines()]
QUESTIONS = [
    Question(one["question"], frozenset(one["evidence"]))
    for one in json.loads(read_sample("conversation.qa.json"))
    if one["evidence"]
]


@contextmanager
def embedding_by(kind: StandIn | None, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """What this process embeds is embedded so; None: by the local embedder."""
    with ExitStack() as opened, patch.context() as environment:
        local = {"STRANDLINE_EMBEDDING_BACKEND": "local", "STRANDLINE_TEXT_BACKEND": "local"}
        variables: Mapping[str, str] = local
        if kind is not None:
            variables = settings_of(opened.enter_context(embedder_server(kind)), kind)
        for name, value in variables.items():
            environment.setenv(name, value)
        yield


@pytest.fixture
def search_sample(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> Callable[[StandIn | None], Searches]:
    """Derives the sample conversation with an embedder, in a database of its own, and asks its questions."""

    def search(kind: StandIn | None) -> Searches:
        with embedding_by(kind, monkeypatch), temporary_database(stack.database_url) as url:
            return ask_all(url)

    return search


def ask_all(url: str) -> Searches:
    settings = load_settings(database_url=url)
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    memories = [
        put_session(url, number) for number in sorted({one["metadata"]["session"] for one in MESSAGES})
    ]
    try:
        drain_everything(database, url, settings, [VECTORS_STAGE])
        identity = identify_session("default", memories[-1].session_id, USER)
        by_words = [SearchRequest(identity, one.text, FIRST, "owner", None) for one in QUESTIONS]
        return Searches(
            [ids(memories[-1].search(one.text, limit=FIRST, scope="owner")) for one in QUESTIONS],
            [ids(database.run(search_messages(request))) for request in by_words],
            str(serving_generations(database)[VECTORS].recipe.config["embedder"]),
        )
    finally:
        for memory in memories:
            memory.close()
        database.close()


def put_session(url: str, number: int) -> Memory:
    memory = Memory.from_defaults(
        f"s{number}", user_id=USER, memory_blocks=[VectorMemoryBlock()], database_url=url
    )
    memory.put_messages([one for one in MESSAGES if one["metadata"]["session"] == number])
    memory.flush(all=True)
    return memory


def ids(hits: Sequence[Any]) -> list[str]:
    return [str(hit.message.id) for hit in hits]


def overlap(some: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> float:
    """The share of the first hits that both have, averaged over the questions."""
    pairs = zip(some, others, strict=True)
    return mean(len({*first} & {*second}) / max(len(first), len(second)) for first, second in pairs)


def share_of_evidence(searches: Sequence[Sequence[str]]) -> float:
    """The share of a question's evidence among its first hits, averaged over the questions."""
    return mean(
        len(question.evidence.intersection(first)) / len(question.evidence)
        for question, first in zip(QUESTIONS, searches, strict=True)
    )


def test_cosines_that_are_all_alike_hardly_change_the_ranks(
    search_sample: Callable[[StandIn | None], Searches],
) -> None:
    local, squeezed = search_sample(None), search_sample("squeezed")
    assert squeezed.embedder == "squeezed" != local.embedder
    assert squeezed.hits_by_words == local.hits_by_words
    assert overlap(local.hits, squeezed.hits) >= 0.9
    # The vectors do decide: ranks by words alone agree less.
    assert overlap(local.hits, local.hits_by_words) <= 0.85


def test_vectors_that_say_nothing_hardly_do_harm(
    search_sample: Callable[[StandIn | None], Searches],
) -> None:
    random = search_sample("random")
    assert random.hits != random.hits_by_words
    assert share_of_evidence(random.hits) >= share_of_evidence(random.hits_by_words) - 0.05


def test_the_stand_ins_are_what_they_are_called() -> None:
    texts = sorted({text for one in MESSAGES if isinstance(text := one["content"], str)})
    above = np.triu_indices(len(texts), 1)
    squeezed, random = squeezed_vectors(texts), random_vectors(texts)
    lowest, high = np.quantile((squeezed @ squeezed.T)[above], [0, 0.998])
    assert lowest >= 0.7 and high <= 0.9
    assert abs((random @ random.T)[above].mean()) < 0.01
    assert (random_vectors(texts[:3]) == random[:3]).all()
