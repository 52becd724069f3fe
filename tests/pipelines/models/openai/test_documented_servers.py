"""The servers in docs/models.md: each row's settings, against a stand-in of what the server documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
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
from strandline.pipelines.models.factory import build_embedder, build_query_embedder, build_text_model
from strandline.pipelines.models.prefixes import Prefixes
from strandline.schemas.model_roles import OPENAI_URL
from strandline.schemas.settings import Settings, load_settings
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
    (query,) = build_query_embedder(settings).embed([f"{prefixes.query}Where do I walk?"]).vectors
    assert len(query) == size
