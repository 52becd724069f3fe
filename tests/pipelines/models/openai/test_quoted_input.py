"""A refusal's sentence may quote what a person wrote, which decides nothing for others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.contract import ExtractTask, TranscriptLine
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder
from strandline.pipelines.models.openai.errors import (
    confirmed,
    error_within,
    judge,
    read_rejection,
)
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.schemas.errors import ModelError, PermanentModelError, RateLimitError, TransientModelError
from strandline.schemas.settings import load_settings
from tests.pipelines.models.openai.test_embedding_quirks import embedder, vectors
from tests.pipelines.models.test_quirks import GOOD, MOMENT, said
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

__all__ = ["embedder"]

SENTENCES = [
    "my throttle cable broke",
    "he asked for my credit balance, which is too low",
    "your credit balance is too low, says Ann",
    "I have insufficient funds for a boat",
    "where is my api key",
    "the model boat was not found",
    "an invalid model of a boat",
    "too many requests from my boss, rate limit me",
    "billing and payment are due",
    "ships do not support embeddings",
    "authentication failed at the door, retry in 90 s",
]
QUOTING: dict[str, Callable[[str], Any]] = {
    "as it is": lambda text: {
        "error": {"message": f"Invalid input: {text}", "type": "invalid_request_error"}
    },
    "quoted": lambda text: {"error": {"message": f"cannot tokenize '{text}'"}},
    "quoted, with an apostrophe": lambda text: {"error": {"message": f"cannot read 'Ann's {text}\n'"}},
    "in a detail": lambda text: {"detail": [{"loc": ["body", "messages"], "msg": f"bad: {text}"}]},
    "in a text": lambda text: f"bad: {text}",
}
STATUSES = [400, 413, 422, 503]


def lines_of(text: str) -> ExtractTask:
    return ExtractTask((TranscriptLine(1, "user", None, text, MOMENT),))


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("status", [200, *STATUSES])
def test_a_quoted_sentence_stops_no_other_call(
    server: ModelServer, model: OpenAITextModel, status: int, sentence: str
) -> None:
    def respond(request: RecordedRequest) -> Any:
        if sentence not in str(request.body["messages"]):
            return said(GOOD)
        return Raw(status, json.dumps(QUOTING["as it is"](sentence)).encode())

    server.behave(responder=respond)
    model.answer(lines_of("hello"))
    with pytest.raises(ModelError) as caught:
        model.answer(lines_of(sentence))
    expected = PermanentModelError if status in (400, 413, 422) else TransientModelError
    assert type(caught.value) is expected


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_quoted_text_goes_without_a_vector_and_its_neighbours_have_theirs(
    server: ModelServer, embedder: OpenAIEmbedder, status: int, sentence: str
) -> None:
    def respond(request: RecordedRequest) -> Any:
        if sentence not in str(request.body["input"]):
            return vectors(request.body["input"])
        return Raw(status, json.dumps(QUOTING["as it is"](sentence)).encode())

    server.behave(responder=respond)
    first, refused, last = embedder.embed(["a boat", sentence, "a dog"]).vectors
    assert first and last and not refused


@given(
    words=st.lists(st.one_of(st.sampled_from(SENTENCES), st.text(max_size=40)), min_size=1, max_size=3),
    quoting=st.sampled_from(sorted(QUOTING)),
    status=st.sampled_from([200, *STATUSES]),
)
def test_any_text_that_is_quoted_leaves_the_judgement_as_it_is_without(
    words: list[str], quoting: str, status: int
) -> None:
    role = load_settings(openai_base_url="http://m", openai_api_key="k", facts_model="m").text_role("facts")

    def kind(text: str) -> type[ModelError] | None:
        body = QUOTING[quoting](text)
        refused = read_rejection(status, json.dumps(body).encode(), {})
        rejection = error_within(body, {}) if status == 200 else refused
        if rejection is None:
            return None
        problem, certain = judge(rejection, role), judge(rejection.certain, role)
        return type(confirmed(problem, certain, lambda: None))

    assert kind(" ".join(words)) in (kind("x"), PermanentModelError)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_server_that_refuses_its_own_words_alike_is_believed(
    server: ModelServer, model: OpenAITextModel, sentence: str
) -> None:
    refused = Raw(400, json.dumps(QUOTING["as it is"](sentence)).encode())
    server.behave(responder=lambda _: refused)
    with pytest.raises(TransientModelError) as caught:
        model.answer(lines_of(sentence))
    assert not isinstance(caught.value, RateLimitError)


def test_a_key_that_expired_since_the_last_answer_is_no_fault_of_the_input(
    server: ModelServer, model: OpenAITextModel, embedder: OpenAIEmbedder
) -> None:
    model.answer(lines_of("hello"))
    server.behave(responder=lambda request: vectors(request.body["input"]))
    embedder.embed(["hello"])
    server.behave(responder=lambda _: Raw(400, b'{"error": {"message": "API key expired"}}'))
    for call in (lambda: model.answer(lines_of("hello")), lambda: embedder.embed(["hello"])):
        with pytest.raises(TransientModelError, match="API_KEY"):
            call()
