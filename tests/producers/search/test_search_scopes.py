"""Searches in big scopes: candidates find what an exact scan finds, of this scope alone, and read little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from statistics import mean
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import psycopg
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.statements import function_source
from tests.support.filled_scope import Filled, Floats, exact, fill, made_up, search
from tests.support.servers.databases import temporary_database

MESSAGES = 4_000
FEW = 200
JUST_BIG = 1_200
FIRST = 10
QUERIES = 40


@dataclass(frozen=True, slots=True)
class Scope:
    """A filled session, a small one of the same owner beside it, and twins that must not be found."""

    connection: psycopg.Connection[Any]
    filled: Filled
    shard_key: UUID
    generation_id: int
    session_key: UUID
    other_session: UUID

    def search(
        self, words: list[int], vector: Floats | None, **options: Any
    ) -> list[tuple[UUID, int, float]]:
        keys = (self.shard_key, self.generation_id, options.pop("session_key", self.session_key))
        return search(self.connection, *keys, words, vector, **options)


@pytest.fixture(scope="module")
def scope(stack: EmbeddedStack) -> Iterator[Scope]:
    with filled_database(stack, MESSAGES, seed=1) as filled:
        yield filled


@pytest.fixture(scope="module")
def just_big(stack: EmbeddedStack) -> Iterator[Scope]:
    """A scope with hardly more pieces than are scanned one by one."""
    with filled_database(stack, JUST_BIG, seed=5) as filled:
        yield filled


@contextmanager
def filled_database(stack: EmbeddedStack, messages: int, *, seed: int) -> Iterator[Scope]:
    """A scope in a database of its own, whose statistics are of it alone."""
    with (
        temporary_database(stack.database_url) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        yield filled_scope(connection, messages, seed)


def filled_scope(connection: psycopg.Connection[Any], messages: int, seed: int) -> Scope:
    ((generation_id,),) = connection.execute(
        "SELECT generation_id FROM strandline.generation WHERE pipeline = 'vectors'"
    ).fetchall()
    scope = Scope(connection, made_up(messages, seed=seed), uuid4(), generation_id, uuid4(), uuid4())
    fill(connection, scope.shard_key, generation_id, scope.session_key, scope.filled)
    fill(connection, scope.shard_key, generation_id, scope.other_session, made_up(FEW, seed=2))
    # The same words and vectors of another owner, in the same session's name, and of another generation:
    # if they were looked at, words would count for more and be less rare, and no score would be exact.
    fill(connection, uuid4(), generation_id, scope.session_key, scope.filled)
    fill(connection, scope.shard_key, generation_id + 1_000, scope.session_key, scope.filled)
    connection.execute("VACUUM ANALYZE strandline.chunk")
    return scope


def questions(filled: Filled) -> Iterator[tuple[list[int], Floats]]:
    """Some words of a message, rare and common ones, and a vector that is near to it."""
    draw, noise = Random(3), np.random.default_rng(3)  # noqa: S311  # to be repeated, not to be secret
    for _ in range(QUERIES):
        at = draw.randrange(len(filled.seqs))
        words = list(dict.fromkeys(draw.sample(filled.words[at], 3)))
        vector = filled.vectors[at] + noise.normal(scale=0.08, size=filled.vectors.shape[1])
        yield words, vector / np.linalg.norm(vector)


def share(found: list[tuple[UUID, int, float]], scores: dict[int, float]) -> float:
    """Of the best by the exact scores, the share that is found; an equal of the last one counts as it."""
    last = sorted(scores.values(), reverse=True)[FIRST - 1]
    return sum(scores[seq] >= last - 1e-3 for _, seq, _ in found) / FIRST


@pytest.mark.parametrize("kind", ["words", "vector", "both"])
def test_candidates_find_what_an_exact_scan_finds(scope: Scope, kind: str) -> None:
    shares = []
    for words, vector in questions(scope.filled):
        asked = ([] if kind == "vector" else words, None if kind == "words" else vector)
        scores = exact(scope.filled, *asked)
        found = scope.search(*asked)
        assert len(found) == FIRST
        shares.append(share(found, scores))
        # A candidate has its exact score, whatever the others are.
        assert [score for _, _, score in found] == pytest.approx(
            [scores[seq] for _, seq, _ in found], abs=0.02
        )
    assert mean(shares) >= 0.95


@pytest.mark.parametrize("kind", ["words", "both"])
@pytest.mark.parametrize("top_k", [FIRST, 100, 800, 1_000, 2_000])
def test_a_limit_near_the_size_of_the_scope_loses_nothing(just_big: Scope, kind: str, top_k: int) -> None:
    """Then the messages before a session's first one, which are not there, are candidates as well."""
    for words, vector in islice(questions(just_big.filled), 10):
        asked = (words, None if kind == "words" else vector)
        scores = exact(just_big.filled, *asked)
        found = just_big.search(*asked, top_k=top_k)
        assert [score for _, _, score in found] == pytest.approx(
            [scores[seq] for _, seq, _ in found], abs=0.02
        )
        if kind == "words":
            assert len(found) == min(top_k, sum(score > 0 for score in scores.values()))


def test_what_a_session_begins_with_is_found_in_a_big_scope(just_big: Scope) -> None:
    filled = just_big.filled
    for at in range(3):
        scores = exact(filled, filled.words[at], None)
        (_, seq, score), *_ = just_big.search(list(dict.fromkeys(filled.words[at])), None)
        assert seq == max(scores, key=lambda one: scores[one])
        assert score == pytest.approx(1)


def test_a_scope_of_few_pieces_is_scanned_exactly(scope: Scope) -> None:
    filled = made_up(FEW, seed=2)
    for words, vector in questions(filled):
        scores = exact(filled, words, vector)
        found = scope.search(words, vector, session_key=scope.other_session, top_k=1_000)
        assert {seq: score for _, seq, score in found} == pytest.approx(
            {seq: score for seq, score in scores.items() if score > 0}, abs=2e-3
        )


def test_only_the_scope_is_found_and_not_what_is_visible(scope: Scope) -> None:
    words, vector = next(questions(scope.filled))
    for asked in ((words, vector), (words, None), ([], vector)):
        best = scope.search(*asked)
        middle = sorted(seq for _, seq, _ in best)[FIRST // 2]
        assert {session_key for session_key, _, _ in best} == {scope.session_key}
        below = scope.search(*asked, visible=(scope.session_key, middle), top_k=100)
        assert below and max(seq for _, seq, _ in below) < middle
        other = scope.search(*asked, session_key=scope.other_session, top_k=1_000)
        assert {session_key for session_key, _, _ in other} == {scope.other_session}
        both = scope.search(*asked, session_key=None, top_k=1_000)
        assert {session_key for session_key, _, _ in both} == {scope.session_key, scope.other_session}
        alone = scope.search(*asked, session_key=None, visible=(scope.session_key, 0))
        assert {session_key for session_key, _, _ in alone} == {scope.other_session}
        assert search(scope.connection, uuid4(), scope.generation_id, None, *asked) == []
        assert search(scope.connection, scope.shard_key, scope.generation_id + 1, None, *asked) == []


def test_a_cut_off_holds_in_a_big_scope(scope: Scope) -> None:
    words, vector = next(questions(scope.filled))
    similarity = dict.fromkeys(scope.filled.seqs.tolist(), -1.0)
    for seq, cosine in zip(scope.filled.seqs.tolist(), scope.filled.vectors @ vector, strict=True):
        similarity[seq] = max(similarity[seq], cosine)
    cutoff = sorted(similarity.values())[-6] + 1e-3
    found = scope.search(words, vector, cutoff=cutoff)
    assert {seq for _, seq, _ in found} == {seq for seq, cosine in similarity.items() if cosine >= cutoff}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def plan_inside(scope: Scope, words: list[int], vector: Floats) -> dict[str, Any]:
    """How the function's query runs, with its settings; EXPLAIN does not look into a function."""
    settings, _, _ = function_source("search_v1", "strandline").split("$function$")
    head, body, _ = function_source("search_big_v1", "strandline").split("$function$")
    names = re.findall(r"\b(p_\w+) (\w+(?:\[\])?)", head.partition("search_big_v1(")[2])
    for number, (name, _) in enumerate(names, start=1):
        body = re.sub(rf"\b{name}\b", f"${number}", body)
    embedding = f"[{','.join(map(str, vector.tolist()))}]"
    lexemes = [f"w{word}" for word in words]
    keys = [scope.shard_key, scope.generation_id, scope.session_key, None, 2**62]
    values = [*keys, embedding, lexemes, 0.0, FIRST, True, None, [], None, None, None]
    values += [False, [], [], [], [], *[None] * 8]
    with psycopg.ClientCursor(scope.connection) as cursor, scope.connection.transaction(force_rollback=True):
        for setting in re.findall(r"^SET (.+)$", settings, re.MULTILINE):
            cursor.execute(f"SET LOCAL {setting}".encode())
        cursor.execute(f"PREPARE inside ({', '.join(kind for _, kind in names)}) AS {body}".encode())
        places = ", ".join(["%s"] * len(values))
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE inside ({places})".encode(), values)
        ((explained,),) = cursor.fetchall()
        cursor.execute("DEALLOCATE inside")
    plan: dict[str, Any] = explained[0]["Plan"]
    return plan


def test_a_big_scope_is_read_in_indexes_and_only_candidates_in_the_table(scope: Scope) -> None:
    words, vector = next(questions(scope.filled))
    found = [one for one in nodes(plan_inside(scope, words, vector)) if one["Node Type"] != "CTE Scan"]
    of_chunks = [
        one
        for one in found
        if re.fullmatch(r"chunk(_p\d+)?", one.get("Relation Name", "")) and one["Actual Loops"]
    ]
    ways = {(one["Node Type"], re.sub(r"_p\d+", "", one.get("Index Name", ""))) for one in of_chunks}
    assert ways == {
        ("Bitmap Heap Scan", ""),
        ("Index Only Scan", "chunk_pkey"),
        ("Index Scan", "chunk_pkey"),
    }
    by_words = {one["Index Name"] for one in found if one["Node Type"] == "Bitmap Index Scan"}
    assert by_words and all(
        re.fullmatch(r"chunk_terms|chunk_p\d+_search_terms_v1_idx", each) for each in by_words
    )
    for one in of_chunks:
        if one["Node Type"] == "Index Only Scan":
            assert one["Heap Fetches"] == 0
        elif one["Node Type"] == "Index Scan":
            assert one["Actual Rows"] * one["Actual Loops"] < MESSAGES / 2


def test_vectors_of_many_dimensions_are_found(scope: Scope) -> None:
    """Their codes fit into an entry of the index."""
    dimensions, shard_key, session_key = 3_072, uuid4(), uuid4()
    vectors = np.random.default_rng(4).normal(size=(20, dimensions))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    filled = Filled(np.arange(1, 21), ((1,),) * 20, vectors)
    with scope.connection.transaction(force_rollback=True):
        fill(scope.connection, shard_key, scope.generation_id, session_key, filled)
        for seq, vector in enumerate(vectors, start=1):
            found = search(scope.connection, shard_key, scope.generation_id, session_key, [], vector)
            assert found[0][:2] == (session_key, seq)
