"""Models behind a breaker: stages and reads use these if a provider can be down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from strandline.pipelines.models.contract import EmbeddingAnswer, ModelAnswer, Task
from strandline.pipelines.models.provided.breaker import Breaker
from strandline.schemas.tracing import call_span

# All servers are asked in OpenAI's protocol, whoever runs them.
PROTOCOL = "openai"


class ProvidedEmbedder(Protocol):
    """An embedder of a provider, before it is guarded."""

    model: str
    dimensions: int

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer: ...


class GuardedTextModel:
    """A text model that is not called while its provider is down."""

    def __init__(self, model: str, answer: Callable[[Task], ModelAnswer], breaker: Breaker) -> None:
        self.model = model
        self._answer = answer
        self._breaker = breaker
        self.wait_seconds = breaker.wait_seconds

    def answer(self, task: Task) -> ModelAnswer:
        """As the model's own; raises ProviderDownError, at once, while the provider is down."""
        with self._breaker.guard(), call_span("chat", self.model, PROTOCOL) as span:
            answer = self._answer(task)
            span.note_tokens(answer.input_tokens, answer.output_tokens)
            return answer


class GuardedEmbedder:
    """An embedder that is not called while its provider is down."""

    def __init__(self, embedder: ProvidedEmbedder, breaker: Breaker) -> None:
        self._embedder = embedder
        self._breaker = breaker
        self.model, self.dimensions = embedder.model, embedder.dimensions
        self.wait_seconds = breaker.wait_seconds

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """As the embedder's own; raises ProviderDownError, at once, while the provider is down."""
        with self._breaker.guard(), call_span("embeddings", self.model, PROTOCOL) as span:
            answer = self._embedder.embed(texts, timeout_seconds=timeout_seconds)
            span.note_tokens(answer.input_tokens)
            return answer
