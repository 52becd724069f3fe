"""The index of a scope in memory: it ranks as the database does, and outlives no change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import Memory, VectorMemoryBlock
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.vectors.stage import vector_text
from strandline.producers.search import ranking
from strandline.producers.search.index import index_cache, indexed_search, scope_arrays
from strandline.producers.search.index.array_index import ArrayParts
from strandline.producers.search.index.index_cache import Beginning, IndexCache
from strandline.producers.search.index.scope_index import (
    FIRST_KEY,
    IndexQuery,
    ScopeIndex,
    ScopeKey,
    StoredPieces,
)
from strandline.schemas.errors import DatabaseTimeoutError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.statements import function_names, function_source, statements
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import VECTORS_STAGE
from tests.conftest import MakeMemory
from tests.support.servers.databases import temporary_database
from tests.support.workers.draining import drain_everything

DIMENSIONS = 8
WORDS = ["alpha", "beta", "gamma", "delta", "épsilon", "it's", "ze ta", 'q"u', "back\\slash"]
NAMES = ["ann", "bob", "zoë"]
NOON = date(2026, 3, 1)
FAR = 2**62
FILL = """
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, length,
    lexemes, embedding, role, speaker, tone, said_on, event_id, batch_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s::tsvector, %s::halfvec, %s, %s, %s, %s, gen_random_uuid(),
    gen_random_uuid())
"""
SEARCH = """
SELECT session_key, from_seq, through_seq, score, similarity FROM strandline.search_v1(
    %s, %s, %s, %s, %s, %s::halfvec, %s, %s, %s, true, NULL, '{}', NULL, NULL, NULL, %s, %s, %s, %s, %s)
"""

PART = "SELECT strandline.index_part_v1(%s, %s, %s, %s, %s, %s, 0, %s)"
VERSION = str(statements("strandline")["serving_generation"])


@dataclass(frozen=True, slots=True)
class Pieces:
    """An owner with three sessions of made-up pieces."""

    connection: psycopg.Connection[Any]
    url: str
    shard_key: UUID
    generation_id: int
    sessions: tuple[UUID, ...]


@pytest.fixture(scope="module")
def pieces(stack: EmbeddedStack) -> Iterator[Pieces]:
    with (
        temporary_database(stack.database_url) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        ((generation_id,),) = connection.execute(
            "SELECT generation_id FROM strandline.generation WHERE pipeline = 'vectors'"
        ).fetchall()
        filled = Pieces(connection, url, uuid4(), generation_id, tuple(uuid4() for _ in range(3)))
        with connection.cursor() as cursor:
            cursor.executemany(FILL, list(_made_up(filled)))
        yield filled


def _made_up(filled: Pieces) -> Iterator[tuple[Any, ...]]:
    draw = Random(7)  # noqa: S311  # made-up pieces
    for session_key in filled.sessions:
        for seq in range(1, 60):
            if seq % 11 == 0:
                continue  # without words
            length, role = draw.choice([2, 12, 60]), draw.choice(["user", "assistant", "tool"])
            name, tone = draw.sample(NAMES, draw.randrange(3)), draw.randrange(3)
            day = draw.choice([None, NOON + timedelta(days=seq)])
            for piece in range(2 if seq % 7 == 0 else 1):
                lexemes = {word: draw.randint(1, 4) for word in draw.sample(WORDS, draw.randint(1, 4))}
                vector = [draw.gauss(0.3, 1) for _ in range(DIMENSIONS)]
                norm = sum(each * each for each in vector) ** 0.5
                yield (
                    *(filled.shard_key, filled.generation_id, session_key, seq, piece, seq + seq % 2, length),
                    " ".join(_positions(word, times) for word, times in lexemes.items()),
                    None if seq % 13 == 0 else vector_text([each / norm for each in vector]),
                    *(role, name, tone, day),
                )


def _positions(word: str, times: int) -> str:
    quoted = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{quoted}':" + ",".join(str(at + 1) for at in range(times))


def _index(filled: Pieces, scope_key: UUID | None, database: Database, at_once: int) -> ScopeIndex:
    """The index, made of parts of so many pieces."""
    scope = ScopeKey(filled.shard_key, filled.generation_id, scope_key)
    cache = IndexCache(10**9, ArrayParts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_search, "PIECES_AT_ONCE", at_once)
        ((_, _, version, _),) = filled.connection.execute(
            VERSION.encode(), {"shard_key": filled.shard_key, "pipeline": "vectors"}
        ).fetchall()
        for _ in range(400):
            with cache.next_part(scope, version) as begun:
                if begun is not None:
                    part = filled.connection.execute(PART, (*scope, *begun.through, at_once)).fetchone()
                    assert part is not None
                    database.run(indexed_search.add_part(cache, scope, begun, part[0]))
            index = cache.find_index(scope, version)
            if index is not None:
                return index  # type: ignore[return-value]
    raise AssertionError("no index was made")


def _grown(filled: Pieces, scope_key: UUID | None, database: Database, first: UUID | None) -> ScopeIndex:
    """The index of some pieces, those of one session or the first ones, with all others added."""
    scope = ScopeKey(filled.shard_key, filled.generation_id, scope_key)
    cache, onto = IndexCache(10**9, ArrayParts), None
    for part_of, at_once in ((scope._replace(scope_key=first or scope_key), 25), (scope, 1_000)):
        part = filled.connection.execute(PART, (*part_of, *FIRST_KEY, at_once)).fetchone()
        assert part is not None
        version = json.loads(part[0])["version"]
        database.run(indexed_search.add_part(cache, scope, Beginning(version, onto=onto), part[0]))
        onto = cast("ScopeIndex", cache.find_index(scope, version))
    assert onto is not None
    return onto


@pytest.fixture(scope="module")
def pieces_database(pieces: Pieces) -> Iterator[Database]:
    database = Database.connect(ConnectionOptions.from_settings(pieces.url, load_settings()))
    yield database
    database.close()


vectors = st.lists(st.integers(-9, 9), min_size=DIMENSIONS, max_size=DIMENSIONS).filter(any)
days = st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from([0.3, 1.0]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_ranks_as_the_database_does(
    pieces: Pieces, pieces_database: Database, data: st.DataObject
) -> None:
    session_key = data.draw(st.sampled_from(pieces.sessions))
    scope_key = data.draw(st.sampled_from([None, *pieces.sessions]))
    asked = data.draw(st.none() | vectors)
    norm = sum(each * each for each in asked) ** 0.5 if asked else 1.0
    ranges = [
        (NOON + timedelta(days=first), NOON + timedelta(days=first + more), fit)
        for first, more, fit in data.draw(st.lists(days, max_size=2))
    ]
    query = IndexQuery(
        vector=None if asked is None else vector_text([each / norm for each in asked]),
        lexemes=data.draw(st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=5, unique=True)),
        is_own=data.draw(st.booleans()),
        names=data.draw(st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=2)),
        days=ranges,
        visible=(session_key, data.draw(st.sampled_from([FAR, 30, 0]))),
        similarity_cutoff=data.draw(st.sampled_from([0.0, 0.4])) if asked else 0.0,
        limit=data.draw(st.sampled_from([3, 1_000])),
        scope_key=scope_key,
    )
    at_once = data.draw(st.sampled_from([17, 1_000, None]))
    if scope_key and data.draw(st.booleans()):
        index = _index(pieces, None, pieces_database, 1_000).narrow(scope_key)
    elif at_once is None:
        first = None if scope_key else data.draw(st.sampled_from([None, *pieces.sessions]))
        index = _grown(pieces, scope_key, pieces_database, first)
    else:
        index = _index(pieces, scope_key, pieces_database, at_once)
    ranks = index.rank(query)
    session_keys = [ranks.sessions[number - 1] for number in ranks.numbers]
    found = list(zip(session_keys, *ranks[2:], strict=True))
    expected = _searched(pieces, query)
    # Two messages of one score, within single precision, may stand in another order, or be the last one.
    assert [one[3] for one in found] == pytest.approx([one[3] for one in expected], abs=2e-5)
    figures = {one[:3]: one[3:] for one in found}
    for one in expected:
        if one[:3] in figures or one[3] > expected[-1][3] + 2e-5:
            assert figures[one[:3]] == pytest.approx(one[3:], abs=2e-5)


def _searched(filled: Pieces, query: IndexQuery) -> list[tuple[Any, ...]]:
    firsts, lasts, fits = zip(*query.days, strict=True) if query.days else ((), (), ())
    keys = (filled.shard_key, filled.generation_id, query.scope_key, *query.visible)
    compared = (query.vector, list(query.lexemes), query.similarity_cutoff, query.limit)
    else_asked = (query.is_own, list(query.names), list(firsts), list(lasts), list(fits))
    return filled.connection.execute(SEARCH, (*keys, *compared, *else_asked)).fetchall()


@pytest.mark.parametrize("session", [None, 1])
def test_vectors_of_one_byte_each_find_nearly_the_same(
    pieces: Pieces, pieces_database: Database, session: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(3)  # noqa: S311  # made-up queries
    precise = _index(pieces, None, pieces_database, 1_000)
    monkeypatch.setattr(scope_arrays, "PRECISE_PIECES", 0)
    small = _index(pieces, None, pieces_database, 1_000)
    assert small.size < precise.size
    if session is not None:
        precise, small = precise.narrow(pieces.sessions[session]), small.narrow(pieces.sessions[session])
    for _ in range(20):
        vector = vector_text([draw.gauss(0, 0.35) for _ in range(DIMENSIONS)])
        query = IndexQuery(vector, ["alpha"], False, [], [], (uuid4(), FAR), 0.0, 10, None)
        exact, near = precise.rank(query), small.rank(query)
        assert near.scores == pytest.approx(exact.scores, abs=0.01)
        places = [{*zip(one.numbers, one.from_seqs, strict=True)} for one in (exact, near)]
        assert len(places[0] & places[1]) >= 8


def test_the_least_recently_searched_index_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sized:
        version, size, since, is_empty = "1", 40, 0, False

    cache = IndexCache(100, ArrayParts)
    scopes = [ScopeKey(uuid4(), 1, None) for _ in range(3)]
    first, second, third = scopes
    cache.keep(first, Sized())
    cache.keep(second, Sized())
    assert cache.find_index(first, "1") is not None
    cache.keep(third, Sized())
    kept = [cache.find_index(scope, "1") is not None for scope in scopes]
    assert kept == [True, True, False], "both are in use"
    monkeypatch.setattr(index_cache, "QUIET_SECONDS", -1)
    cache.find_index(first, "1")
    cache.keep(third, Sized())
    assert [cache.find_index(scope, "1") is not None for scope in scopes] == [True, False, True]


def part(cache: IndexCache, scope: ScopeKey, version: str = "1") -> Beginning | None:
    with cache.next_part(scope, version) as begun:
        return begun


def test_a_scope_that_is_too_big_gets_no_index() -> None:
    class Large:
        version, size, since, is_empty = "1", 101, 0, False

    cache, scope = IndexCache(100, ArrayParts), ScopeKey(uuid4(), 1, None)
    assert part(cache, scope) is None and part(cache, scope) is not None
    cache.keep(scope, Large())
    assert cache.find_index(scope, "1") is None
    assert cache.is_refused(scope)
    assert part(cache, scope) is None


def test_an_index_is_begun_only_where_the_pieces_are_those_of_the_search_before() -> None:
    cache, scope = IndexCache(100, ArrayParts), ScopeKey(uuid4(), 1, None)
    assert part(cache, scope, "1") is None
    assert part(cache, scope, "2") is None
    assert part(cache, scope, "2") == Beginning("2")
    none = IndexCache(0, ArrayParts)
    assert [part(none, scope) for _ in range(3)] == [None] * 3


def test_an_index_of_another_version_is_dropped() -> None:
    class Old:
        version, size, since, is_empty = "1", 10, 0, False

    cache, scope = IndexCache(100, ArrayParts), ScopeKey(uuid4(), 1, None)
    cache.keep(scope, Old())
    assert cache.size == 10
    assert cache.find_index(scope, "2") is None
    assert cache.size == 0
    assert cache.find_index(scope, "1") is None


LAST_NINE = [f"{number}.1" for number in range(1, 10)]
VERSIONS = [
    ("4.1|5.1,6.1", "4.1|5.1,6.1,9.2", True, "added to"),
    (
        f"|{','.join(LAST_NINE)}",
        f"|{','.join(LAST_NINE[2:])},10.1,11.1",
        True,
        "added to, the oldest dropped",
    ),
    ("4.1|5.1", "4.1,8.1|5.1,9.2", False, "taken from"),
    ("|5.1,6.1", "|5.1", False, "restored from before"),
    ("|5.1,6.1", "|5.1,9.2", False, "restored from before, and added to"),
    ("|5.1,6.1", "|6.1,9.2", False, "restored from before, where one was not committed"),
    ("|5.1", "|5.1,6.2", False, "numbered otherwise"),
    ("4.1|", "4.1|9.2", False, "nothing to tell it from another database"),
]


@pytest.mark.parametrize(("known", "now", "grows", "why"), VERSIONS, ids=[case[3] for case in VERSIONS])
def test_an_index_stays_for_new_pieces_alone(known: str, now: str, grows: bool, why: str) -> None:
    class Index:
        version, size, since, is_empty = known, 10, 7, False

    cache, scope = IndexCache(10_000, ArrayParts), ScopeKey(uuid4(), 1, None)
    index = cast("ScopeIndex", Index())
    cache.keep(scope, index)
    assert cache.find_index(scope, now) is None, "it is not shown as it is"
    assert part(cache, scope, now) == (Beginning(now, onto=index) if grows else None), why
    assert bool(cache.size) == grows


def test_the_first_pieces_of_a_searched_scope_are_indexed_at_once() -> None:
    cache, scope = IndexCache(10_000, ArrayParts), ScopeKey(uuid4(), 1, None)
    empty = ArrayParts().finish("|", 7)
    cache.keep(scope, empty)
    assert cache.find_index(scope, "|9.2") is None
    begun = part(cache, scope, "|9.2")
    assert begun == Beginning("|9.2", onto=empty) and begun.pieces_since == 0, "all of its pieces are missing"


def test_a_search_in_the_database_also_returns_all_pieces_for_an_empty_index() -> None:
    begun = Beginning("|5.1", onto=ArrayParts().finish("|", 7))
    assert ranking._next_part(ScopeKey(uuid4(), 1, None), begun)["pieces_since"] == 0


def test_what_is_begun_goes_on_at_the_same_version_alone_and_within_the_memory() -> None:
    class Parts:
        def __init__(self, pieces: int, size: int = 50) -> None:
            self.pieces, self.size = pieces, size

    def begun(version: str, pieces: int, size: int = 50) -> Beginning:
        return Beginning(version, Parts(pieces, size))  # type: ignore[arg-type]

    cache = IndexCache(100, ArrayParts)
    scope, other = ScopeKey(uuid4(), 1, None), ScopeKey(uuid4(), 1, None)
    cache.keep_beginning(scope, begun("1", 10))
    taken = part(cache, scope, "1")
    assert taken is not None and taken.parts is not None and taken.parts.pieces == 10
    assert part(cache, scope, "1") == Beginning("1"), "it was taken"
    cache.keep_beginning(scope, begun("1", 10))
    assert part(cache, scope, "2") is None
    cache.keep_beginning(scope, begun("1", 10, size=150))
    cache.keep_beginning(other, begun("1", 10, size=150))
    assert part(cache, scope, "1") is None, "the least recent one makes room"
    cache.keep_beginning(other, begun("1", 20, size=201))
    assert part(cache, other, "1") is None, "alone it was too big"
    assert cache.is_refused(other)


def test_one_search_at_a_time_adds_to_an_index() -> None:
    cache, scope = IndexCache(100, ArrayParts), ScopeKey(uuid4(), 1, None)
    other = ScopeKey(uuid4(), 1, None)
    assert part(cache, scope) is part(cache, other) is None
    with cache.next_part(scope, "1") as first:
        with cache.next_part(scope, "1") as second, cache.next_part(other, "1") as elsewhere:
            assert (first, second, elsewhere) == (Beginning("1"), None, Beginning("1"))
        with cache.next_part(scope, "1") as third:
            assert third is None, "the first one still makes it"
    with pytest.raises(KeyError), cache.next_part(scope, "1") as fourth:
        raise KeyError(fourth)
    with cache.next_part(scope, "1") as fifth:
        assert fifth == Beginning("1")


def test_an_index_that_cannot_be_made_fails_no_search(
    talk: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseTimeoutError("The statement took too long.")

    memory = talk("s", "The lighthouse stands at Bergen.")
    monkeypatch.setattr(indexed_search, "_add", fail)
    assert [found(memory) for _ in range(4)] == [["The lighthouse stands at Bergen."]] * 4
    assert not memory._resources.indexes._indexes


def test_parts_without_vectors_go_with_parts_that_have_them() -> None:
    key, parts = uuid4(), ArrayParts()
    sent = b"\0\2\0\0" + b"\x3c\0" + b"\0\0"  # (1, 0) as pgvector sends a halfvec
    for seq, vectors_sent in ((1, b""), (2, sent)):
        piece = [key], [seq], [seq], [3], ["user"], [""], [0], [None], [bool(vectors_sent)], vectors_sent
        parts.add(StoredPieces(*piece), [])
    query = IndexQuery("[1,0]", [], False, [], [], (key, FAR), 0.0, 10, key)
    assert parts.finish("1", 0).rank(query).similarities[0] == pytest.approx(1)


@pytest.fixture
def talk(make_memory: MakeMemory, database: Database, database_url: str) -> Callable[..., Memory]:
    """A session whose messages are flushed and searchable."""
    local = load_settings(database_url=database_url, embedding_backend="local", text_backend="local")

    def tell(session_id: str, *texts: str, memory: Memory | None = None) -> Memory:
        blocks = [VectorMemoryBlock(similarity_top_k=5)]
        memory = memory or make_memory(session_id, user_id="ann", memory_blocks=blocks)
        memory.put_messages([{"role": "user", "content": text} for text in texts])
        memory.flush(all=True)
        drain_everything(database, database_url, local, [VECTORS_STAGE])
        return memory

    return tell


def found(memory: Memory, query: str = "Where is the lighthouse?") -> list[str]:
    return [hit.message.text for hit in memory.search(query, include_window=False)]


def warm(memory: Memory) -> list[str]:
    """Search until there is an index; what it finds."""
    hits = [found(memory) for _ in range(4)]
    assert memory._resources.indexes._indexes, "an index was made"
    assert hits[0] == hits[-1]
    return hits[-1]


def scored(memory: Memory) -> list[tuple[str, float]]:
    hits = memory.search("Where is the lighthouse?", include_window=False)
    return [(hit.message.text, round(hit.score, 4)) for hit in hits]


def by_the_database(memory: Memory) -> list[tuple[str, float]]:
    """The same search without any index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory._resources.indexes, "_max_bytes", 0)
        patch.setattr(memory._resources.indexes, "_indexes", {})
        return scored(memory)


CHANGES: dict[str, Callable[[Memory], object]] = {
    "replace": lambda memory: memory.replace(1, "I had soup."),
    "rewind": lambda memory: memory.rewind(1),
    "reset": lambda memory: memory.reset(derived=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_change_took_away_is_not_found(talk: Callable[..., Memory], change: str) -> None:
    memory = talk("s", "The lighthouse stands at Bergen.", "I had bread.")
    assert warm(memory)[0] == "The lighthouse stands at Bergen."
    CHANGES[change](memory)
    after = scored(memory)
    assert "The lighthouse stands at Bergen." not in [text for text, _ in after]
    assert after == by_the_database(memory), "nothing is ranked by what it said before"


def test_what_was_said_since_is_found(talk: Callable[..., Memory]) -> None:
    memory = talk("s", "The lighthouse stands at Bergen.", "I had bread.")
    warm(memory)
    talk("s", "The lighthouse is red.", memory=memory)
    after = scored(memory)
    assert "The lighthouse is red." in [text for text, _ in after]
    assert after == by_the_database(memory)
    talk("s", *[f"The lighthouse had {number} guests." for number in range(5)], memory=memory)
    assert scored(memory) == by_the_database(memory), "several at once, of an index that grew before"


def test_what_an_index_may_lack_but_has_is_found_once(talk: Callable[..., Memory], database_url: str) -> None:
    with psycopg.connect(database_url) as open_transaction:
        open_transaction.execute("SELECT pg_current_xact_id()")
        memory = talk("s", "The lighthouse stands at Bergen.", "I had bread.")
        warm(memory)
        talk("s", "The lighthouse is red.", memory=memory)
        assert scored(memory) == by_the_database(memory)


def test_a_fork_is_found_in_all_sessions(talk: Callable[..., Memory], make_memory: MakeMemory) -> None:
    memory = talk("s", "The lighthouse stands at Bergen.", "I had bread.")
    for _ in range(4):
        before = memory.search("lighthouse", scope="owner", include_window=False)
    assert memory._resources.indexes._indexes, "an index was made"
    memory.fork("copy")
    after = make_memory("copy", user_id="ann").search("lighthouse", scope="owner", include_window=False)
    assert {hit.session_id for hit in before} == {"s"}
    assert {hit.session_id for hit in after} >= {"copy"}


def test_users_do_not_share_an_index(talk: Callable[..., Memory], make_memory: MakeMemory) -> None:
    blocks = [VectorMemoryBlock(similarity_top_k=5)]
    ann = talk("s", "The lighthouse stands at Bergen.")
    bea = talk(
        "t", "My lighthouse is of paper.", memory=make_memory("t", user_id="bea", memory_blocks=blocks)
    )
    for _ in range(4):
        of_ann = ann.search("lighthouse", scope="owner", include_window=False)
        of_bea = bea.search("lighthouse", scope="owner", include_window=False)
    assert len(ann._resources.indexes._indexes) == 2
    assert [hit.message.text for hit in of_ann] == ["The lighthouse stands at Bergen."]
    assert [hit.message.text for hit in of_bea] == ["My lighthouse is of paper."]


def test_a_search_that_finds_nothing_keeps_the_index(talk: Callable[..., Memory]) -> None:
    memory = talk("s", "The lighthouse stands at Bergen.")
    warm(memory)
    indexes = memory._resources.indexes
    before = dict(indexes._indexes)
    assert memory.get("zzz").hits == ()
    assert dict(indexes._indexes) == before


def test_an_empty_scope_has_an_empty_index(make_memory: MakeMemory, talk: Callable[..., Memory]) -> None:
    talk("s", "The lighthouse stands at Bergen.")
    other = make_memory("of nobody", user_id="cy")
    other.put({"role": "user", "content": "Nothing that is delivered."})
    assert [other.search("lighthouse", include_window=False) for _ in range(4)] == [[]] * 4
    assert other._resources.indexes._indexes


def test_a_read_gives_the_same_by_an_index(talk: Callable[..., Memory]) -> None:
    memory = talk("s", *[f"Day {day}: the lighthouse had {day} guests." for day in range(1, 30)])

    def given() -> list[tuple[int | None, str]]:
        context = memory.get("Who came to the lighthouse on day 7?")
        return [(hit.message.seq, f"{hit.score:.4f}") for hit in context.hits]

    assert len({str(given()) for _ in range(4)}) == 1
    assert memory._resources.indexes._indexes

    async def agiven() -> list[tuple[int | None, str]]:
        context = await memory.aget("Who came to the lighthouse on day 7?")
        await memory.aclose()
        return [(hit.message.seq, f"{hit.score:.4f}") for hit in context.hits]

    expected = given()
    assert asyncio.run(agiven()) == expected


def test_every_statement_that_changes_pieces_says_so() -> None:
    """All but those of shared scopes, of which no index is made."""
    changes = re.compile(r"(INSERT INTO|DELETE FROM|UPDATE) strandline\.chunk\b")
    texts = dict(statements("strandline")) | {
        name: function_source(name, "strandline") for name in function_names()
    }
    writing = {name for name, text in texts.items() if changes.search(str(text))}
    silent = {name for name in writing if "INSERT INTO strandline.derived_change" not in str(texts[name])}
    assert {"insert_chunks", "reset_v1", "fork_v1", "derive_again_v1", "delete_chunks"} <= writing
    adding = {name for name in writing if "'added'" in str(texts[name])}
    assert adding == {"insert_chunks"}, "what else it may take away an index would go on showing"
    assert silent == {"share_chunks", "clear_shared_v1", "forget_shared_v1", "erase_shared_v1"}
