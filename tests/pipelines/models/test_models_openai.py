"""The OpenAI clients against a real HTTP server: forms of asking, repair, errors, bounds."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from strandline.pipelines.models.answers import parse_extract, parse_merge, parse_summary
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    TranscriptLine,
)
from strandline.pipelines.models.openai.client import ModelClient
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder, embedder_from
from strandline.pipelines.models.openai.errors import retry_after_seconds
from strandline.pipelines.models.openai.models import OpenAITextModel, text_model_from
from strandline.pipelines.models.openai.replies import MAX_TOKENS_OF_CALL
from strandline.pipelines.models.prompts.render import prompt_hash
from strandline.schemas.errors import (
    ConfigurationError,
    PermanentModelError,
    ProviderSetupError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.settings import Settings, load_settings
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, hashed_vector

SECRET = "sk-very-secret"
CONTENT = "I keep bees in Graz"
MOMENT = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
EXTRACT = ExtractTask((TranscriptLine(1, "user", "Ann", CONTENT, MOMENT),))
GOOD = json.dumps({"facts": [{"text": "Ann keeps bees.", "messages": [1]}]})


def settings_for(server: ModelServer, **changes: Any) -> Settings:
    values = {"openai_api_key": SECRET, "openai_base_url": server.base_url, "facts_model": "m"} | changes
    return Settings(**values)


@pytest.fixture
def model(server: ModelServer) -> Iterator[OpenAITextModel]:
    made = text_model_from(settings_for(server), purpose="facts")
    yield made
    made.close()


@pytest.fixture
def embedder(server: ModelServer) -> Iterator[OpenAIEmbedder]:
    made = embedder_from(settings_for(server, embedding_dimensions=8))
    yield made
    made.close()


def completion(text: str | None, *, finish: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return {
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


def in_turn(*answers: object) -> Callable[[RecordedRequest], Any]:
    left = iter(answers)
    return lambda request: next(left)


def refuse(when: Callable[[str], bool], status: int, message: str) -> Callable[[RecordedRequest], Raw | None]:
    """A server that refuses what people wrote, and answers all else."""

    def respond(request: RecordedRequest) -> Raw | None:
        said = "".join(message["content"] for message in request.body.get("messages", ()))
        body = json.dumps({"error": {"message": message}}).encode()
        return Raw(status, body) if when(said) else None

    return respond


def formats(server: ModelServer) -> list[str]:
    return [request.body.get("response_format", {}).get("type", "text") for request in server.requests]


def test_a_task_is_asked_with_a_strict_schema_and_answered(
    server: ModelServer, model: OpenAITextModel
) -> None:
    answer = model.answer(EXTRACT)
    (fact,) = parse_extract(answer.text, 1)
    assert (fact.text, fact.messages) == (CONTENT, (1,))
    assert (answer.model, answer.prompt_hash) == ("m", prompt_hash("extract"))
    assert answer.input_tokens > 0 and answer.output_tokens > 0
    (request,) = server.requests
    assert request.authorization == f"Bearer {SECRET}"
    assert request.body["response_format"]["json_schema"]["strict"] is True
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]


def test_all_tasks_work_end_to_end(model: OpenAITextModel) -> None:
    known = (NumberedFact(1, "a", MOMENT),)
    candidates = tuple(NumberedFact(n, text, MOMENT) for n, text in enumerate("abb", 1))
    merged = parse_merge(model.answer(MergeTask(known, candidates)).text, 1, 3)
    assert [(op.op, op.fact) for op in merged] == [("duplicate", 1), ("add", None), ("duplicate", None)]
    rolled = parse_summary(model.answer(SummaryTask("Before.", EXTRACT.lines, 100)).text)
    assert rolled.summary == f"Before. {CONTENT}"


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (["json_schema"], ["json_schema", "json_object", "json_object"]),
        (["json_schema", "json_object"], ["json_schema", "json_object", "text", "text"]),
    ],
)
def test_servers_without_structured_output_are_remembered(
    server: ModelServer, model: OpenAITextModel, refused: list[str], expected: list[str]
) -> None:
    server.behave(refuse_formats=refused)
    for _ in range(2):
        assert parse_extract(model.answer(EXTRACT).text, 1)
    assert formats(server) == expected
    assert "JSON schema of the answer" in server.requests[-1].body["messages"][0]["content"]


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refused_format_is_recognised_by_its_message(
    server: ModelServer, model: OpenAITextModel, status: int
) -> None:
    server.behave(status=status, message="response_format json_schema is unavailable now", times=1)
    model.answer(EXTRACT)
    assert formats(server) == ["json_schema", "json_object"]


def test_a_refusal_in_every_form_is_not_remembered(server: ModelServer, model: OpenAITextModel) -> None:
    server.behave(responder=refuse(lambda said: CONTENT in said, 400, "unsupported content"))
    with pytest.raises(PermanentModelError):
        model.answer(EXTRACT)
    server.behave()
    model.answer(EXTRACT)
    asked = ["the strictest form", "the plainest", "whether others are answered", "the next call"]
    assert formats(server) == ["json_schema", "text", "json_schema", "json_schema"], asked


def test_models_without_temperature_are_asked_without(server: ModelServer, model: OpenAITextModel) -> None:
    server.behave(refuse_temperature=True)
    for _ in range(2):
        model.answer(EXTRACT)
    assert ["temperature" in request.body for request in server.requests] == [True, False, False]
    assert formats(server) == ["json_schema"] * 3


@pytest.mark.parametrize("bad", ['{"facts": [', '{"other": 1}', "I would rather not", ""])
def test_one_repair_shows_the_model_its_answer_and_the_error(
    server: ModelServer, model: OpenAITextModel, bad: str
) -> None:
    server.behave(responder=in_turn(completion(bad), completion(f"```json\n{GOOD}\n```")))
    answer = model.answer(EXTRACT)
    assert json.loads(answer.text) == json.loads(GOOD)
    assert (answer.input_tokens, answer.output_tokens) == (20, 10)
    echo, wish = server.requests[1].body["messages"][2:]
    assert echo == {"role": "assistant", "content": bad or "(empty)"}
    assert wish["role"] == "user" and "cannot be used" in wish["content"]


@pytest.mark.parametrize(("status", "unpaid"), [(429, True), (401, True), (503, False)])
def test_what_was_turned_away_unread_is_unpaid_unless_it_was_the_repair_of_an_answer(
    status: int, unpaid: bool, server: ModelServer, model: OpenAITextModel
) -> None:
    for earlier in ((), (completion("I would rather not"),)):
        server.behave(responder=in_turn(*earlier, Raw(status, b"{}")))
        with pytest.raises(TransientModelError) as caught:
            model.answer(EXTRACT)
        assert caught.value.is_unpaid == (unpaid and not earlier)


CUT = '{"facts": [{"text": "Ann keeps be'


@pytest.mark.parametrize(
    "misbehaviour", [{"wrong_schema": True}, {"responder": lambda _: completion(CUT)}], ids=["form", "cut"]
)
def test_an_answer_that_stays_unusable_is_permanent(
    server: ModelServer, model: OpenAITextModel, misbehaviour: dict[str, Any]
) -> None:
    server.behave(**misbehaviour)
    with pytest.raises(PermanentModelError, match="after one repair") as caught:
        model.answer(EXTRACT)
    assert len(server.requests) == 2
    assert "bees" not in str(caught.value)


def test_a_cut_off_answer_gets_one_more_try(server: ModelServer, model: OpenAITextModel) -> None:
    server.behave(responder=in_turn(completion('{"fac', finish="length"), completion(GOOD)))
    assert parse_extract(model.answer(EXTRACT).text, 1)
    assert "more briefly" in server.requests[1].body["messages"][1]["content"]
    server.behave(responder=lambda _: completion(CUT, finish="length"))
    with pytest.raises(PermanentModelError, match="cut off"):
        model.answer(EXTRACT)
    assert len(server.requests) == 4


@pytest.mark.parametrize("refusing", [{"refusal": "No."}, {"finish_reason": "content_filter"}])
def test_a_refusal_is_permanent_at_once(
    server: ModelServer, model: OpenAITextModel, refusing: dict[str, Any]
) -> None:
    server.behave(**refusing)
    with pytest.raises(PermanentModelError, match="refused"):
        model.answer(EXTRACT)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (400, None, ProviderSetupError, "every request with 400"),
        (413, None, PermanentModelError, "413"),
        (422, "too_long", ProviderSetupError, "too_long"),
        (401, "invalid_api_key", ProviderSetupError, "OPENAI_API_KEY"),
        (403, None, ProviderSetupError, "OPENAI_API_KEY"),
        (404, "model_not_found", ProviderSetupError, "STRANDLINE_FACTS_MODEL"),
        (404, None, ProviderSetupError, "OPENAI_BASE_URL"),
        (408, None, TransientModelError, "408"),
        (409, None, TransientModelError, "409"),
        (429, "insufficient_quota", ProviderSetupError, "quota"),
        (500, None, TransientModelError, "500"),
        (503, f"x {SECRET}", TransientModelError, "503"),
    ],
)
def test_statuses_become_decisions_and_leak_nothing(
    server: ModelServer,
    model: OpenAITextModel,
    status: int,
    code: str | None,
    kind: type[Exception],
    says: str,
) -> None:
    server.behave(status=status, code=code, message=f"Wrong: {SECRET} in {CONTENT}")
    with pytest.raises(kind, match=says) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind
    assert SECRET not in str(caught.value) and "bees" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__, "a traceback would quote it"
    times = {400: 4, 422: 4, 500: 2}  # in the plainest form as well, and whether others are answered
    assert len(server.requests) == times.get(status, 1), "retrying belongs to the engine"


@pytest.mark.parametrize(
    "message", ['model "m" not found, try pulling it first', "The model `m` does not exist."]
)
def test_a_missing_model_is_recognised_by_its_message(
    server: ModelServer, model: OpenAITextModel, message: str
) -> None:
    server.behave(status=404, message=message)
    with pytest.raises(TransientModelError, match="STRANDLINE_FACTS_MODEL"):
        model.answer(EXTRACT)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-3", 0.0), (None, None)]
)
def test_retry_after_is_handed_on(
    server: ModelServer, model: OpenAITextModel, header: str | None, seconds: float | None
) -> None:
    server.behave(status=429, retry_after=header)
    with pytest.raises(TransientModelError) as caught:
        model.answer(EXTRACT)
    assert caught.value.retry_after_seconds == seconds


def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(MOMENT + timedelta(seconds=90), usegmt=True)
    assert retry_after_seconds({"retry-after": date}, now=MOMENT.timestamp()) == 90.0
    assert retry_after_seconds({"retry-after": date}, now=MOMENT.timestamp() + 999) == 0.0
    assert retry_after_seconds({"retry-after": "1e300"}) == 86_400.0
    assert retry_after_seconds({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5


@pytest.mark.parametrize("misbehaviour", [{"hang": True}, {"drip": 1.0}])
def test_a_server_that_does_not_finish_is_given_up(server: ModelServer, misbehaviour: dict[str, Any]) -> None:
    server.behave(**misbehaviour)
    model = text_model_from(settings_for(server, model_timeout_seconds=0.3), purpose="facts")
    kind = UnusableAnswerError if "drip" in misbehaviour else TransientModelError
    with pytest.raises(kind, match="STRANDLINE_MODEL_TIMEOUT_SECONDS"):
        model.answer(EXTRACT)
    model.close()


def test_an_unreachable_server_is_transient() -> None:
    with ModelServer() as gone:
        settings = settings_for(gone)
    model = text_model_from(settings, purpose="facts")
    with pytest.raises(TransientModelError, match="cannot be reached"):
        model.answer(EXTRACT)
    model.close()


@pytest.mark.parametrize("body", [{"cut_body": True}, {"responder": lambda _: {"choices": []}}])
def test_a_broken_response_is_not_the_input_s_fault(
    server: ModelServer, model: OpenAITextModel, embedder: OpenAIEmbedder, body: dict[str, Any]
) -> None:
    server.behave(**body)
    with pytest.raises(TransientModelError):
        model.answer(EXTRACT)
    with pytest.raises(TransientModelError):
        embedder.embed(["a"])


def test_one_model_serves_many_threads(server: ModelServer, model: OpenAITextModel) -> None:
    together = threading.Barrier(12)

    def answer_when_all_have_asked(_request: RecordedRequest) -> None:
        together.wait(300)

    server.behave(responder=answer_when_all_have_asked)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(model.answer(EXTRACT).text)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 12
    assert not together.broken


@pytest.mark.parametrize(
    ("counted", "tokens"),
    [(10**30, MAX_TOKENS_OF_CALL), (10**400, MAX_TOKENS_OF_CALL), (-(10**9), 0), (1e300, MAX_TOKENS_OF_CALL)]
    + [(wrong, 0) for wrong in (None, "many", [1], True, 0)],
)
def test_an_answer_is_good_however_its_tokens_are_counted(
    server: ModelServer, model: OpenAITextModel, counted: object, tokens: int
) -> None:
    good = completion('{"facts": []}')
    good["usage"] = {"prompt_tokens": counted, "completion_tokens": counted}
    server.behave(responder=lambda request: good)
    answer = model.answer(EXTRACT)
    if tokens:
        assert (answer.input_tokens, answer.output_tokens) == (tokens, tokens)
    else:
        assert (answer.input_tokens, answer.output_tokens) > (0, 0), "a count that is none is estimated"


@pytest.mark.parametrize("wrong", [5, "many", [1], True, {"text": 1}])
@pytest.mark.parametrize("beside", ["usage", "finish_reason", "refusal", "another choice"])
def test_an_answer_is_good_whatever_is_wrong_beside_it(
    server: ModelServer, model: OpenAITextModel, beside: str, wrong: Any
) -> None:
    good = completion('{"facts": []}')
    choice = good["choices"][0]
    if beside == "usage":
        good["usage"] = wrong
    elif beside == "finish_reason":
        choice["finish_reason"] = None if isinstance(wrong, str) else wrong
    elif beside == "refusal":
        choice["message"]["refusal"] = None if isinstance(wrong, str) else wrong
    else:
        good["choices"].append(wrong)
    server.behave(responder=lambda request: good)
    assert json.loads(model.answer(EXTRACT).text) == {"facts": []}


@pytest.mark.parametrize(
    "body",
    [
        '{"data": [' + ",".join(["{}"] * 50_000) + "]}",
        '{"data": [{"index": 0, "embedding": [' + ",".join(['"x"'] * 50_000) + "]}]}",
    ],
)
def test_of_many_wrong_items_in_a_response_one_is_told(
    server: ModelServer, embedder: OpenAIEmbedder, body: str
) -> None:
    server.behave(responder=lambda _: Raw(200, body.encode()))
    with pytest.raises(TransientModelError, match="form"):
        embedder.embed(["a"])


def test_embeddings_come_in_order_and_at_unit_length(server: ModelServer, embedder: OpenAIEmbedder) -> None:
    def backwards(request: RecordedRequest) -> dict[str, Any]:
        rows = [
            {"index": index, "embedding": [3.0 * x for x in hashed_vector(text, 8)]}
            for index, text in enumerate(request.body["input"])
        ]
        return {"data": rows[::-1], "usage": {"prompt_tokens": 4}}

    server.behave(responder=backwards)
    answer = embedder.embed(["bees", "honey", ""])
    assert (answer.model, answer.input_tokens) == ("text-embedding-3-small", 4)
    for vector, text in zip(answer.vectors, ["bees", "honey", ""], strict=True):
        assert vector == pytest.approx(hashed_vector(text, 8))
        assert math.hypot(*vector) == pytest.approx(1.0)
    (request,) = server.requests
    assert request.body["input"] == ["bees", "honey", " "]
    assert (request.body["encoding_format"], request.body["dimensions"]) == ("float", 8)


def test_embeddings_go_in_bounded_batches(server: ModelServer, embedder: OpenAIEmbedder) -> None:
    texts = [f"t{number}" for number in range(300)] + [
        "x" * 200_000,
        "y" * 100_000,
        "z" * 300_000,
        "end\ud800",
    ]
    answer = embedder.embed(texts)
    assert len(answer.vectors) == len(texts)
    assert answer.vectors[299] == pytest.approx(hashed_vector("t299", 8))
    assert [len(request.body["input"]) for request in server.requests] == [256, 45, 1, 1, 1]
    assert embedder.embed([]).vectors == ()


def test_input_over_the_limit_of_a_minute_is_not_waited_for(
    server: ModelServer, model: OpenAITextModel
) -> None:
    server.behave(status=429, code="rate_limit_exceeded", message="Request too large for gpt-4.1-mini on TPM")
    with pytest.raises(PermanentModelError, match="tokens per minute"):
        model.answer(EXTRACT)


def test_dimensions_are_asked_for_only_where_they_can_be_chosen(server: ModelServer) -> None:
    embedder = embedder_from(
        settings_for(server, embedding_model="nomic-embed-text", embedding_dimensions=256)
    )
    assert len(embedder.embed(["a"]).vectors[0]) == 256
    assert "dimensions" not in server.requests[0].body
    embedder.close()
    wrong = embedder_from(settings_for(server, embedding_model="nomic-embed-text", embedding_dimensions=64))
    with pytest.raises(TransientModelError, match="STRANDLINE_EMBEDDING_DIMENSIONS=256"):
        wrong.embed(["a"])
    wrong.close()


def test_embedding_errors_are_decisions_too(server: ModelServer, embedder: OpenAIEmbedder) -> None:
    server.behave(status=404, code="model_not_found", times=1)
    with pytest.raises(TransientModelError, match="STRANDLINE_EMBEDDING_MODEL"):
        embedder.embed(["a"])
    server.behave(status=400, times=1)
    assert embedder.embed(["a"]).vectors == ((),), "it refuses this text alone"
    server.behave(responder=lambda _: {"data": [{"index": 0, "embedding": [1.0] * 8}] * 3})
    with pytest.raises(TransientModelError, match="one embedding for each"):
        embedder.embed(["a", "b"])


def test_the_time_for_an_embedding_bounds_all_its_requests(
    server: ModelServer, embedder: OpenAIEmbedder
) -> None:
    server.behave(latency=0.2)
    with pytest.raises(TransientModelError):
        embedder.embed(["a"] * 2_560, timeout_seconds=0.5)
    assert len(server.requests) < 10


def test_a_base_url_alone_is_enough(server: ModelServer) -> None:
    embedder = embedder_from(settings_for(server, openai_api_key=None, embedding_dimensions=8))
    assert embedder.embed(["a"]).vectors
    assert server.requests[0].authorization == "Bearer no-key-configured"
    embedder.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"openai_api_key": None, "openai_base_url": None}, "OPENAI_API_KEY or OPENAI_BASE_URL"),
        ({"openai_base_url": "localhost:11434"}, "OPENAI_BASE_URL"),
        ({"openai_base_url": "http://[half"}, "OPENAI_BASE_URL"),
        ({"openai_api_key": "sk-sécret"}, "OPENAI_API_KEY"),
        ({"openai_api_key": "sk-a\nb"}, "OPENAI_API_KEY"),
    ],
)
def test_unusable_settings_are_named_before_any_call(changes: dict[str, Any], says: str) -> None:
    values = {"openai_api_key": SECRET, "openai_base_url": None} | changes
    with pytest.raises(ConfigurationError, match=says) as caught:
        ModelClient(load_settings(**values).text_role("facts"))
    assert "sk-" not in str(caught.value)


def test_only_the_first_client_of_a_process_reads_the_certificates_to_trust(server: ModelServer) -> None:
    settings, reads = load_settings(openai_base_url=server.base_url), []
    ModelClient(settings.text_role("facts")).close()

    def note(_frame: object, _event: str, called: object) -> None:
        name = getattr(called, "__name__", "")
        if name.startswith(("load_verify_", "load_default_certs", "set_default_verify_")):
            reads.append(name)

    sys.setprofile(note)
    try:
        ModelClient(settings.text_role("facts")).close()
    finally:
        sys.setprofile(None)
    assert reads == []
