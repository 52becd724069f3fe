"""Models that never end an answer: events end all the same, with what facts there are, at a bounded cost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain, count, islice
from typing import Any

import pytest

from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.models.answers import parse_summary
from strandline.pipelines.models.contract import ExtractTask, SummaryTask, TranscriptLine
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.pipelines.models.openai.request_forms import THOUGHT_TOKENS, most_tokens
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import Rig, nothing_due, wait_until
from tests.pipelines.models.test_quirks import said
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.stored import dead_letters, live_facts

SAID = [f"I keep boat {n} in the harbour of Bern." for n in range(60)]
MOMENT = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
LINES = tuple(TranscriptLine(n, "user", None, text, MOMENT) for n, text in enumerate(SAID, 1))
ROOM = most_tokens(ExtractTask(LINES))
CHARACTERS_PER_TOKEN = 4

Babble = Callable[[list[str]], Iterator[str]]


def items(cites: Callable[[int, int], list[int]]) -> Babble:
    """Facts without end, none like another, which cite lines of the prompt by ``cites(number, lines)``."""

    def babble(lines: list[str]) -> Iterator[str]:
        yield '{"facts": ['
        for number in count():
            text = f"{lines[number % len(lines)]} That is thing {'abcdefghij'[number % 10]} of them."
            yield json.dumps({"text": text, "messages": cites(number, len(lines))}) + ", "

    return babble


def counting(lines: list[str]) -> Iterator[str]:
    head = json.dumps({"text": lines[0]})[:-1]
    return chain([f'{{\n "facts": [{head}, "messages": [\n'], (f"     {n},\n" for n in count(1)))


def sentence(lines: list[str]) -> Iterator[str]:
    return chain(['{"facts": [{"text": "'], (f"and then boat {n * n} came, " for n in count()))


def prose(lines: list[str]) -> Iterator[str]:
    return (f"Then I think of boat {n * n}. " for n in count())


# What a model writes, whether that holds facts, and whether it is an answer at all.
BABBLE: dict[str, tuple[Babble, bool, bool]] = {
    "items that go through the lines": (items(lambda n, most: [n % most + 1]), True, True),
    "items about the first line": (items(lambda n, most: [1]), True, True),
    "items about all lines": (items(lambda n, most: list(range(1, most + 1))), True, True),
    "items about no line": (items(lambda n, most: [n + 1_000]), False, True),
    "numbers": (counting, True, True),
    "a sentence": (sentence, False, False),
    "no JSON": (prose, False, False),
}


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


def babbling(babble: Babble) -> Callable[[RecordedRequest], Raw | None]:
    """Answers extractions as far as the room goes, and all else well."""

    def respond(request: RecordedRequest) -> Raw | None:
        prompt = str(request.body["messages"][1]["content"])
        if "<transcript>" not in prompt:
            return None
        lines = [json.loads(row)["text"] for row in re.findall(r'^\{"n": .*', prompt, re.MULTILINE)]
        text = "".join(islice(babble(lines), 20_000))[: request.body["max_tokens"] * CHARACTERS_PER_TOKEN]
        pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
        chunks: list[dict[str, Any]] = [{"index": 0, "delta": {"content": piece}} for piece in pieces]
        chunks.append({"index": 0, "delta": {}, "finish_reason": "length"})
        body = "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks)
        return Raw(200, body.encode(), (("Content-Type", "text/event-stream"),))

    return respond


@pytest.mark.parametrize("finish", ["length", "no_end"])
def test_of_a_summary_without_an_end_the_sentences_are_used(
    server: ModelServer, model: OpenAITextModel, finish: str
) -> None:
    cut = '{"summary": "They talk of boats. Then they sail. And the'
    server.behave(responder=lambda _: said(cut, finish=finish))
    answer = model.answer(SummaryTask("", LINES, 100)).text
    assert parse_summary(answer).summary == "They talk of boats. Then they sail."
    assert len(server.requests) == (2 if finish == "length" else 1)


@pytest.mark.parametrize("what", BABBLE)
def test_an_event_of_a_model_without_an_end_ends_at_a_bounded_cost(rig: Rig, what: str) -> None:
    babble, has_facts, is_answer = BABBLE[what]
    rig.model.behave(responder=babbling(babble))
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"], consume="background")
    for text in SAID:
        memory.put({"role": "user", "content": text})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="all work")
    asked = [one.body["max_tokens"] for one in rig.model.requests if "<transcript>" in str(one.body)]
    assert sum(asked) <= 5 * ROOM + (2 * THOUGHT_TOKENS if babble is prose else 0)
    assert (live_facts(rig.url) > 0) == has_facts
    assert (dead_letters(rig.url) == 0) == is_answer
    assert verify(rig.database, deep=True).violations == ()
