"""Searches on the real database: what is found, in which order, by whom, and what a block shows of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import ConfigurationError, InvalidMessageError, Memory, OwnerError, VectorMemoryBlock
from strandline.producers.reading import candidates as postprocessing
from strandline.producers.search.hits import Hit
from strandline.producers.search.search import FoundMessage, SearchRequest, search_messages
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.statements import statements
from strandline.schemas.queries.conversation.search import SearchChunks
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, VECTORS_STAGE
from tests.conftest import MakeMemory, Rig
from tests.support.big_scope import fill_scope
from tests.support.workers.draining import drain_everything

Remember = Callable[..., Memory]

# Of a search in a scope of 10,000 messages.
MOST_PAGES = 20_000

CHATTER = ("Good morning to you.", "The weather is fine today.", "I had bread for breakfast.")


@pytest.fixture
def remember(make_memory: MakeMemory, database: Database, database_url: str) -> Callable[..., Memory]:
    """Puts texts by user and assistant in turns, flushes all of them, and derives what can be searched."""
    local = load_settings(database_url=database_url, embedding_backend="local", text_backend="local")

    def put(session_id: str, texts: Sequence[str], **options: Any) -> Memory:
        options.setdefault("memory_blocks", [VectorMemoryBlock(similarity_top_k=1)])
        memory = make_memory(session_id, **options)
        roles = ("user", "assistant")
        memory.put_messages([{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])
        memory.flush(all=True)
        drain_everything(database, database_url, local, [EXTRACT_STAGE, MERGE_STAGE, VECTORS_STAGE])
        return memory

    return put


def texts(hits: Sequence[FoundMessage]) -> list[str]:
    return [hit.message.text for hit in hits]


def by_words(database: Database, memory: Memory, query: str) -> list[FoundMessage]:
    """The same search without an embedding model."""
    identity = identify_session(memory.namespace, memory.session_id, memory.user_id)
    return database.run(search_messages(SearchRequest(identity, query, 10, "session", None)))


def test_a_search_ranks_messages_and_says_how_well_they_fit(remember: Remember) -> None:
    memory = remember("s", [*CHATTER, "Our lighthouse was painted red in spring.", *CHATTER])
    hits = memory.search("Which colour has the lighthouse?", limit=3)
    assert texts(hits)[0] == "Our lighthouse was painted red in spring."
    assert len(hits) <= 3
    assert hits[0].session_id == "s" and hits[0].message.seq == 4
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(0 < hit.score <= 1 for hit in hits)
    assert hits[0].similarity is not None and 0.2 < hits[0].similarity <= 1


def test_words_decide_alone_where_there_is_no_embedder(remember: Remember, database: Database) -> None:
    memory = remember("s", [*CHATTER, "Lars sails to Bergen.", "The boats of Lars are green."])
    hits = by_words(database, memory, "When does Lars sail?")
    assert texts(hits)[0] == "Lars sails to Bergen."
    assert hits[0].score == 1 and hits[0].similarity is None
    assert by_words(database, memory, "what is it?") == []


def test_a_word_counts_for_the_messages_beside_it(remember: Remember, database: Database) -> None:
    memory = remember(
        "s",
        ["It was painted red.", *CHATTER * 3, "Tell me of the lighthouse.", "It was painted red."],
    )
    hits = by_words(database, memory, "painted lighthouse")
    assert [hit.message.seq for hit in hits if hit.message.text == "It was painted red."] == [12, 1]


def test_a_word_does_not_count_in_the_next_session(remember: Remember, database: Database) -> None:
    remember("a", [*CHATTER, "The lighthouse."], user_id="maren")
    memory = remember("b", ["Painted red.", *CHATTER], user_id="maren")
    identity = identify_session("default", "b", "maren")
    hits = database.run(search_messages(SearchRequest(identity, "lighthouse", 10, "owner", None)))
    assert {hit.session_id for hit in hits} == {"a"}
    assert memory.search("lighthouse", limit=1, scope="owner")[0].session_id == "a"


def test_a_long_answer_does_not_drown_a_short_message(remember: Remember, database: Database) -> None:
    essay = "Lars, Lars! " + " ".join(f"Part {number} of the plan has many matters." for number in range(80))
    memory = remember("s", [*CHATTER, essay, *CHATTER * 2, "My brother Lars moved to Bergen."])
    assert texts(by_words(database, memory, "Lars"))[0] == "My brother Lars moved to Bergen."
    assert texts(memory.search("Where did Lars move?"))[0] == "My brother Lars moved to Bergen."


def test_the_end_of_a_long_message_is_found(remember: Remember, database: Database) -> None:
    pasted = "The minutes of the meeting. " * 400 + "At last, the harbour master resigned."
    assert len(pasted) > 10_000
    memory = remember("s", [*CHATTER, pasted])
    assert texts(by_words(database, memory, "harbour master"))[0] == pasted
    assert texts(memory.search("Who resigned in the harbour?"))[0] == pasted


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("孙阿姨带了什么饼干？", "孙阿姨最后带来了杏仁饼干。"),
        ("Wo liegen die Schlüssel vom Bootshaus?", "Der Schlüssel vom Bootshaus hängt neben der Tür."),
        ("Où est le café préféré de Chloé ?", "Le café préféré de Chloé est près du port."),
    ],
)
def test_other_languages_are_found(remember: Remember, database: Database, query: str, expected: str) -> None:
    said = [
        "我们明天去海边散步。",
        "孙阿姨最后带来了杏仁饼干。",
        "Das Wetter wird morgen schön.",
        "Der Schlüssel vom Bootshaus hängt neben der Tür.",
        "Le temps est beau.",
        "Le café préféré de Chloé est près du port.",
    ]
    memory = remember("s", said)
    assert texts(by_words(database, memory, query))[0] == expected
    assert texts(memory.search(query))[0] == expected


def test_nobody_elses_messages_are_ever_found(remember: Remember) -> None:
    """Three owners in two namespaces have said the same; each search finds its own, whatever is asked."""
    said = [*CHATTER, "Lars keeps the key of the boathouse.", "The code is 4711."]
    names = [("north", "maren"), ("north", "lars"), ("south", "maren"), ("north", None)]
    memories = [
        remember(f"of-{number}", said, namespace=namespace, user_id=user)
        for number, (namespace, user) in enumerate(names)
    ]
    words = st.lists(
        st.sampled_from(["key", "boathouse", "4711", "code", "Lars", "morning", "maren"]), min_size=1
    )
    storable = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    queries = words.map(" ".join) | st.text(storable, min_size=1, max_size=30)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(queries, st.sampled_from(["session", "owner"]), st.sampled_from(range(len(names))))
    def own_only(query: str, scope: Any, number: int) -> None:
        hits = memories[number].search(query, limit=1000, scope=scope)
        assert {hit.session_id for hit in hits} <= {f"of-{number}"}
        assert len({hit.message.seq for hit in hits}) == len(hits) <= len(said)

    own_only()
    assert memories[0].search("boathouse key", scope="owner")


def test_somebody_elses_session_cannot_be_searched(remember: Remember, make_memory: MakeMemory) -> None:
    remember("s", CHATTER, user_id="maren")
    with pytest.raises(OwnerError):
        make_memory("s", user_id="lars").search("breakfast")
    assert make_memory("never put to").search("breakfast") == []


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"limit": 1001}, {"limit": True}, {"scope": "everyone"}])
def test_bounds_are_checked(make_memory: MakeMemory, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        make_memory("s").search("x", **wrong)


@pytest.mark.parametrize("text", ["a\0b", "a\ud83db"], ids=["nul", "half a pair"])
def test_what_no_message_can_hold_is_refused_by_everything_that_searches(
    make_memory: MakeMemory, text: str
) -> None:
    memory = make_memory()
    said = {"role": "user", "content": text}
    for search in (
        lambda: memory.search(text),
        lambda: memory.search(text, limit=0),
        lambda: memory.facts.search(text),
        lambda: memory.facts.choose(text),
        lambda: memory.get(text),
        lambda: memory.get(said),
        lambda: memory.get(messages=[said]),
    ):
        with pytest.raises(InvalidMessageError, match=r"NUL|surrogate"):
            search()
    for tool, argument in (("search_memories", "query"), ("get_context", "question")):
        assert memory.call_tool(tool, {argument: text})["error"] == "invalid_arguments"


def test_a_limit_of_none_and_a_query_of_nothing_find_nothing(remember: Remember) -> None:
    memory = remember("s", CHATTER)
    assert memory.search("breakfast", limit=0) == []
    assert memory.search(" \n ") == []
    assert len(memory.search("breakfast morning weather", limit=2)) == 2


def section(memory: Memory, query: str) -> str:
    return memory.get(query)[0].text


STORY = [
    "Who keeps the key?",
    "Lars keeps the key.",
    *CHATTER[:2],
    "Who has the boat?",
    "Maren has the boat.",
]


def test_a_block_shows_the_question_with_its_answer(remember: Remember) -> None:
    shown = section(remember("s", STORY), "Which person keeps the key?")
    assert "Who keeps the key?" in shown and "Lars keeps the key." in shown
    assert "boat" not in shown


def test_a_cut_off_leaves_out_what_is_far_from_the_query(remember: Remember, make_memory: MakeMemory) -> None:
    remember("s", STORY)
    near, far = (
        make_memory("s", memory_blocks=[VectorMemoryBlock(similarity_cutoff=cutoff)])
        for cutoff in (0.3, 0.99)
    )
    assert "Lars keeps the key." in section(near, "Lars keeps the key")
    assert "<memory>" not in str(far.get("Who keeps what, and where?"))


def only_boats(query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    assert query == "Who keeps the key?"
    return [hit for hit in hits if "boat" in hit.messages[0].text]


def test_a_reranker_chooses_among_more_hits_than_are_shown(remember: Remember) -> None:
    memory = remember("s", STORY, memory_blocks=[VectorMemoryBlock(similarity_top_k=1, rerank=only_boats)])
    shown = section(memory, "Who keeps the key?")
    assert shown.count("boat") >= 1
    assert "Lars" not in shown


def without_boats(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    return [hit for hit in hits if "boat" not in hit.messages[0].text]


def reversed_order(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    return hits[::-1]


def test_postprocessors_are_applied_in_order_and_the_reranker_last(remember: Remember) -> None:
    seen: list[list[str]] = []

    def sees(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        seen.append([hit.messages[0].text for hit in hits])
        return hits

    block = VectorMemoryBlock(
        similarity_top_k=1, postprocessors=[sees, without_boats, raises, sees, reversed_order], rerank=sees
    )
    context = remember("s", STORY, memory_blocks=[block]).get("Who keeps the key, and who has the boat?")
    first, filtered, turned = seen
    assert any("boat" in text for text in first) and len(first) > 2
    assert filtered == [text for text in first if "boat" not in text]
    assert turned == filtered[::-1]
    assert turned[0] in context[0].text
    (omission,) = context.omitted
    assert (omission.kind, omission.name) == ("rerank_failed", "vector_memory")
    assert "postprocessors=" in omission.reason


def test_all_postprocessors_together_have_the_time_of_one(
    remember: Remember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one uses an hour up, by a clock that only it moves; the others are not waited for."""
    moment, ended = [0.0], threading.Event()

    def takes_an_hour(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        moment[0] += 3600.0
        return hits

    def hangs(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        ended.wait(600)
        return hits

    block = VectorMemoryBlock(postprocessors=[takes_an_hour, *[hangs] * 4])
    memory = remember("s", STORY, memory_blocks=[block])
    monkeypatch.setattr(postprocessing, "MAX_SECONDS", 3600.0)
    monkeypatch.setattr(postprocessing, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    context = memory.get("Who keeps the key?")
    assert not ended.is_set()
    ended.set()
    assert "Lars keeps the key." in context[0].text
    assert len(context.omitted) == 4


def test_the_current_session_can_be_left_out(remember: Remember, make_memory: MakeMemory) -> None:
    remember("past", ["My brother Lars moved to Bergen."], user_id="maren")
    now = remember("now", ["Lars likes Bergen."], user_id="maren")
    assert {hit.session_id for hit in now.search("Lars Bergen", scope="owner")} == {"past", "now"}
    hits = now.search("Lars Bergen", scope="owner", exclude_current=True)
    assert [hit.session_id for hit in hits] == ["past"]
    block = VectorMemoryBlock(scope="owner", exclude_current=True)
    shown = section(make_memory("now", user_id="maren", memory_blocks=[block]), "Lars in Bergen")
    assert "My brother Lars moved to Bergen." in shown and "Lars likes Bergen." not in shown


never = threading.Event()


def raises(_query: str, _hits: Sequence[Hit]) -> Sequence[Hit]:
    raise RuntimeError("secret")


def invents(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    return [Hit(1.0, hits[0].session_key, ())]


def sleeps(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    never.wait(60)
    return hits


@pytest.mark.parametrize("rerank", [raises, invents, sleeps])
def test_a_reranker_that_fails_leaves_the_hits_as_they_were(remember: Remember, rerank: Any) -> None:
    memory = remember("s", STORY, memory_blocks=[VectorMemoryBlock(similarity_top_k=1, rerank=rerank)])
    context = memory.get("Who keeps the key?")
    assert "Lars keeps the key." in context[0].text
    (omission,) = context.omitted
    assert (omission.kind, omission.name) == ("rerank_failed", "vector_memory")
    assert "secret" not in omission.reason


@pytest.mark.parametrize("with_facts", [False, True])
def test_a_search_in_a_scope_of_ten_thousand_messages_reads_few_pages(rig: Rig, with_facts: bool) -> None:
    """Also where the planner has no statistics, and expects a handful of rows."""
    params = fill_scope(rig.url, with_facts=with_facts)
    rows = rig.database.fetch(SearchChunks(**params))
    assert with_facts == any(row.fact_id is not None for row in rows)
    explained = (
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements(rig.settings.database_schema)['search_chunks']}"
    )
    with psycopg.connect(rig.url, cursor_factory=psycopg.ClientCursor) as connection:
        ((((plan,),),),) = [connection.execute(explained.encode(), params).fetchall()]
    pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert pages < MOST_PAGES, f"{pages} pages were read"
