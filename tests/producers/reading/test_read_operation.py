"""The read operation, carried out by hand on rows as Postgres gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    Material,
    StaticMemoryBlock,
)
from strandline.producers.blocks.resolve import default_blocks
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.read import MAX_PAUSE_SECONDS, read
from strandline.producers.reading.request import ReadRequest
from strandline.producers.sessions import history_page
from strandline.schemas.errors import DatabaseTimeoutError, OwnerError, StrandlineError, TransientModelError
from strandline.schemas.postgres.operations import Content, Operation, Pause, Run, Step
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.read import ReadRow
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.sealing.codec import WITHOUT_KEYS
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.message import Message

SESSION = identify_session("default", "s", "maren")
STRANGER = UUID(int=7)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PIPELINES = ["facts", "summary", "vectors"]
EMBEDDER = {"embedder": "letters", "dimensions": 2}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


class Postgres:
    """Answers statements from lists of answers by name, and keeps what was asked."""

    def __init__(self, **answers: Sequence[Sequence[Any] | StrandlineError]) -> None:
        self._answers = {name: list(given) for name, given in answers.items()}
        self.asked: list[Query[Any]] = []
        self.pauses: list[float] = []
        self.runs = 0

    @property
    def names(self) -> list[str]:
        return [fetch.name for fetch in self.asked]

    def params(self, name: str) -> Mapping[str, Any]:
        return next(fetch.params for fetch in self.asked if fetch.name == name)

    def run(self, operation: Operation[Any]) -> Any:
        """Carry the steps out; an answer that is an error is thrown into the operation, as drivers do."""
        result: Any = None
        while True:
            try:
                step = (
                    operation.throw(result) if isinstance(result, StrandlineError) else operation.send(result)
                )
            except StopIteration as done:
                return done.value
            result = self._carry_out(step)

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Query):
            self.asked.append(step)
            answer = self._answers[step.name].pop(0)
            if isinstance(answer, StrandlineError):
                return answer
            return [tuple.__new__(step.row, row) for row in answer]
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            return None
        if isinstance(step, Content):
            return WITHOUT_KEYS
        assert isinstance(step, Run)
        self.runs += 1
        return step.call()


def message_row(
    seq: int, role: str = "user", text: str | None = None, tokens: int = 1, **more: Any
) -> MessageRow:
    envelope = json.dumps({"content": f"m{seq}" if text is None else text, **more})
    return MessageRow(seq, f"id{seq}", role, tokens, NOON, envelope, None)


def snapshot_rows(
    *,
    exists: bool = True,
    tail: Sequence[MessageRow] = (),
    messages: Sequence[MessageRow] = (),
    facts: Sequence[str] = (),
    states: Mapping[str, Any] | None = None,
    pending: Sequence[tuple[str, int, int]] = (),
    pipelines: Sequence[str] = PIPELINES,
    serving: Sequence[str] = PIPELINES,
    **marks: int,
) -> list[ReadRow]:
    default = {"window_from": 1, "flushed_through": 0, "pinned_through": 0, "log_start_seq": 1}
    default["next_seq"] = 10
    header = {
        "session": {**default, **marks, "pipelines": list(pipelines)} if exists else None,
        "erasures": None,
        "serving": {name: {"generation_id": at, "config": EMBEDDER} for at, name in enumerate(serving)}
        or None,
        "pending": [list(one) for one in pending] or None,
        "facts": [
            {
                "fact_id": str(UUID(int=at)),
                "text": text,
                "said_at": str(NOON),
                "sources": [[str(SESSION.session_key), "s", [1 + at]]],
            }
            for at, text in enumerate(facts)
        ]
        or None,
        "facts_version": "0:1",
        "pieces_version": "1",
        "is_bounded": False,
        "is_alone": True,
        "is_aging": False,
        "is_sealing": False,
        "known": False,
        "seal": None,
        "states": states,
    }
    first = ReadRow(0, 0, "", "", 0, NOON, json.dumps(header), None)
    return [first, *(ReadRow(1, *row) for row in tail), *(ReadRow(2, *row) for row in messages)]


def request(*blocks: BaseMemoryBlock, **given: Any) -> ReadRequest:
    arguments: dict[str, Any] = {"token_limit": 1_000, "count_text": lambda text: len(text.split())}
    return ReadRequest(identity=SESSION, blocks=blocks, **{**arguments, **given})


# Names of sessions, for as many statements as a read may need.
SOURCES: dict[str, Any] = {"session_names": [[(STRANGER, "another")]]}


def read_one(rows: list[ReadRow], asked: ReadRequest, **answers: Any) -> tuple[MemoryContext, Postgres]:
    postgres = Postgres(read=[rows], **{**SOURCES, **answers})
    return postgres.run(read(asked)), postgres


def kinds(context: MemoryContext) -> list[tuple[str, str]]:
    return [(omission.kind, omission.name) for omission in context.omitted]


def seqs(messages: Sequence[Message]) -> list[int | None]:
    return [message.seq for message in messages]


def test_head_tail_and_window_in_order_with_the_memory_in_the_head() -> None:
    rows = snapshot_rows(
        window_from=5,
        flushed_through=4,
        pinned_through=1,
        tail=[message_row(3), message_row(4, "assistant")],
        messages=[message_row(1, "system", tokens=4), message_row(5)],
        facts=["Maren sails."],
        pending=[("facts", 3, 4)],
    )
    context, postgres = read_one(rows, request(FactExtractionMemoryBlock(max_facts=50)))
    assert seqs(context) == [1, 3, 4, 5]
    assert context[0].text == (
        "m1\n\n<memory>\n<fact_extraction_memory>\n<fact>Maren sails.</fact>\n"
        "</fact_extraction_memory>\n</memory>"
    )
    assert (context[0].id, context[0].created_at) == ("id1", NOON)
    assert context.covered_through == {"facts": 2}
    assert not context.caught_up
    assert (context.omitted, context.over_budget) == ((), False)
    assert context.tokens == 4 + 3 + 6
    assert postgres.names == ["read"]
    assert postgres.params("read")["pipelines"] == ["facts"]
    assert postgres.params("read")["max_facts"] == 50


def test_a_context_is_a_sequence_that_slices_to_lists_and_prints() -> None:
    context, _ = read_one(snapshot_rows(messages=[message_row(1), message_row(2, "assistant")]), request())
    assert isinstance(context[-2:], list)
    assert context[-1].role == "assistant"
    assert str(context) == "user: m1\nassistant: m2"
    assert repr(context).startswith("MemoryContext(2 messages, 2 tokens, caught_up=True")
    assert context.to_openai() == [{"role": "user", "content": "m1"}, {"role": "assistant", "content": "m2"}]


def test_without_blocks_nothing_is_inserted_and_nothing_waited_for() -> None:
    context, postgres = read_one(snapshot_rows(messages=[message_row(1)]), request(wait_for=1))
    assert (len(context), context.covered_through, context.caught_up) == (1, {}, True)
    assert postgres.names == ["read"]


def test_a_session_that_does_not_exist_shows_what_is_known_of_its_owner() -> None:
    blocks = (StaticMemoryBlock(static_content="Be kind."), FactExtractionMemoryBlock(max_facts=50))
    rows = snapshot_rows(exists=False, facts=["Maren sails."])
    context, postgres = read_one(rows, request(*blocks), find_owner=[[]])
    assert "Be kind." in context[0].text
    assert "<fact>Maren sails.</fact>" in context[0].text
    assert (len(context), context.covered_through, context.caught_up) == (1, {"facts": 0}, True)
    assert postgres.names == ["read", "find_owner"]


@pytest.mark.parametrize("owner", [[], [("maren", SESSION.shard_key)]])
def test_a_session_without_messages_and_blocks_is_empty(owner: list[tuple[Any, ...]]) -> None:
    context, _ = read_one(snapshot_rows(exists=False), request(), find_owner=[owner])
    assert list(context) == []


def test_another_owners_session_is_refused() -> None:
    with pytest.raises(OwnerError):
        read_one(snapshot_rows(exists=False), request(), find_owner=[[("other", STRANGER)]])


def test_history_pages_and_their_owner() -> None:
    postgres = Postgres(history=[[message_row(3)], []], find_owner=[[("other", STRANGER)]])
    assert seqs(postgres.run(history_page(SESSION, 2, 10))) == [3]
    assert postgres.params("history")["after_seq"] == 2
    with pytest.raises(OwnerError):
        postgres.run(history_page(SESSION, 3, 10))


def test_content_parts_of_static_blocks_stand_beside_the_text() -> None:
    block = StaticMemoryBlock(static_content=[{"type": "text", "text": "Look:"}, IMAGE])
    context, _ = read_one(
        snapshot_rows(messages=[message_row(1)]), request(block, insert_method=InsertMethod.USER)
    )
    assert context[0].content is not None
    assert list(context[0].content)[1:] == [IMAGE, {"type": "text", "text": "m1"}]
    assert context.tokens == 1 + 256 + 5


def test_a_pipeline_that_nothing_feeds_covers_nothing_and_this_is_said() -> None:
    rows = snapshot_rows(window_from=9, flushed_through=8, pipelines=["facts"], serving=["facts", "summary"])
    context, _ = read_one(rows, request(*default_blocks()))
    assert context.covered_through == {"facts": 8, "summary": 0, "vectors": 0}
    assert not context.caught_up
    assert kinds(context) == [("not_fed", "summary"), ("not_fed", "vector_memory")]


def test_caught_up_is_asked_of_what_was_waited_for() -> None:
    rows = snapshot_rows(window_from=9, flushed_through=8, pending=[("facts", 5, 8)])
    block = FactExtractionMemoryBlock()
    covered: list[tuple[Any, ...]] = [("facts", None, 8)]
    assert read_one(rows, request(block, wait_for=4), coverage=[covered])[0].caught_up
    assert not read_one(rows, request(block, wait_for=5), coverage=[covered])[0].caught_up


def test_waiting_asks_less_and_less_often_and_ends_when_covered() -> None:
    waiting: list[tuple[Any, ...]] = [("facts", 5, 8)]
    coverage = [waiting] * 7 + [[("facts", None, 8)]]
    _, postgres = read_one(snapshot_rows(), request(*default_blocks(), wait_for=8), coverage=coverage)
    assert postgres.names == ["coverage"] * 8 + ["read"]
    assert postgres.params("coverage")["seq"] == 8
    assert postgres.pauses == [0.01, 0.02, 0.04, 0.08, 0.16, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]


def test_waiting_ends_with_its_time_and_the_read_goes_on() -> None:
    asked = request(FactExtractionMemoryBlock(), wait_for=8, timeout_seconds=0)
    rows = snapshot_rows(window_from=9, flushed_through=8, pending=[("facts", 5, 8)])
    context, postgres = read_one(rows, asked, coverage=[[("facts", 5, 8)]])
    assert postgres.pauses == []
    assert not context.caught_up


class Breaking(BaseMemoryBlock):
    def render(self, material: Material) -> str | None:
        raise ZeroDivisionError


class Numeric(BaseMemoryBlock):
    def render(self, material: Material) -> Any:
        return 42


def test_a_block_that_fails_is_left_out_and_said() -> None:
    blocks = (
        Breaking(name="a", pipeline=None),
        Numeric(name="b", pipeline=None),
        StaticMemoryBlock(static_content="c"),
    )
    context, _ = read_one(snapshot_rows(messages=[message_row(1)]), request(*blocks))
    assert kinds(context) == [("block_failed", "a"), ("block_failed", "b")]
    assert context[0].text == "<memory>\n<static_memory>\nc\n</static_memory>\n</memory>"


def hit_row(
    score: float, seq: int, text: str, session: UUID = SESSION.session_key, first: int | None = None
) -> tuple[Any, ...]:
    begins = seq if first is None else first
    return (score, 0.5, session, begins, begins, *message_row(seq, text=text), *[None] * 4)


FLUSHED: dict[str, Any] = {
    "window_from": 9,
    "flushed_through": 8,
    "messages": [message_row(9, text="where do we sail?")],
}


def letters(text: str, config: Mapping[str, Any]) -> str | None:
    assert config == EMBEDDER
    return f"[{text.count('a')},{text.count('e')}]"


def failing(text: str, config: Mapping[str, Any]) -> str | None:
    raise TransientModelError("no answer")


def foreign(text: str, config: Mapping[str, Any]) -> str | None:
    return None


def search_one(
    asked: ReadRequest, found: list[tuple[Any, ...]] | StrandlineError, **marks: Any
) -> tuple[MemoryContext, Postgres]:
    return read_one(snapshot_rows(**{**FLUSHED, **marks}), asked, search_chunks=[found])


def test_a_search_shows_its_hits_best_first() -> None:
    rows = [hit_row(0.9, 5, "To Skagen."), hit_row(0.9, 6, "Nice!", first=5), hit_row(0.4, 2, "By <boat>")]
    block = VectorMemoryBlock(similarity_cutoff=0.25, similarity_top_k=2)
    asked = request(block, query="harbour", embed_query=letters)
    context, postgres = search_one(asked, rows)
    assert (
        "<message role='user'>To Skagen.</message>\n<message role='user'>Nice!</message>\n\n"
        "<message role='user'>By &lt;boat&gt;</message>"
    ) in context[0].text
    params = postgres.params("search_chunks")
    assert params["embedding"] == "[1,0]"
    assert params["lexemes"] == ["harbour"]
    assert (params["similarity_cutoff"], params["top_k"], params["visible_from"]) == (0.25, 2, 9)
    assert params["scope_key"] == SESSION.session_key
    assert context.omitted == ()


@pytest.mark.parametrize(
    ("given", "lexemes"),
    [
        ({"query": "harbour"}, ["harbour"]),
        ({"query": Message("user", "harbour"), "messages": [Message("user", "boat")]}, ["harbour"]),
        ({"messages": [Message("user", "harbour"), Message("user", "boat")]}, ["harbour", "boat"]),
        ({}, ["sail"]),
    ],
)
def test_a_read_searches_for_its_query_or_its_messages_or_the_latest_message(
    given: dict[str, Any], lexemes: list[str]
) -> None:
    _, postgres = search_one(request(VectorMemoryBlock(), embed_query=letters, **given), [])
    assert postgres.params("search_chunks")["lexemes"] == lexemes


@pytest.mark.parametrize(("latest", "lexemes"), [(1, ["sail"]), (2, ["sail"]), (3, ["anchor", "sail"])])
def test_the_latest_messages_form_the_query(latest: int, lexemes: list[str]) -> None:
    """Of the window, and alike of messages that a read is given."""
    block = VectorMemoryBlock(retrieval_context_window=latest)
    said = ["boat", "anchor", "", "sail"]
    rows = [message_row(seq, text=text) for seq, text in enumerate(said, 8)]
    _, postgres = search_one(request(block), [], messages=rows)
    assert postgres.params("search_chunks")["lexemes"] == lexemes
    given = [Message("user", text) for text in said]
    _, postgres = search_one(request(block, messages=given), [])
    assert postgres.params("search_chunks")["lexemes"] == lexemes


@pytest.mark.parametrize(
    ("embed", "reason"),
    [
        (None, "No embedding model"),
        (failing, "compared only words: no answer"),
        (foreign, "another embedding model"),
    ],
)
def test_without_a_vector_the_words_decide_and_an_omission_names_the_reason(embed: Any, reason: str) -> None:
    asked = request(VectorMemoryBlock(similarity_cutoff=0.5), embed_query=embed)
    context, postgres = search_one(asked, [hit_row(0.9, 5, "To Skagen.")])
    params = postgres.params("search_chunks")
    assert (params["embedding"], params["similarity_cutoff"]) == (None, 0.0)
    assert kinds(context) == [("search_text_only", "vector_memory")]
    assert reason in context.omitted[0].reason
    assert "To Skagen." in context[0].text


def test_a_query_without_vector_and_words_is_not_searched_for() -> None:
    _, postgres = search_one(request(VectorMemoryBlock(), query="what is it?"), [])
    assert "search_chunks" not in postgres.names


def test_a_search_that_fails_is_an_omission_and_the_read_goes_on() -> None:
    asked = request(StaticMemoryBlock(static_content="c"), VectorMemoryBlock(), embed_query=letters)
    context, _ = search_one(asked, DatabaseTimeoutError("too slow"))
    assert kinds(context) == [("search_failed", "vector_memory")]
    assert "<static_memory>" in context[0].text


def test_a_search_that_fails_ends_the_callers_transaction_and_the_read() -> None:
    asked = request(VectorMemoryBlock(), embed_query=letters, in_callers_transaction=True)
    with pytest.raises(DatabaseTimeoutError):
        search_one(asked, DatabaseTimeoutError("too slow"))


def test_nothing_flushed_is_no_search_but_of_other_sessions() -> None:
    unflushed = {"window_from": 1, "flushed_through": 0}
    _, postgres = search_one(request(VectorMemoryBlock()), [], **unflushed)
    assert postgres.names == ["read"]
    _, postgres = search_one(request(VectorMemoryBlock(scope="owner")), [], **unflushed)
    assert postgres.params("search_chunks")["scope_key"] is None


def test_one_query_is_embedded_once_for_several_blocks() -> None:
    asked = request(VectorMemoryBlock(), VectorMemoryBlock(name="all", scope="owner"), embed_query=letters)
    postgres = Postgres(read=[snapshot_rows(**FLUSHED)], search_chunks=[[], []])
    postgres.run(read(asked))
    assert postgres.names == ["read", "search_chunks", "search_chunks"]
    assert postgres.runs == 1


TAIL: dict[str, Any] = {
    "tail": [message_row(seq, text=f"t{seq}", tokens=10) for seq in range(3, 9)],
    "pending": [("facts", 3, 4), ("facts", 5, 8)],
}


def test_messages_that_the_tail_shows_are_not_searched_for_nor_found() -> None:
    rows = [
        hit_row(0.9, 7, "t7"),
        hit_row(0.9, 8, "t8"),
        hit_row(0.5, 2, "m2"),
        hit_row(0.4, 7, "t7", STRANGER),
    ]
    asked = request(VectorMemoryBlock(similarity_top_k=2), embed_query=letters)
    context, postgres = search_one(asked, rows, **TAIL)
    assert postgres.params("search_chunks")["visible_from"] == 3
    memory = context[0].text
    assert memory.count("<message ") == 2
    assert "m2" in memory
    assert seqs(context[1:]) == [3, 4, 5, 6, 7, 8, 9]


def test_messages_that_the_tail_takes_in_are_taken_out_of_the_hits() -> None:
    # Half the room is 40 tokens: the tail is sure of 5 to 8; what the hits leave lets 3 and 4 in as well.
    rows = [hit_row(0.9, 3, "t3"), hit_row(0.9, 4, "t4", first=3), hit_row(0.5, 2, "m2")]
    asked = request(VectorMemoryBlock(), embed_query=letters, token_limit=81)
    context, postgres = search_one(asked, rows, **TAIL)
    assert postgres.params("search_chunks")["visible_from"] == 5
    assert seqs(context[1:]) == [3, 4, 5, 6, 7, 8, 9]
    assert "m2" in context[0].text
    assert "t3" not in context[0].text


def test_a_message_stands_only_in_its_best_hit() -> None:
    rows = [hit_row(0.9, 5, "five"), hit_row(0.8, 4, "four"), hit_row(0.8, 5, "five", first=4)]
    context, _ = search_one(request(VectorMemoryBlock(), embed_query=letters), rows)
    assert context[0].text.count("five") == 1
    assert "four" in context[0].text
