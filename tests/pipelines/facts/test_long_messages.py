"""A long message is read to its end by facts, summary and search, and what is not is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.engine.stage import RawAnswer
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.transcript import MAX_CALL_CHARACTERS, Transcript, cut_pieces
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.message import Message
from strandline.schemas.wire.explanations import MessageExplanation
from tests.conftest import Rig, rows_of
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.workers.draining import drain_everything

END = "I am allergic to peanuts."
Drain = Callable[[], None]


def long(characters: int) -> str:
    return "The harbour of Bergen is deep and old. " * (characters // 39) + END


@pytest.fixture
def local_drain(database: Database, database_url: str) -> Drain:
    settings = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    return lambda: drain_everything(database, database_url, settings)


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    return load_settings(database_url=database_url, embedding_backend="local")


def transcript(request: RecordedRequest) -> list[dict[str, str]]:
    lines = request.body["messages"][-1]["content"].partition("<transcript>\n")[2].splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"n"')]


@given(
    st.lists(
        st.tuples(
            st.lists(st.text("abcde港", min_size=1, max_size=9), min_size=1, max_size=9),
            st.sampled_from([".", "!", "?", ""]),
        ),
        min_size=1,
        max_size=99,
    )
)
def test_a_long_text_is_cut_behind_a_sentence(sentences: list[tuple[list[str], str]]) -> None:
    said = [" ".join(words) + (end or "\n") for words, end in sentences]
    pieces = list(cut_pieces(" ".join(said), 200))
    assert " ".join(pieces).split() == " ".join(said).split(), "nothing is lost"
    assert max(map(len, pieces)) <= 200
    ends = {one.strip() for one in said}
    assert all(any(piece.endswith(end) for end in ends) for piece in map(str.strip, pieces))


@pytest.mark.parametrize("characters", [9_000, 70_000])
def test_the_last_sentence_of_a_long_message_is_a_fact_of_that_message(
    rig: Rig, characters: int, local_drain: Drain
) -> None:
    memory = rig.memory("s", memory_blocks=["facts", "summary", "vectors"])
    seq = memory.put({"role": "user", "content": long(characters)})
    memory.flush(all=True)
    local_drain()
    facts = [fact for fact in memory.facts.list() if "peanuts" in fact.text]
    assert len(facts) == 1
    sources = rows_of(
        rig.url, "SELECT seqs FROM strandline.fact_revision WHERE fact_id = %s", facts[0].fact_id
    )
    assert sources == [([seq],)]


def test_a_call_sees_pieces_up_to_a_bound_and_the_summary_goes_on_from_call_to_call(rig: Rig) -> None:
    summaries: list[str] = []

    def answer(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<summary_so_far>" in prompt:
            summaries.append(prompt.partition("<summary_so_far>\n")[2].splitlines()[0])
            return json.dumps({"summary": f"after {len(summaries)}", "topics": []})
        return json.dumps({"facts": []}) if "<transcript>" in prompt else None

    rig.model.behave(responder=answer)
    memory = rig.memory("s", memory_blocks=["facts", "summary"])
    memory.put({"role": "user", "content": long(150_000)})
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings)
    prompts = [one for one in rig.model.requests if "<transcript>" in one.body["messages"][-1]["content"]]
    sizes = [sum(len(line["text"]) for line in transcript(one)) for one in prompts]
    assert len(prompts) == 6
    assert max(sizes) <= MAX_CALL_CHARACTERS
    assert sum(END in line["text"] for one in prompts for line in transcript(one)) == 2
    assert summaries == ['""', '"after 1"', '"after 2"']
    states = rows_of(rig.url, "SELECT state ->> 'text' FROM strandline.block_state")
    assert states == [("after 3",)]
    steps = rows_of(rig.url, "SELECT step FROM strandline.model_call ORDER BY step")
    assert [step for (step,) in steps] == [
        "extract", "extract-2", "extract-3", "summary", "summary-2", "summary-3",
    ]  # fmt: skip


@pytest.mark.parametrize(("lines", "facts", "kept"), [(1, 40, 30), (40, 90, 80)])
def test_the_cap_of_facts_scales_with_the_lines_and_explain_says_when_it_was_met(
    rig: Rig, lines: int, facts: int, kept: int
) -> None:
    def answer(request: RecordedRequest) -> Raw | str | None:
        if "<transcript>" not in request.body["messages"][-1]["content"]:
            return None
        said = [{"text": f"Number {n} is my favourite.", "messages": [1], "topics": []} for n in range(facts)]
        return json.dumps({"facts": said})

    rig.model.behave(responder=answer)
    memory = rig.memory("s", memory_blocks=["facts"])
    numbers = " ".join(f"Number {n} is my favourite." for n in range(20))
    for n in range(lines):
        memory.put({"role": "user", "content": numbers, "id": f"m{n}"})
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings, ["extract"])
    candidates = rows_of(rig.url, "SELECT count(*) FROM strandline.fact_candidate")
    explanation = explain(rig.database, "m0")
    assert isinstance(explanation, MessageExplanation)
    assert any("as many facts as one call may" in why for why in explanation.why)
    assert candidates == [(kept,)]


def test_a_read_says_that_only_the_beginning_of_a_message_is_searched(rig: Rig, local_drain: Drain) -> None:
    memory = rig.memory("s", memory_blocks=["vectors"])
    memory.put({"role": "user", "content": "Tell me of the harbour. " + "deep water " * 10_000, "id": "long"})
    memory.put({"role": "user", "content": "What is a quay?", "id": "short"})
    memory.flush(all=True)
    local_drain()
    context = memory.get("harbour and deep water")
    cut = [one for one in context.omitted if one.kind == "search_cut"]
    assert "long" in [hit.message.id for hit in context.hits]
    assert ["first 100,000 characters" in one.reason for one in cut] == [True]
    explanation = explain(rig.database, "long")
    assert isinstance(explanation, MessageExplanation)
    assert any(why.startswith("A search finds its first 100,000 of") for why in explanation.why)


@pytest.mark.parametrize(
    ("open_by_step", "left_out"),
    [
        ({"extract": [*range(11, 21)]}, [*range(11, 21)]),
        ({"extract": [*range(11, 21)], "extract+11-20": []}, []),
        ({"extract": [*range(11, 21)], "extract+11-20": [20]}, [20]),
        ({"extract": [3, 20], "extract+3-3.20-20": [3]}, [3]),
        ({"extract/1-10": []}, [*range(11, 21)]),
        ({"extract": []}, []),
    ],
)
def test_a_line_that_a_cut_answer_leaves_open_is_answered_by_another_one_alone(
    open_by_step: Mapping[str, list[int]], left_out: list[int]
) -> None:
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    lines = tuple(TranscriptLine(number, "user", None, "a", moment) for number in range(1, 21))
    said = Transcript(tuple(Message("user", "a", seq=line.number) for line in lines), (), lines)
    answers = {
        step: RawAnswer("m", "", json.dumps({"facts": [], "open": left}).encode())
        for step, left in open_by_step.items()
    }
    assert [message.seq for message in said.left_out(answers)] == left_out
