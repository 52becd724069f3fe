"""The servers in docs/models.md: each row's settings, against a stand-in of what the server documents."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.doctor.models import check_models
from strandline.pipelines.generations.definitions import DEFINITIONS
from strandline.pipelines.models.answers import parse_extract, parse_merge, parse_summary
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    TranscriptLine,
)
from strandline.pipelines.models.embedding_batches import Prefixes
from strandline.pipelines.models.factory import (
    build_embedder,
    build_text_model,
    with_recorded_embedder,
)
from strandline.pipelines.models.openai.models import text_model_from
from strandline.schemas.errors import (
    ModelError,
    ProviderDownError,
    ProviderSetupError,
    TransientModelError,
)
from strandline.schemas.model_roles import OPENAI_URL
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.pipelines.models.test_quirks import EXTRACT, MERGE, error
from tests.pipelines.models.test_quirks import SUMMARY as SUMMARY_TASK
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, answer_to, hashed_vector

PAGE = Path(__file__).resolve().parents[4] / "docs" / "models.md"
ROW = re.compile(r"^\| (.+?) \| (`(?:OPENAI|STRANDLINE)_.+`) \|$", re.MULTILINE)
SETTING = re.compile(r"`((?:OPENAI|STRANDLINE)_[A-Z_]+)=([^`]*)`")
ORIGIN = re.compile(r"^https?://[^/?]+")
ROWS = {name: dict(SETTING.findall(cell)) for name, cell in ROW.findall(PAGE.read_text(encoding="utf-8"))}
MOMENT = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
LINES = tuple(TranscriptLine(n, "user", None, text, MOMENT) for n, text in enumerate(("A boat", "Rex"), 1))
CANDIDATE = NumberedFact(1, "Ann sold it.", MOMENT)
# As many, and as long, as no limit below allows in one request.
TEXTS = [f"Day {number}: I walked. " + "word " * 310 for number in range(150)]
Body = dict[str, Any]


def fine(_body: Body) -> str | None:
    return None


@dataclass(frozen=True)
class Documented:
    """What a server documents: its paths, its key, what it refuses, and how large its vectors are."""

    chat: str | None = "/v1/chat/completions"
    embeddings: str | None = None
    key: tuple[str, str] | None = ("authorization", "Bearer KEY")
    refuses_chat: Callable[[Body], str | None] = fine
    refuses_texts: Callable[[Body], str | None] = fine
    reads_schema: bool = True
    default_limit: int | None = None
    dimensions: int = 1536
    takes_dimensions: bool = False

    def answer(self, request: RecordedRequest) -> Any:
        body = request.body
        if self.key is not None and request.headers.get(self.key[0]) != self.key[1]:
            return refusal(401, "the key is wrong")
        if request.path == self.chat and "messages" in body:
            problem = self.refuses_chat(body)
            return refusal(400, problem) if problem else self.complete(body)
        if request.path == self.embeddings and "input" in body:
            problem = self.refuses_texts(body)
            return refusal(400, problem) if problem else self.embed(body)
        return refusal(404, f"no such path: {request.path}")

    def complete(self, body: Body) -> Body:
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        has_form = (self.reads_schema and "response_format" in body) or "JSON schema" in prompt
        text = json.dumps(answer_to(prompt)) if has_form else "Ann owns a boat, and her dog is Rex."
        limit = body.get("max_tokens", self.default_limit)
        text = text if limit is None else text[: 4 * limit]
        return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text}}]}

    def embed(self, body: Body) -> Body:
        size = body.get("dimensions", self.dimensions) if self.takes_dimensions else self.dimensions
        rows = [{"index": n, "embedding": hashed_vector(text, size)} for n, text in enumerate(body["input"])]
        return {"data": rows}


class WithoutZeros(Documented):
    """As Gemini: an index of 0 is left out."""

    def embed(self, body: Body) -> Body:
        rows = super().embed(body)["data"]
        return {
            "data": [{key: value for key, value in row.items() if key != "index" or value} for row in rows]
        }


def refusal(status: int, message: str) -> Raw:
    return Raw(status, json.dumps({"error": {"message": message}}).encode())


def unless(said: str, test: Callable[[Body], Any]) -> Callable[[Body], str | None]:
    return lambda body: None if test(body) else said


def needs_json_object(body: Body) -> str | None:
    """As DeepSeek: a JSON object, for a prompt that has the word in it."""
    form, prompt = body.get("response_format", {}).get("type"), str(body["messages"])
    return (
        None if form == "json_object" and "json" in prompt.lower() else "this response_format is unavailable"
    )


def is_streamed_schema(body: Body) -> bool:
    return bool(body.get("stream") and body.get("response_format", {}).get("type") == "json_schema")


SERVERS: dict[str, Documented] = {
    "OpenAI": Documented(embeddings="/v1/embeddings", takes_dimensions=True),
    "Azure OpenAI, v1": Documented(
        "/openai/v1/chat/completions",
        "/openai/v1/embeddings",
        refuses_chat=unless("DeploymentNotFound", lambda body: body["model"] == "CHAT"),
        refuses_texts=unless("DeploymentNotFound", lambda body: body["model"] == "EMBEDDINGS"),
        dimensions=3072,
        takes_dimensions=True,
    ),
    "Azure OpenAI, deployments": Documented(
        "/openai/deployments/CHAT/chat/completions?api-version=2024-10-21",
        "/openai/deployments/EMBEDDINGS/embeddings?api-version=2024-10-21",
        key=("api-key", "KEY"),
    ),
    "Gemini": WithoutZeros(
        "/v1beta/openai/chat/completions",
        "/v1beta/openai/embeddings",
        refuses_texts=unless(
            "at most 100 requests can be in one batch", lambda body: len(body["input"]) <= 100
        ),
        dimensions=3072,
        takes_dimensions=True,
    ),
    "Anthropic": Documented(
        refuses_chat=unless("max_tokens: Field required", lambda body: "max_tokens" in body),
        reads_schema=False,
    ),
    "Mistral": Documented(
        embeddings="/v1/embeddings",
        refuses_texts=unless(
            "Too many tokens overall", lambda body: sum(map(len, body["input"])) <= 4 * 16_384
        ),
        dimensions=1024,
    ),
    "DeepSeek": Documented("/chat/completions", refuses_chat=needs_json_object),
    "Groq": Documented(
        "/openai/v1/chat/completions",
        refuses_chat=unless("no streams with structured outputs", lambda body: not is_streamed_schema(body)),
    ),
    "OpenRouter": Documented(
        "/api/v1/chat/completions",
        refuses_chat=unless(
            "no provider", lambda body: "provider" in body or "<summary_so_far>" in str(body["messages"])
        ),
    ),
    "Bedrock gateway": Documented(
        "/api/v1/chat/completions",
        "/api/v1/embeddings",
        reads_schema=False,
        default_limit=512,
        dimensions=1024,
    ),
    "LiteLLM": Documented("/chat/completions", "/embeddings"),
    "vLLM": Documented(
        embeddings="/v1/embeddings",
        key=None,
        refuses_chat=unless(
            "it thinks", lambda body: body.get("chat_template_kwargs") == {"enable_thinking": False}
        ),
        refuses_texts=unless("no matryoshka representation", lambda body: "dimensions" not in body),
        dimensions=1024,
    ),
    "TGI": Documented(key=None, default_limit=8),
    "TEI": Documented(
        None,
        "/v1/embeddings",
        key=None,
        refuses_texts=unless(
            "batch size > maximum allowed batch size 32", lambda body: len(body["input"]) <= 32
        ),
        dimensions=384,
    ),
    "Ollama": Documented(embeddings="/v1/embeddings", key=None, dimensions=768),
    "llama.cpp": Documented(embeddings="/v1/embeddings", key=None, dimensions=1024),
    "LM Studio": Documented(
        embeddings="/v1/embeddings",
        key=None,
        refuses_chat=unless(
            "'response_format.type' must be 'json_schema' or 'text'",
            lambda body: body.get("response_format", {}).get("type") != "json_object",
        ),
        dimensions=768,
    ),
    "NIM": Documented(
        embeddings="/v1/embeddings",
        refuses_texts=unless(
            "'input_type' is required", lambda body: body.get("input_type") == purpose_of(body)
        ),
        dimensions=2048,
    ),
    "Voyage": Documented(
        None,
        "/v1/embeddings",
        refuses_texts=unless(
            "encoding_format must be null or base64, input_type query or document",
            lambda body: (
                "encoding_format" not in body and body.get("input_type") == purpose_of(body, "document")
            ),
        ),
        dimensions=1024,
    ),
}


def purpose_of(body: Body, passage: str = "passage") -> str:
    return "query" if "Where" in body["input"][0] else passage


def test_each_row_is_played() -> None:
    assert list(ROWS) == list(SERVERS)


@pytest.mark.parametrize("row", SERVERS)
def test_the_settings_of_a_row_are_those_that_the_server_takes(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is refused: nothing has to be found by trying."""
    with ExitStack() as running:
        servers: dict[str, ModelServer] = {}
        refused: list[bytes] = []

        def respond(request: RecordedRequest) -> Any:
            made = SERVERS[row].answer(request)
            if isinstance(made, Raw):
                refused.append(made.body)
            return made

        def local(url: re.Match[str]) -> str:
            if url[0] not in servers:
                servers[url[0]] = running.enter_context(ModelServer())
                servers[url[0]].behave(responder=respond)
            return servers[url[0]].base_url.removesuffix("/v1")

        values = {"OPENAI_BASE_URL": OPENAI_URL, **ROWS[row]} if row == "OpenAI" else ROWS[row]
        for name, value in values.items():
            monkeypatch.setenv(name, ORIGIN.sub(local, value))
        settings = load_settings()
        if SERVERS[row].chat is not None:
            ask(settings)
        if SERVERS[row].embeddings is not None:
            embed(settings)
        else:
            assert settings.backend("embedding") == "local"
    assert refused == []


def ask(settings: Settings) -> None:
    facts = build_text_model(settings, purpose="facts").answer(ExtractTask(LINES))
    assert len(parse_extract(facts.text, 2)) == 2
    merged = build_text_model(settings, purpose="merge").answer(MergeTask((), (CANDIDATE,)))
    assert len(parse_merge(merged.text, 0, 1)) == 1
    summary = build_text_model(settings, purpose="summary").answer(SummaryTask("", LINES, 100))
    assert parse_summary(summary.text).summary


def embed(settings: Settings) -> None:
    prefixes, size = Prefixes.of_settings(settings), settings.embedding_dimensions
    vectors = build_embedder(settings).embed([prefixes.passage + text for text in TEXTS]).vectors
    assert [len(vector) for vector in vectors] == [size] * len(TEXTS)
    (query,) = (
        build_embedder(settings, "query_embedding").embed([f"{prefixes.query}Where do I walk?"]).vectors
    )
    assert len(query) == size


# Roles at their servers: what each server is sent, what they share, and what belongs to a generation.
SetRoles = Callable[..., Settings]
# As recipes were recorded before there were roles.
VECTORS_BEFORE = {"embedder": "e", "dimensions": 8}
FACTS_BEFORE = {"backend": "openai", "model": "m", "max_facts": 1_000, "context_tokens": 500}


@pytest.fixture
def servers() -> Iterator[tuple[ModelServer, ModelServer]]:
    with ModelServer() as one, ModelServer() as other:
        yield one, other


@pytest.fixture
def set_roles(servers: tuple[ModelServer, ModelServer], monkeypatch: pytest.MonkeyPatch) -> SetRoles:
    """Sets variables of roles beside the first server as that of all, and gives the settings."""

    def read(**values: str) -> Settings:
        common = {"OPENAI_BASE_URL": servers[0].base_url, "OPENAI_API_KEY": "k"}
        common |= {"STRANDLINE_EMBEDDING_MODEL": "e", "STRANDLINE_EMBEDDING_DIMENSIONS": "8"}
        common |= {"STRANDLINE_FACTS_MODEL": "m", "STRANDLINE_SUMMARY_MODEL": "m"}
        for name, value in (
            common | {f"STRANDLINE_MODELS__{name}": value for name, value in values.items()}
        ).items():
            monkeypatch.setenv(name, value)
        return load_settings()

    return read


def test_each_role_asks_its_server_by_its_key_model_and_form(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    one, other = servers
    settings = set_roles(
        MERGE__BASE_URL=f"{other.base_url}?tenant=a",
        MERGE__API_KEY="k2",
        MERGE__KEY_HEADER="api-key",
        MERGE__HEADERS='{"X-Workspace": "w"}',
        MERGE__QUERY='{"api-version": "1"}',
        MERGE__MODEL="merger",
        MERGE__BODY='{"reasoning_effort": "low", "stream_options": null}',
        MERGE__MAX_TOKENS="77",
        MERGE__MAX_TOKENS_FIELD="max_completion_tokens",
        MERGE__TEMPERATURE="none",
        FACTS__ANSWER_FORM="json_object",
        FACTS__TEMPERATURE="0.3",
        EMBEDDING__SENDS_DIMENSIONS="true",
        EMBEDDING__MAX_TEXTS="2",
        QUERY_EMBEDDING__SENDS_ENCODING_FORMAT="false",
    )
    build_text_model(settings, purpose="facts").answer(EXTRACT)
    build_text_model(settings, purpose="merge").answer(MERGE)
    (facts,), (merge,) = one.requests, other.requests
    assert (facts.authorization, facts.body["temperature"]) == ("Bearer k", 0.3)
    assert facts.body["response_format"] == {"type": "json_object"}
    assert merge.path == "/v1/chat/completions?tenant=a&api-version=1"
    sent = {name: merge.headers.get(name) for name in ("authorization", "api-key", "x-workspace")}
    assert sent == {"authorization": None, "api-key": "k2", "x-workspace": "w"}
    body = merge.body
    assert (body["model"], body["reasoning_effort"], body["max_completion_tokens"]) == ("merger", "low", 77)
    assert body["response_format"] == {"type": "json_object"} and body["stream"], "as facts"
    assert not {"temperature", "max_tokens", "stream_options"} & set(body)
    assert len(build_embedder(settings).embed(["a", "b", "c"]).vectors) == 3
    build_embedder(settings, "query_embedding").embed(["d"])
    pair, single, query = (request.body for request in one.requests[1:])
    assert (pair["input"], single["input"], pair["dimensions"]) == (["a", "b"], ["c"], 8)
    assert "encoding_format" in single and "encoding_format" not in query


def test_a_form_that_is_chosen_is_kept_though_the_server_refuses_it(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    servers[0].behave(refuse_formats=["json_object", "json_schema"])
    model = text_model_from(set_roles(FACTS__ANSWER_FORM="json_object"), purpose="facts")
    with pytest.raises(ModelError):
        model.answer(EXTRACT)
    forms = {request.body["response_format"]["type"] for request in servers[0].requests}
    assert forms == {"json_object"}
    model.close()


def test_an_answer_that_is_cut_names_the_setting_that_allows_more(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles, caplog: pytest.LogCaptureFixture
) -> None:
    servers[0].behave(finish_reason="length", truncate=True)
    model = text_model_from(set_roles(SUMMARY__MAX_TOKENS="50"), purpose="summary")
    assert parse_summary(model.answer(SUMMARY_TASK).text).summary
    assert "STRANDLINE_MODELS__SUMMARY__MAX_TOKENS" in vars(caplog.records[-1])["reason"]
    assert [request.body["max_tokens"] for request in servers[0].requests] == [50, 50]
    model.close()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {}, "check STRANDLINE_MODELS__FACTS__API_KEY"),
        (404, {}, "check STRANDLINE_MODELS__FACTS__BASE_URL"),
        (404, error("model 'm' not found"), "check STRANDLINE_FACTS_MODEL"),
        (400, error("enable_thinking must be false"), "STRANDLINE_MODELS__FACTS__BODY"),
    ],
)
def test_an_error_names_role_server_and_the_variables_of_the_role(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles, status: int, body: Any, says: str
) -> None:
    settings = set_roles(FACTS__BASE_URL=servers[1].base_url)
    servers[1].behave(responder=lambda _: Raw(status, json.dumps(body).encode()))
    with pytest.raises(ProviderSetupError, match=says) as caught:
        build_text_model(settings, purpose="facts").answer(EXTRACT)
    assert str(caught.value).endswith(f"[facts, m at {servers[1].base_url}]")
    assert servers[0].requests == []


def test_models_of_one_server_and_key_share_what_is_known_of_it(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    one, other = servers
    settings = set_roles(SUMMARY__BASE_URL=other.base_url)
    facts, merge = (build_text_model(settings, purpose=role) for role in ("facts", "merge"))
    summary, embedder = build_text_model(settings, purpose="summary"), build_embedder(settings)
    for trouble in ({"status": 503}, {"status": 429}, {"status": 429, "retry_after": "9"}):
        one.behave(**trouble)
        with pytest.raises(TransientModelError):
            facts.answer(EXTRACT)
        assert merge.wait_seconds() > 0 and embedder.wait_seconds() > 0, trouble
        asked = len(one.requests)
        with pytest.raises(ProviderDownError, match="facts, m at"):
            merge.answer(MERGE)
        assert len(one.requests) == asked
        assert summary.wait_seconds() == 0.0
        summary.answer(SUMMARY_TASK)
        # All models of a server gone, so is what was known of it.
        del facts, merge, embedder
        gc.collect()
        one.behave()
        facts, merge = (build_text_model(settings, purpose=role) for role in ("facts", "merge"))
        embedder = build_embedder(settings)
        assert [model.wait_seconds() for model in (facts, merge, embedder)] == [0.0, 0.0, 0.0]


def test_another_key_at_the_same_server_is_asked_on(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    settings = set_roles(SUMMARY__API_KEY="k2")
    facts, summary = (build_text_model(settings, purpose=role) for role in ("facts", "summary"))
    servers[0].behave(status=429, retry_after="9", times=1)
    with pytest.raises(TransientModelError):
        facts.answer(EXTRACT)
    assert (facts.wait_seconds() > 0, summary.wait_seconds()) == (True, 0.0)


def test_a_model_that_a_server_lacks_is_the_matter_of_its_role(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    """As at servers that have no embeddings."""
    settings = set_roles()
    facts, embedder = build_text_model(settings, purpose="facts"), build_embedder(settings)
    servers[0].behave(status=404, path="/embeddings")
    with pytest.raises(ProviderSetupError, match="no embeddings") as caught:
        embedder.embed(["a"])
    assert not caught.value.counts
    assert (embedder.wait_seconds() > 0, facts.wait_seconds()) == (True, 0.0)
    facts.answer(EXTRACT)


def test_a_recipe_is_as_before_where_nothing_of_it_is_set(set_roles: SetRoles) -> None:
    """Addresses, keys, forms and limits are no part of what was derived."""
    for values in (
        {},
        {
            "FACTS__BASE_URL": "http://127.0.0.1:1/v1",
            "FACTS__API_KEY": "k",
            "FACTS__BODY": '{"reasoning_effort": "low"}',
            "FACTS__MAX_TOKENS": "500",
            "MERGE__TEMPERATURE": "none",
            "MERGE__MODEL": "m",
            "EMBEDDING__MAX_TEXTS": "4",
            "EMBEDDING__HEADERS": '{"X-A": "b"}',
            "QUERY_EMBEDDING__MODEL": "the-same-elsewhere",
        },
    ):
        settings = set_roles(**values)
        assert DEFINITIONS[FACTS].record(settings) == FACTS_BEFORE
        assert DEFINITIONS[VECTORS].record(settings) == VECTORS_BEFORE
        assert DEFINITIONS[SUMMARY].record(settings) == {"backend": "openai", "model": "m", "max_tokens": 400}


def test_what_changes_what_is_derived_is_recorded_and_restored(set_roles: SetRoles) -> None:
    recorded = set_roles(
        FACTS__MODEL="f",
        MERGE__MODEL="mm",
        EMBEDDING__MODEL="e2",
        EMBEDDING__PREFIX="p: ",
        EMBEDDING__BODY='{"input_type": "passage"}',
        QUERY_EMBEDDING__BODY='{"input_type": "query"}',
        QUERY_EMBEDDING__MODEL="e2-at-b",
    )
    facts, vectors = DEFINITIONS[FACTS].record(recorded), DEFINITIONS[VECTORS].record(recorded)
    assert (facts["model"], facts["merge_model"]) == ("f", "mm")
    bodies = {"body": {"input_type": "passage"}, "query_body": {"input_type": "query"}}
    assert vectors == {"embedder": "e2", "dimensions": 8, "passage_prefix": "p: ", **bodies}
    other = recorded.model_copy(update={"facts_model": "x", "merge_model": None, "embedding_model": "y"})
    restored = DEFINITIONS[FACTS].restore(other, facts)
    assert [restored.text_role(role).of.model for role in ("facts", "merge")] == ["f", "mm"]
    as_before = DEFINITIONS[FACTS].restore(recorded, FACTS_BEFORE)
    assert [as_before.text_role(role).of.model for role in ("facts", "merge")] == ["m", "m"]
    earlier = with_recorded_embedder(recorded, VECTORS_BEFORE)
    passage, query = earlier.embedding_role().of, earlier.embedding_role("query_embedding").of
    assert (passage.model, query.model, passage.body, query.body) == ("e", "e", "{}", "{}")
    again = with_recorded_embedder(recorded, vectors)
    assert again.embedding_role("query_embedding").of.model == "e2-at-b"
    assert json.loads(again.embedding_role("query_embedding").of.body or "") == {"input_type": "query"}


def test_doctor_shows_what_the_server_says_and_no_key(
    servers: tuple[ModelServer, ModelServer], set_roles: SetRoles
) -> None:
    settings = set_roles(EMBEDDING__BACKEND="none")
    says = "Unknown field chat_template_kwargs for sk-abc***wxyz and sk-proj-1234567890"
    servers[0].behave(responder=lambda _: Raw(400, json.dumps(error(says)).encode()))
    text, embedding = check_models(settings, call=True)
    assert (text.result, embedding.result) == ("problem", "ok")
    assert "Unknown field chat_template_kwargs" in text.found
    assert "wxyz" not in text.found and "sk-" not in text.found
    assert "words alone" in embedding.found


def test_without_an_embedding_model_a_worker_says_so_and_serves_the_rest(rig: Rig) -> None:
    worker = rig.start_worker(STRANDLINE_EMBEDDING_BACKEND="none", STRANDLINE_TEXT_BACKEND="local")
    memory = rig.memory("s", user_id="ana", broker_url=rig.broker_url)
    memory.put({"role": "user", "content": "My cat is called Mio."})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the work to be done")
    assert rows_of(rig.url, "SELECT count(*), count(embedding) FROM strandline.chunk") == [(1, 0)]
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.model_call WHERE model = 'none'") == [(0,)]
    results = memory.search("Mio")
    assert [result.text for result in results] == ["My cat is called Mio."]
    said = [line for line in worker.output if "action=no_embedder" in line]
    assert len(said) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"HTTP_PROXY": "foo://127.0.0.1:1"},
        {"ALL_PROXY": "socks5://127.0.0.1:1"},
        {"OPENAI_API_KEY": "sk-\u00e9"},
        {"STRANDLINE_MODELS__QUERY_EMBEDDING__BACKEND": "none"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_read_goes_by_words_whatever_the_environment_of_the_client_is(
    rig: Rig,
    environment: dict[str, str],
    servers: tuple[ModelServer, ModelServer],
    set_roles: SetRoles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_roles(EMBEDDING__BACKEND="openai", EMBEDDING__SENDS_DIMENSIONS="true")
    rig.start_worker()
    memory = rig.memory("s", user_id="ana", broker_url=rig.broker_url)
    memory.put({"role": "user", "content": "My cat is called Mio."})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the work to be done")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reader = rig.memory("s", user_id="ana")
    for _ in range(2):
        context = reader.get("What is Mio?")
        assert "Mio" in context[0].text
        (omission,) = [one for one in context.omitted if one.kind == "search_text_only"]
        assert "compared only words" in omission.reason
