"""What reaches a worker from outside: hints from the broker, and what model servers answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from math import hypot, isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.answers import (
    check_answer,
    parse_condense,
    parse_extract,
    parse_merge,
    parse_summary,
)
from strandline.pipelines.models.contract import ExtractTask, TranscriptLine
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder, embedder_from
from strandline.pipelines.models.openai.models import OpenAITextModel, text_model_from
from strandline.schemas.broker.hints import Hint, UnreadableHintError, read_hint, write_hint
from strandline.schemas.errors import ModelError, PermanentModelError
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import STAGES, Lane
from tests.fuzz.running import fuzzed
from tests.fuzz.values import json_like, numbers, scalars, texts
from tests.support.servers.model_server import ModelServer, Raw

DIMENSIONS = 4
TASK = ExtractTask(
    (TranscriptLine(1, "user", "Ann", "I keep bees.", datetime(2024, 3, 11, 9, 30, tzinfo=UTC)),)
)

_facts = st.fixed_dictionaries(
    {"text": scalars, "messages": st.lists(numbers, max_size=3) | scalars},
    optional={"topics": json_like, "said_by": scalars, "about_date": scalars, "merged": json_like},
)
_operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "update", "invalidate", "duplicate"]) | scalars,
        "candidate": numbers | scalars,
    },
    optional={"fact": numbers | scalars, "text": scalars},
)
_answers = st.one_of(
    st.fixed_dictionaries({"facts": st.lists(_facts, max_size=4)}, optional={"kept": json_like}),
    st.fixed_dictionaries({"operations": st.lists(_operations, max_size=4)}),
    st.fixed_dictionaries({"summary": scalars}, optional={"topics": json_like}),
    json_like,
)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:
        return "1" * 5_000


answers = st.one_of(
    _answers.map(_as_text),
    st.builds("{}{}{}".format, texts, _answers.map(_as_text), texts),
    st.sampled_from([90, 990, 100_000]).map(lambda depth: '{"facts":' + "[" * depth),
    st.sampled_from([990, 100_000]).map(lambda depth: '{"facts":' + "[" * depth + "]" * depth + "}"),
    texts,
)
STAGES_SERVED = frozenset(STAGES)
_hint_values = st.one_of(st.uuids().map(str), st.sampled_from([*STAGES, "1", "zyzzyva"]), scalars, json_like)
hints = st.one_of(
    st.binary(max_size=1_200),
    st.lists(_hint_values, max_size=7).map(lambda values: _as_text(values).encode()),
    json_like.map(_as_text).map(str.encode),
    st.tuples(st.uuids(), st.uuids(), numbers, st.sampled_from(STAGES), numbers).map(
        lambda hint: _as_text([str(hint[0]), str(hint[1]), *hint[2:]]).encode()
    ),
    st.sampled_from([b"[" * 900, b'{"a":' * 150, b"9" * 999, b"\xff" * 9, b'["\\ud800"]']),
    texts,
    st.none(),
)


@given(body=hints)
@fuzzed()
def test_any_message_is_a_hint_or_unreadable(body: object) -> None:
    with suppress(UnreadableHintError):
        hint = read_hint(body, STAGES_SERVED)
        assert hint.lane.stage in STAGES_SERVED
        assert read_hint(write_hint(hint), STAGES_SERVED) == hint


@given(made=st.builds(Lane, st.uuids(), st.uuids(), st.integers(1, 2**31 - 1), st.sampled_from(STAGES)))
@fuzzed()
def test_every_hint_that_is_written_can_be_read(made: Lane) -> None:
    assert read_hint(write_hint(Hint(made, 1)), STAGES_SERVED).lane == made


_readers: tuple[Callable[[str], object], ...] = (
    lambda text: parse_extract(text, 3),
    lambda text: parse_merge(text, 3, 3),
    lambda text: parse_condense(text, 3),
    parse_summary,
    lambda text: check_answer(TASK, text),
)


@given(reader=st.sampled_from(_readers), text=answers)
@fuzzed()
def test_any_answer_is_read_or_refused(reader: Callable[[str], object], text: str) -> None:
    with suppress(PermanentModelError):
        json.dumps(reader(text), default=str, ensure_ascii=False).encode()


_headers = st.sampled_from(
    [("Retry-After", "9" * 400), ("Retry-After", "-1"), ("Content-Encoding", "gzip"), ("X", "y")]
)
_statuses = st.sampled_from([200, 200, 200, 204, 302, 400, 401, 403, 404, 413, 429, 500, 503, 599])
_bodies = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda text: json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode(),
        answers,
    ),
    json_like.map(_as_text).map(str.encode),
    st.builds(lambda inner: _as_text({"choices": inner}).encode(), json_like),
    st.builds(lambda inner: _as_text({"data": inner, "usage": inner}).encode(), json_like),
)
_vectors = st.lists(
    st.one_of(st.floats(), st.sampled_from([0.0, 1e308, -1e-320, None, "1", True])),
    min_size=DIMENSIONS - 1,
    max_size=DIMENSIONS + 1,
)
_embeddings = st.lists(
    st.fixed_dictionaries({"index": st.integers(-1, 3), "embedding": _vectors | texts}), max_size=3
).map(lambda data: json.dumps({"object": "list", "model": "m", "data": data}).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def settings_for(server: ModelServer) -> Settings:
    return load_settings(
        openai_api_key="sk-secret",
        openai_base_url=server.base_url,
        facts_model="m",
        embedding_dimensions=DIMENSIONS,
        model_timeout_seconds=60.0,
    )


@pytest.fixture(scope="module")
def text_model(server: ModelServer) -> Iterator[OpenAITextModel]:
    model = text_model_from(settings_for(server), purpose="facts")
    yield model
    model.close()


@pytest.fixture(scope="module")
def embedder(server: ModelServer) -> Iterator[OpenAIEmbedder]:
    made = embedder_from(settings_for(server))
    yield made
    made.close()


@given(status=_statuses, body=_bodies, header=_headers)
@fuzzed()
def test_a_text_model_s_response_is_an_answer_or_a_model_error(
    status: int,
    body: bytes,
    header: tuple[str, str],
    server: ModelServer,
    text_model: OpenAITextModel,
) -> None:
    server.behave(responder=lambda _request: Raw(status, body, (header,)))
    with suppress(ModelError):
        parse_extract(text_model.answer(TASK).text, len(TASK.lines))


@given(status=_statuses, body=_embeddings | _bodies, texts_=st.lists(texts, min_size=1, max_size=3))
@fuzzed()
def test_an_embedder_s_response_is_vectors_or_a_model_error(
    status: int, body: bytes, texts_: list[str], server: ModelServer, embedder: OpenAIEmbedder
) -> None:
    server.behave(responder=lambda _request: Raw(status, body))
    with suppress(ModelError):
        vectors = embedder.embed(texts_).vectors
        assert len(vectors) == len(texts_)
        for vector in vectors:
            assert len(vector) == DIMENSIONS and all(map(isfinite, vector))
            assert abs(hypot(*vector) - 1) < 1e-3
