"""Text models and embedders behind any server that speaks OpenAI's protocol (OpenAI, vLLM, Ollama, …).

Each call is made once: retrying, backing off and giving up belong to the engine.  A second request is made
only to repair an unusable answer (once), and to fall back from strict structured output on servers that do
not have it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from strandline.pipelines.models.answer_forms import answer_schema
from strandline.pipelines.models.answers import check_answer
from strandline.pipelines.models.contract import EmbeddingAnswer, ModelAnswer, Task, TaskName, TextPurpose
from strandline.pipelines.models.embedding_batches import batches, ready_to_embed, unit_length
from strandline.pipelines.models.openai.client import ModelClient, RejectedError
from strandline.pipelines.models.openai.errors import (
    Rejection,
    after_answers,
    judge,
    refuses_answer_format,
    refuses_temperature,
)
from strandline.pipelines.models.openai.replies import Choice, Completion, Embeddings, Usage, read_reply
from strandline.pipelines.models.prompts.render import Prompt, render
from strandline.schemas.errors import PermanentModelError, ProviderSetupError, TransientModelError
from strandline.schemas.settings import Settings

COMPLETIONS = "/chat/completions"
EMBEDDINGS = "/embeddings"
MAX_TEXTS_PER_REQUEST = 256
MAX_CHARACTERS_PER_REQUEST = 250_000
MAX_ECHO_CHARACTERS = 20_000
# As many vectors as one request asks for, of the most dimensions there can be, at 32 bytes for a number.
MAX_EMBEDDINGS_BYTES = MAX_TEXTS_PER_REQUEST * 3_900 * 32
# How long a probe may take: it asks for one word.
PROBE_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Form:
    """The form in which an answer is requested: from what servers should support down to what all support."""

    answer: Literal["json_schema", "json_object", "text"] = "json_schema"
    temperature: bool = True

    def weaker(self, rejection: Rejection) -> _Form | None:
        """The form to ask for instead, or None if ``rejection`` is about something else."""
        if self.temperature and refuses_temperature(rejection):
            return replace(self, temperature=False)
        if self.answer == "text" or not refuses_answer_format(rejection):
            return None
        return replace(self, answer="json_object" if self.answer == "json_schema" else "text")


class OpenAITextModel:
    """Answers tasks through chat completions; safe to call from many threads.

    ``model_setting`` is the variable named in errors when the server does not have ``model``;
    ``timeout_seconds`` what one call may take (the client has the same limit); ``prompts`` own instructions.
    """

    def __init__(
        self,
        client: ModelClient,
        model: str,
        *,
        model_setting: str = "STRANDLINE_FACTS_MODEL",
        timeout_seconds: float = 60.0,
        prompts: Mapping[TaskName, str] | None = None,
    ) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._prompts = dict(prompts or {})
        self._model = model
        self._model_setting = model_setting
        # Replaced as a whole once a weaker form has worked; threads that race here only repeat a request.
        self._form = _Form()

    @property
    def model(self) -> str:
        return self._model

    def close(self) -> None:
        """Close the HTTP connections; calls after this fail."""
        self._client.close()

    def answer(self, task: Task) -> ModelAnswer:
        """Return a checked answer, as one JSON object; at most one repair is asked for.

        Raises:
            TransientModelError: time-out, connection failure, 429, 5xx, or a wrong key, model or address.
            PermanentModelError: refused, or unusable after the repair.
        """
        prompt = render(task, self._prompts)
        messages = [
            {"role": "system", "content": prompt.instructions},
            {"role": "user", "content": prompt.data},
        ]
        spent = Usage()
        problem = ""
        for is_repair in (False, True):
            with after_answers(some=is_repair):
                completion = self._complete(messages, task.name)
            spent = spent.plus(completion.usage)
            choice = completion.choices[0]
            try:
                return self._answer(prompt, check_answer(task, _usable_text(choice)), spent)
            except PermanentModelError as error:
                if _is_refused(choice):
                    raise
                problem = str(error)
            if not is_repair:
                messages = _repair(messages, choice, problem)
        raise PermanentModelError(f"The model's answer stayed unusable after one repair. {problem}")

    def probe(self) -> None:
        """Make the smallest request, to learn whether the server answers at all; raises as ``answer``."""
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": "Answer with the word OK."}],
        }
        try:
            body = self._client.post(
                COMPLETIONS, request, timeout_seconds=min(PROBE_SECONDS, self._timeout_seconds)
            )
        except RejectedError as error:
            raise judge(error.rejection, model_setting=self._model_setting) from None
        read_reply(Completion, body)

    def _answer(self, prompt: Prompt, text: str, spent: Usage) -> ModelAnswer:
        return ModelAnswer(text, self._model, prompt.hash, spent.prompt_tokens, spent.completion_tokens)

    def _complete(self, messages: Sequence[dict[str, str]], task: TaskName) -> Completion:
        """One completion, in the strongest form that the server takes; remembers the form that worked."""
        form = self._form
        while True:
            try:
                body = self._request(messages, task, form)
            except RejectedError as error:
                rejection = error.rejection
            else:
                self._remember(form)
                return read_reply(Completion, body)
            weaker = form.weaker(rejection)
            if weaker is None:
                raise judge(rejection, model_setting=self._model_setting)
            form = weaker

    def _request(self, messages: Sequence[dict[str, str]], task: TaskName, form: _Form) -> bytes:
        request: dict[str, Any] = {"model": self._model, "messages": _in_form(messages, task, form)}
        if form.temperature:
            request["temperature"] = 0
        if form.answer == "json_schema":
            schema = {"name": task, "strict": True, "schema": answer_schema(task)}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif form.answer == "json_object":
            request["response_format"] = {"type": "json_object"}
        return self._client.post(COMPLETIONS, request)

    def _remember(self, form: _Form) -> None:
        if form != self._form:
            self._form = form
            logger.info(
                "model server needs a weaker request form",
                extra={"model": self._model, "answer_form": form.answer, "temperature": form.temperature},
            )


class OpenAIEmbedder:
    """Embeds through ``/embeddings``; safe to call from many threads."""

    def __init__(self, client: ModelClient, model: str, dimensions: int) -> None:
        self._client = client
        self._model = model
        self._dimensions = dimensions

    @property
    def model(self) -> str:
        return self._model

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def close(self) -> None:
        """Close the HTTP connections; calls after this fail."""
        self._client.close()

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order, in requests of at most 256 texts and about 250,000 characters.

        ``timeout_seconds`` bounds all requests together (default: the client's limit for each).

        Raises:
            TransientModelError: as for a text model; also fewer vectors than texts.
            PermanentModelError: refused, or vectors of another dimension than configured.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        vectors: list[tuple[float, ...]] = []
        tokens = 0
        for batch in batches(
            ready_to_embed(texts), max_texts=MAX_TEXTS_PER_REQUEST, max_characters=MAX_CHARACTERS_PER_REQUEST
        ):
            with after_answers(some=bool(vectors)):
                answer = read_reply(Embeddings, self._request(batch, deadline))
            vectors.extend(self._vectors(answer, len(batch)))
            tokens += answer.usage.prompt_tokens if answer.usage else 0
        return EmbeddingAnswer(tuple(vectors), self._model, tokens)

    def probe(self) -> None:
        """Embed one word, to learn whether the server answers at all; raises as ``embed``."""
        self.embed(["word"], timeout_seconds=PROBE_SECONDS)

    def _request(self, batch: Sequence[str], deadline: float | None) -> bytes:
        request: dict[str, Any] = {"model": self._model, "input": list(batch), "encoding_format": "float"}
        if self._model.startswith("text-embedding-3"):
            request["dimensions"] = self._dimensions
        left = None if deadline is None else _time_left(deadline)
        try:
            return self._client.post(EMBEDDINGS, request, timeout_seconds=left)
        except RejectedError as error:
            raise judge(error.rejection, model_setting="STRANDLINE_EMBEDDING_MODEL") from None

    def _vectors(self, answer: Embeddings, expected: int) -> Iterator[tuple[float, ...]]:
        by_index = {item.index: item.embedding for item in answer.data}
        if sorted(by_index) != list(range(expected)):
            raise TransientModelError("The model server did not return one embedding for each text.")
        for index in range(expected):
            vector = by_index[index]
            if len(vector) != self._dimensions:
                # Wrong for every text alike, so an outage until the setting is right, and no text's fault.
                raise ProviderSetupError(
                    f"The model {self._model} returns {len(vector)} dimensions, but {self._dimensions} are"
                    f" configured; set STRANDLINE_EMBEDDING_DIMENSIONS={len(vector)},"
                    " or choose another STRANDLINE_EMBEDDING_MODEL."
                )
            try:
                yield unit_length(vector)
            except ValueError as error:
                raise PermanentModelError(
                    f"The embedding returned for a text is unusable: {error}."
                ) from None


def text_model_from(
    settings: Settings, *, purpose: TextPurpose, prompts: Mapping[TaskName, str] | None = None
) -> OpenAITextModel:
    """The configured text model for facts (extract and merge) or for summaries, with its own client.

    Raises:
        ConfigurationError: neither key nor base URL is set, or one of them cannot be used.
    """
    return OpenAITextModel(
        ModelClient(settings),
        _model_for(purpose, settings),
        model_setting=f"STRANDLINE_{purpose.upper()}_MODEL",
        timeout_seconds=settings.model_timeout_seconds,
        prompts=prompts,
    )


def embedder_from(settings: Settings) -> OpenAIEmbedder:
    """The configured embedder, with its own client.

    Raises:
        ConfigurationError: neither key nor base URL is set, or one of them cannot be used.
    """
    client = ModelClient(settings, max_answer_bytes=MAX_EMBEDDINGS_BYTES)
    return OpenAIEmbedder(client, settings.embedding_model, settings.embedding_dimensions)


def _model_for(purpose: TextPurpose, settings: Settings) -> str:
    match purpose:
        case "facts":
            return settings.facts_model
        case "summary":
            return settings.summary_model
        case _:
            assert_never(purpose)


def _in_form(messages: Sequence[dict[str, str]], task: TaskName, form: _Form) -> list[dict[str, str]]:
    """Without a schema in the request, the schema goes into the instructions."""
    system, *rest = messages
    if form.answer == "json_schema":
        return [system, *rest]
    schema = json.dumps(answer_schema(task))
    wish = f"Answer with JSON only: no code fence and no other word. The JSON schema of the answer: {schema}"
    return [{**system, "content": f"{system['content']}\n{wish}"}, *rest]


def _usable_text(choice: Choice) -> str:
    if _is_refused(choice):
        raise PermanentModelError("The model refused to answer for this input.")
    if choice.finish_reason == "length":
        raise PermanentModelError("The answer was cut off because it became too long.")
    return choice.message.content or ""


def _is_refused(choice: Choice) -> bool:
    return bool(choice.message.refusal) or choice.finish_reason == "content_filter"


def _repair(messages: Sequence[dict[str, str]], choice: Choice, problem: str) -> list[dict[str, str]]:
    """The conversation for the second try: the bad answer and what is wrong with it, or "be shorter"."""
    system, user = messages
    if choice.finish_reason == "length":
        wish = "An earlier answer became too long and was cut off. Answer much more briefly."
        shorter = f"{user['content']}\n\n{wish}"
        return [system, {**user, "content": shorter}]
    echo = (choice.message.content or "")[:MAX_ECHO_CHARACTERS] or "(empty)"
    wish = f"This answer cannot be used. {problem} Answer again, with the corrected JSON object only."
    return [system, user, {"role": "assistant", "content": echo}, {"role": "user", "content": wish}]


def _time_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TransientModelError("The embedding took longer than its time limit.")
    return left
