"""What a process keeps for its reads: how many statements they take, and that nothing outlives a change."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import FactExtractionMemoryBlock, Memory, MemoryContext, Retention, VectorMemoryBlock
from strandline.producers.facts.listing import FactFilter
from strandline.producers.reading.contributions import RecentCounts
from strandline.producers.search import ranking
from strandline.producers.search.index import array_index, indexed_search
from strandline.producers.search.index.array_index import ArrayParts
from strandline.producers.search.ranking import (
    NO_VECTORS,
    Vectors,
    facts_generation,
    prepare_query,
    ranked_facts,
)
from strandline.producers.tokens import count_default
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.statements import function_names, function_source, statements
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.wiring import runtime
from strandline.wiring.process_resources import ProcessResources
from tests.conftest import MakeMemory, Rig
from tests.support.workers.draining import drain_everything

R = TypeVar("R")

LIMITS: dict[str, Any] = {"token_limit": 2_000, "token_flush_size": 500}
SAID = [
    f"On day {day} the lighthouse at Bergen had {day % 7} guests and {day % 3} boats." for day in range(40)
]
QUESTIONS = ["Who came to the lighthouse?", "How many boats on day 7?", "Tell me of Bergen and of day 9"]


def derive(database: Database, database_url: str) -> None:
    drain_everything(
        database,
        database_url,
        load_settings(database_url=database_url, embedding_backend="local", text_backend="local"),
    )


@pytest.fixture
def talked(make_memory: MakeMemory, database: Database, database_url: str) -> Memory:
    """A session with all that a read shows: facts, more than are new, a summary, messages and a window."""
    memory = make_memory("s", user_id="ann", **LIMITS)
    memory.put_messages([{"role": "user", "content": text} for text in SAID])
    memory.flush(all=True)
    derive(database, database_url)
    for number in range(25):
        memory.facts.add(f"Ann's boat {number} lies at pier {number % 5}.")
    memory.put_messages([{"role": "user", "content": f"And word {number}."} for number in range(6)])
    return memory


@contextmanager
def another_process(url: str, **options: Any) -> Iterator[Memory]:
    """The same session in a process that has read nothing."""
    with pytest.MonkeyPatch.context() as patch:
        # Memories of the same settings share what their process keeps.
        patch.setattr(runtime._registry, "runtimes", {})
        memory = Memory.from_defaults("s", user_id="ann", database_url=url, **LIMITS, **options)
    with closing(memory):
        yield memory


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that were sent."""
    names: list[str] = []
    fetch, afetch = Database.fetch, AsyncDatabase.fetch

    def counted(self: Database, query: Query[R]) -> list[R]:
        names.append(query.name)
        return fetch(self, query)

    async def acounted(self: AsyncDatabase, query: Query[R]) -> list[R]:
        names.append(query.name)
        return await afetch(self, query)

    monkeypatch.setattr(Database, "fetch", counted)
    monkeypatch.setattr(AsyncDatabase, "fetch", acounted)
    return names


def sent(asked: list[str], read: Callable[[], object]) -> list[str]:
    asked.clear()
    read()
    # Asked for again after five seconds, however many reads there were.
    return [name for name in asked if name != "level_of_namespace"]


def test_a_read_takes_at_most_two_statements_and_one_if_nothing_changed(
    talked: Memory, database_url: str, asked: list[str]
) -> None:
    with another_process(database_url) as memory:
        memory.history(limit=1)  # its level of recording, and its pool
        assert sent(asked, memory.get) == ["read", "added_hits"], "never read before"
        for question in QUESTIONS:
            assert len(sent(asked, partial(memory.get, question))) <= 2
        memory.get()
        assert sent(asked, memory.get) == ["read"]
        assert sent(asked, lambda: memory.get(QUESTIONS[0])) == ["read"]
        memory.put({"role": "user", "content": "One more."})
        assert sent(asked, memory.get) in (["read"], ["read", "indexed_hits"])
        memory.put({"role": "user", "content": "And one more."})
        assert sent(asked, lambda: memory.get(QUESTIONS[1])) in (["read"], ["read", "indexed_hits"])
        memory.facts.add("Ann sold boat 3.")
        assert sent(asked, memory.get) == ["read", "indexed_hits"], "facts changed, pieces did not"
        assert sent(asked, memory.get) == ["read"]


@pytest.mark.parametrize("few", [0, 1_000])
def test_new_pieces_are_added_to_an_index_and_any_other_change_ends_it(
    few: int,
    talked: Memory,
    database: Database,
    database_url: str,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexed_search, "FEW_MESSAGES", few)
    with another_process(database_url) as memory:
        for question in QUESTIONS:
            memory.get(question)
        for number in range(12):
            memory.put({"role": "user", "content": f"The lighthouse at Bergen got lamp {number}."})
            memory.flush(all=True)
            derive(database, database_url)
            assert sent(asked, lambda: memory.get(QUESTIONS[0])) == ["read", "added_hits"]
            assert sent(asked, lambda: memory.get(QUESTIONS[1])) in (["read"], ["read", "indexed_hits"])
            assert contents(memory.get(QUESTIONS[2])) == by_the_database(database_url, QUESTIONS[2])
        memory.replace(1, "On day 0 nobody came.")
        made_again = "added_hits" if few else "search_chunks"
        assert sent(asked, lambda: memory.get(QUESTIONS[0])) == ["read", made_again]
        assert contents(memory.get(QUESTIONS[1])) == by_the_database(database_url, QUESTIONS[1])


def test_the_index_of_a_small_scope_with_long_messages_is_made_in_parts(
    talked: Memory, database_url: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_search, "PIECES_AT_ONCE", 15)
    monkeypatch.setattr(ranking, "PIECES_AT_ONCE", 15)
    with another_process(database_url) as memory:
        statements_sent = [sent(asked, lambda: memory.get(QUESTIONS[0]))[1:] for _ in range(4)]
        first, *further, last = statements_sent
        assert first == ["added_hits", "search_chunks"], "more than one statement may return"
        assert further == [["search_chunks"]] * 2
        assert last in ([], ["indexed_hits"])
        assert contents(memory.get(QUESTIONS[1])) == by_the_database(database_url, QUESTIONS[1])


def test_the_index_of_all_sessions_grows_and_gives_each_session_its_own(
    talked: Memory, make_memory: MakeMemory, database: Database, database_url: str, asked: list[str]
) -> None:
    other = make_memory("other", user_id="ann", **LIMITS)
    blocks = [VectorMemoryBlock(scope="session"), FactExtractionMemoryBlock()]

    def say(text: str, *speaking: Memory) -> None:
        for memory in speaking:
            memory.put({"role": "user", "content": f"{text} of session {memory.session_id}."})
            memory.flush(all=True)
        derive(database, database_url)

    def found(reader: Memory) -> list[tuple[str, float]]:
        hits = reader.search("Which lamp?", scope="owner", include_window=False)
        return [(hit.text, round(hit.score, 4)) for hit in hits]

    say("A blue lamp", talked, other)
    with another_process(database_url, memory_blocks=blocks) as reader:
        for _ in range(3):
            reader.get(QUESTIONS[0])
            found(reader)
        for speaking in ((talked, other), (talked,), (other,)):
            say("A red lamp", *speaking)
            assert sent(asked, lambda: reader.get(QUESTIONS[0])) == ["read", "added_hits"]
            for question in QUESTIONS:
                given = contents(reader.get(question))
                assert given == by_the_database(database_url, question, memory_blocks=blocks)
            with another_process(database_url, memory_blocks=blocks) as afresh:
                assert found(reader) == found(afresh)


def test_a_read_whose_facts_are_too_many_for_memory_asks_the_database_alone(
    talked: Memory, database_url: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_search, "MAX_FACTS", 5)
    talked.set_retention(Retention(max_age_seconds=10**8))  # so that each hit is looked up again
    with another_process(database_url) as memory:
        for question in QUESTIONS:
            memory.get(question)
        assert sent(asked, lambda: memory.get("What of day 12?")) == ["read", "search_chunks"]


def test_a_removal_that_commits_after_many_later_ones_ends_an_index(
    talked: Memory, make_memory: MakeMemory, database: Database, database_url: str
) -> None:
    """Its number is lower than theirs, so that it would be the first of which nothing is known any more."""
    other = make_memory("other", user_id="ann", **LIMITS)
    other.put_messages([{"role": "user", "content": f"Line {number} of gardens."} for number in range(20)])
    other.flush(all=True)
    derive(database, database_url)
    keys = identify_session("default", "s", "ann")
    with psycopg.connect(database_url) as late, another_process(database_url) as reader:
        late.execute("SELECT pg_current_xact_id()")
        for number in range(9):
            other.replace(number + 1, f"Line {number} of roses.")
        derive(database, database_url)
        for question in QUESTIONS * 2:
            reader.get(question)
        # As a correction does whose transaction began before those.
        late.execute(
            "INSERT INTO strandline.derived_change (shard_key, kind, change_id)"
            " VALUES (%s, 'pieces', pg_current_xact_id()::text::bigint)", (keys.shard_key,)
        )  # fmt: skip
        late.execute(
            "DELETE FROM strandline.chunk WHERE session_key = %s AND from_seq <= 30", (keys.session_key,)
        )
        late.execute(
            "DELETE FROM strandline.message WHERE session_key = %s AND seq <= 30", (keys.session_key,)
        )
        late.commit()
        other.put({"role": "user", "content": "One more line, of tulips."})
        other.flush(all=True)
        derive(database, database_url)
        for question in QUESTIONS:
            found = [hit.message.seq or 0 for hit in reader.get(question).hits if hit.session_id == "s"]
            assert min(found) > 30


def contents(context: MemoryContext) -> list[tuple[str, str]]:
    return [(hit.message.id or "", f"{hit.score:.4f}") for hit in context.hits]


def by_the_database(url: str, question: str, **options: Any) -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch, another_process(url, **options) as memory:
        patch.setattr(indexed_search, "FEW_MESSAGES", 0)
        return contents(memory.get(question))


def test_facts_alone_are_ranked_with_messages_as_they_are_without(talked: Memory, database_url: str) -> None:
    """Together if all of the owner's pieces are looked for, else by themselves."""
    asked = """
        SELECT h.* FROM strandline.session s JOIN strandline.generation v ON v.pipeline = 'vectors'
        JOIN strandline.generation f ON f.pipeline = 'facts'
        CROSS JOIN LATERAL (SELECT c.embedding FROM strandline.chunk c ORDER BY c.from_seq LIMIT 1) AS e
        CROSS JOIN LATERAL strandline.search_v1(s.shard_key, v.generation_id, {scope}, {visible_in},
            {visible}, {vector}, '{{boat,7,lighthous}}', {cutoff}, {top}, {messages}, {facts}, '{{}}', NULL,
            NULL, NULL, true, '{{}}', '{{}}', '{{}}', '{{}}', NULL,
            p_facts_alone_id => {alone}, p_top_facts => 12) AS h
    """
    whole = {"scope": "NULL", "visible_in": "s.shard_key", "visible": 2**62, "cutoff": 0, "top": 12}
    cases = product(("s.session_key", "NULL"), (2**62, 20), ("e.embedding", "NULL"), (0, 0.3))
    with psycopg.connect(database_url) as connection:
        for scope, visible, vector, cutoff in cases:
            own: dict[str, Any] = {
                "scope": scope,
                "visible_in": "s.session_key",
                "visible": visible,
                "top": 9,
            }
            own |= {"cutoff": cutoff, "vector": vector, "messages": True, "facts": "NULL", "alone": "NULL"}
            facts = own | whole | {"messages": False, "facts": "f.generation_id"}
            both, messages, alone = (
                connection.execute(asked.format(**one).encode()).fetchall()
                for one in (own | {"alone": "f.generation_id"}, own, facts)
            )
            assert both == messages + alone
            assert len(alone) == 12


@pytest.mark.parametrize("filters", [{}, {"topics": ("boats",)}, {"agent_id": "a"}, {"team_id": "t"}])
def test_facts_are_ranked_by_words_alone_as_by_the_search_of_all(
    talked: Memory, database: Database, filters: dict[str, Any]
) -> None:
    """The statement for words gives the facts, scores and sources of the one for vectors, without pieces."""
    for options in ({}, {"topics": ["boats"]}, {"agent_id": "a", "team_id": "t"}):
        talked.facts.add(f"Ann's boat 7 has a blue lamp: {len(options)}.", **options)
    owner = identify_session("default", "s", "ann").shard_key
    generation_id = database.run(facts_generation(("fact",), owner))
    assert generation_id is not None
    for question in (*QUESTIONS, "The blue boat 7 at pier 2", "Ann's boat"):
        query = database.run(prepare_query(question, None, None))
        by_words, by_all = (
            database.run(ranked_facts(query, vectors, owner, generation_id, FactFilter(**filters), limit=12))
            for vectors in (None, Vectors(NO_VECTORS, {}))
        )
        # The last digit depends on the order in which the weights of words are added up.
        assert [replace(hit, score=round(hit.score, 12)) for hit in by_words] == [
            replace(hit, score=round(hit.score, 12)) for hit in by_all
        ]
    assert by_words


def test_a_read_by_words_alone_takes_one_statement(
    talked: Memory, database_url: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessResources, "embed_query", lambda *_: None)
    with another_process(database_url) as memory:
        for _ in range(4):
            context = memory.get(QUESTIONS[0])
        assert {omission.kind for omission in context.omitted} == {"search_text_only"}
        assert sent(asked, lambda: memory.get(QUESTIONS[0])) == ["read"]


@pytest.fixture
def url_of_facts(rig: Rig) -> str:
    """The database of a session with facts and without vectors."""
    told_of = rig.memory("s", user_id="ann", **LIMITS)
    told_of.put({"role": "user", "content": SAID[7]})
    for number in range(25):
        told_of.facts.add(f"Ann's boat {number} lies at pier {number % 5}.")
    return rig.url


def test_facts_are_ranked_in_memory_without_vectors(url_of_facts: str, asked: list[str]) -> None:
    blocks = [FactExtractionMemoryBlock()]
    with another_process(url_of_facts, memory_blocks=blocks) as knowing:
        for question in (*QUESTIONS, "Which pier has boat 3?", None):
            for _ in range(4):
                context = knowing.get(question)
            with another_process(url_of_facts, memory_blocks=blocks) as afresh:
                assert told(context) == told(afresh.get(question))
        assert sent(asked, lambda: knowing.get("Where is boat 24?")) == ["read"]
        knowing.put({"role": "user", "content": "One more."})
        assert sent(asked, knowing.get) == ["read"]


def test_no_index_is_begun_on_the_event_loop(url_of_facts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one loads numpy, for which other requests would wait."""
    begun_in: list[threading.Thread] = []

    class Noted(ArrayParts):
        def __init__(self) -> None:
            begun_in.append(threading.current_thread())
            super().__init__()

    monkeypatch.setattr(array_index, "ArrayParts", Noted)

    async def read_again() -> None:
        with another_process(url_of_facts, memory_blocks=[FactExtractionMemoryBlock()]) as memory:
            for _ in range(4):
                await memory.aget(QUESTIONS[1])
            await memory.aclose()

    asyncio.run(read_again())
    assert begun_in
    assert threading.main_thread() not in begun_in


def test_no_part_of_an_index_is_read_on_the_event_loop(
    talked: Memory, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of two thousand pieces, with their vectors."""
    read_in: list[threading.Thread] = []

    def loads(text: str) -> object:
        if "vectors" in text:
            read_in.append(threading.current_thread())
        return json.loads(text)

    async def read() -> None:
        with another_process(database_url) as memory:
            await memory.aget(QUESTIONS[1])
            await memory.aclose()

    monkeypatch.setattr(indexed_search, "json", SimpleNamespace(loads=loads))
    asyncio.run(read())
    assert read_in
    assert threading.main_thread() not in read_in


def test_async_reads_take_as_many(talked: Memory, database_url: str, asked: list[str]) -> None:
    async def names() -> list[list[str]]:
        with another_process(database_url) as memory:
            seen = []
            for question in (None, *QUESTIONS, None, None):
                asked.clear()
                await memory.aget(question)
                seen.append([name for name in asked if name != "level_of_namespace"])
            await memory.aclose()
            return seen

    seen = asyncio.run(names())
    assert max(map(len, seen)) <= 2
    assert seen[-1] == ["read"]


def told(context: MemoryContext) -> tuple[object, ...]:
    """All that a read gives; scores as far as single precision has them."""
    return (
        [(message.role, message.text) for message in context],
        [(fact.text, round(fact.score, 4), fact.sources, fact.tokens) for fact in context.facts],
        [(hit.message.seq, hit.session_id, round(hit.score, 4), hit.tokens) for hit in context.hits],
        context.summary,
        context.tokens,
        context.omitted,
        context.covered_through,
    )


def keep_less(memory: Memory) -> None:
    """Until all that was said is past its time."""
    memory.set_retention(Retention(max_age_seconds=1))
    while memory.get().window:
        pass


CHANGES: dict[str, Callable[[Memory], object]] = {
    "nothing": lambda memory: None,
    "put": lambda memory: memory.put({"role": "user", "content": "How were the guests on day 12?"}),
    "add a fact": lambda memory: memory.facts.add("Ann keeps a lighthouse log."),
    "delete a fact": lambda memory: memory.facts.delete(memory.facts.list(limit=1)[0].fact_id),
    "replace a fact": lambda memory: memory.facts.replace(
        memory.facts.list(limit=1)[0].fact_id, "Ann sails to Skagen."
    ),
    "clear the facts": lambda memory: memory.facts.clear(),
    "replace a message": lambda memory: memory.replace(8, "On day 7 the mill burned."),
    "rewind": lambda memory: memory.rewind(30),
    "pop": lambda memory: memory.pop(),
    "flush": lambda memory: memory.flush(all=True),
    "reset": lambda memory: memory.reset(),
    "forget": lambda memory: memory.reset(derived=True),
    "fork": lambda memory: memory.fork("copy"),
    "keep less": keep_less,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_process_that_keeps_what_it_read_gives_what_another_does(
    rig: Rig, talked: Memory, change: str
) -> None:
    with another_process(rig.url) as knowing, another_process(rig.url) as other:
        for _ in range(3):
            for question in (*QUESTIONS, None):
                knowing.get(question)
        CHANGES[change](other)
        for _ in range(2):
            for question in (None, *QUESTIONS):
                with another_process(rig.url) as afresh:
                    assert told(knowing.get(question)) == told(afresh.get(question))
            derive(rig.database, rig.url)


def test_what_a_reader_changes_in_its_context_is_in_no_other(talked: Memory) -> None:
    talked.get()
    context = talked.get()
    dict.update(context.covered_through, facts=0)
    assert talked.get().covered_through != {**context.covered_through}


def test_what_is_kept_is_counted_and_bounded(talked: Memory) -> None:
    windows, indexes = talked._resources.windows, talked._resources.indexes
    for question in (None, None, *QUESTIONS, None):
        talked.get(question)
    assert 0 < windows.size <= talked._resources.settings.window_cache_bytes
    assert 0 < indexes.size <= talked._resources.settings.index_cache_bytes


def test_every_statement_that_changes_facts_is_under_a_note() -> None:
    """A statement or function notes it itself, or is run only in a transaction that has."""
    changes = re.compile(r"(INSERT INTO|DELETE FROM|UPDATE) strandline\.fact(_revision)?\b")
    texts = dict(statements("strandline")) | {
        name: function_source(name, "strandline") for name in function_names()
    }
    writing = {name for name, text in texts.items() if changes.search(str(text))}
    by_merge = {
        "add_fact",
        "update_fact",
        "confirm_fact",
        "invalidate_fact",
        "insert_revision",
        "end_condensed",
        "add_condensed",
    }
    by_edit = {
        "write_fact",
        "reword_fact",
        "repeat_fact",
        "mark_doubt",
        "revise_by_person",
        "set_feedback",
        "remove_facts_v1",
        "uncondense_v1",
        "reseal_fact",
        "reseal_fact_revision",
    }
    by_forgetting = {
        "take_apart_v1",
        "restate_facts_v1",
        "revive_facts_v1",
        "stand_alone_v1",
        "drop_unsourced_v1",
        "refresh_facts_v1",
        "replace_quotes_v1",
    }
    of_no_reader = {
        "carry_facts_v1": "into a generation that does not serve yet",
        "part_removed_v1": "only which batch a revision names",
        "forget_ended_facts": "facts that ended",
        "prune_owner": "a generation that does not serve any more",
    }
    assert writing == by_merge | by_edit | by_forgetting | of_no_reader.keys()
    assert all(
        "'facts', pg_current_xact_id()" in str(texts[name])
        for name in ("note_facts_change", "lock_fact_lanes", "forget_facts_v1")
    )


ODD = [
    "",
    " ",
    "a",
    "Tom's boat.",
    "x = {};",
    "/etc/",
    "//",
    "\t",
    "\r",
    "é ",
    "你好",
    "1234567",
    "!?",
    "\u2028",
]
LINES = st.lists(st.sampled_from(ODD) | st.text(max_size=12), max_size=12)


@given(LINES)
def test_a_text_has_as_many_tokens_as_its_lines(lines: list[str]) -> None:
    """The default tokenizer starts afresh at each line, so lines that were counted need not be again."""
    text = "\n".join(lines)
    assert RecentCounts().count(count_default, text) == count_default(text)
