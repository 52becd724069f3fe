"""Embedders behind any server that speaks OpenAI's protocol.

A refused request is halved, down to the text that is refused by itself: that text is cut, and if it is
refused however short it is, it goes without a vector, and its neighbours have theirs.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from strandline.pipelines.models.contract import EmbeddingAnswer
from strandline.pipelines.models.embedding_batches import first_batch, ready_to_embed, unit_length
from strandline.pipelines.models.openai.client import PROBE_SECONDS, ModelClient
from strandline.pipelines.models.openai.errors import (
    RejectedError,
    Rejection,
    after_answers,
    confirmed,
    is_too_long,
    judge,
    refuses_everything,
)
from strandline.pipelines.models.openai.replies import (
    MiscountedError,
    Usage,
    not_of_form,
    read_embeddings,
)
from strandline.schemas.errors import (
    PermanentModelError,
    ProviderSetupError,
    TransientModelError,
)
from strandline.schemas.model_roles import EmbeddingPurpose, EmbeddingRole, Role
from strandline.schemas.settings import Settings

EMBEDDINGS = "/embeddings"
MAX_TEXTS_PER_REQUEST = 256
MAX_CHARACTERS_PER_REQUEST = 250_000
# As many vectors as one request asks for, of the most dimensions there can be, at 32 bytes for a number.
MAX_EMBEDDINGS_BYTES = MAX_TEXTS_PER_REQUEST * 3_900 * 32
PROBE_TEXT = "word"
# A text refused at this length is refused for its content.
_SHORTEST = 64

_FORMAT = re.compile(r"encoding.?format|\bbase64\b|\bfloat\b", re.IGNORECASE)
_DIMENSIONS = re.compile(r"dimensions?\b|matryoshka", re.IGNORECASE)
# A limit on the number of texts; another one is on their length.
_TOO_MANY = re.compile(r"batch.?size|\binputs?\b|\bitems?\b|\barray|\belements?\b", re.IGNORECASE)
_NO_EMBEDDINGS = re.compile(r"not support (the )?embeddings?\b|--embeddings?\b", re.IGNORECASE)
_ABOUT_THE_INPUT = frozenset({400, 413, 422})

logger = logging.getLogger(__name__)

# A vector that a text does not have.
NONE: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Form:
    sends_list: bool = True
    sends_format: bool = True
    sends_dimensions: bool = False
    max_texts: int = MAX_TEXTS_PER_REQUEST
    max_characters: int = MAX_CHARACTERS_PER_REQUEST

    @classmethod
    def of_role(cls, role: EmbeddingRole) -> _Form:
        to_openai = str(role.model).startswith("text-embedding-3")
        return cls(
            sends_format=role.sends_encoding_format is not False,
            sends_dimensions=to_openai if role.sends_dimensions is None else role.sends_dimensions,
            max_texts=role.max_texts or MAX_TEXTS_PER_REQUEST,
            max_characters=role.max_characters or MAX_CHARACTERS_PER_REQUEST,
        )

    def weaker(self, rejection: Rejection) -> _Form | None:
        """The form without the feature that ``rejection`` names; None if this form lacks it."""
        if rejection.status not in _ABOUT_THE_INPUT:
            return None
        if self.sends_dimensions and _DIMENSIONS.search(rejection.subject):
            return replace(self, sends_dimensions=False)
        if self.sends_format and _FORMAT.search(rejection.subject):
            return replace(self, sends_format=False)
        return None

    def plainer(self) -> _Form | None:
        """The next form to try after an objection without a reason; None: there is none."""
        if self.sends_format or self.sends_dimensions:
            return replace(self, sends_format=False, sends_dimensions=False)
        return replace(self, sends_list=False, max_texts=1) if self.sends_list else None


class OpenAIEmbedder:
    """Embeds through ``/embeddings``; safe to call from many threads.

    ``model`` is the name that is recorded.
    """

    def __init__(self, client: ModelClient, role: Role[EmbeddingRole], model: str, dimensions: int) -> None:
        self._client = client
        self.role = role
        self.model = model
        self.dimensions = dimensions
        # Replaced as a whole; threads that race here only repeat a request.
        self.form = _Form.of_role(role.of)

    def close(self) -> None:
        """Close the HTTP connections; calls after this fail."""
        self._client.close()

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order, in requests of at most 256 texts and about 250,000 characters.

        A vector is empty for a text that the server refuses by itself. ``timeout_seconds`` bounds all
        requests together (default: the client's limit for each).

        Raises:
            TransientModelError: as for a text model; also fewer vectors than texts.
        """
        call = _EmbeddingCall(self, timeout_seconds)
        vectors = call.embed_all(ready_to_embed(texts))
        if call.answered and not any(vectors):
            call.probe()
        return EmbeddingAnswer(tuple(vectors), self.model, call.tokens)

    def probe(self) -> None:
        """Embed one word, to learn whether the server answers at all; raises as ``embed``."""
        _EmbeddingCall(self, PROBE_SECONDS).probe()

    def request(
        self, batch: Sequence[str], time_left: Callable[[], float | None], *, is_probe: bool
    ) -> tuple[list[Sequence[float]], Usage | None]:
        """The server's answer for one batch, in the form that it takes.

        Raises: RejectedError, TransientModelError.
        """
        form = self.form
        while True:
            texts = list(batch) if form.sends_list or len(batch) > 1 else batch[0]
            request: dict[str, Any] = {"model": self.role.of.model, "input": texts}
            if form.sends_format:
                request["encoding_format"] = "float"
            if form.sends_dimensions:
                request["dimensions"] = self.dimensions
            try:
                body = self._client.post(EMBEDDINGS, request, timeout_seconds=time_left())
                answer = read_embeddings(body, len(batch))
            except RejectedError as error:
                weaker = form.weaker(error.rejection)
                if weaker is None and is_probe:
                    weaker = form.plainer() if error.rejection.status in _ABOUT_THE_INPUT else None
                if weaker is None:
                    raise
                form = weaker
            else:
                self.form = form
                return answer

    def note_size(self, texts: Sequence[str], rejection: Rejection) -> None:
        """Ask for no more at once from now on than worked after a refusal."""
        form = self.form
        if is_too_long(rejection) and not _TOO_MANY.search(rejection.subject):
            form = replace(form, max_characters=min(form.max_characters, sum(map(len, texts))))
        else:
            form = replace(form, max_texts=min(form.max_texts, len(texts)))
        self.form = form
        logger.info(
            "embedding requests are made smaller",
            extra={"model": self.model, "texts": form.max_texts, "characters": form.max_characters},
        )


class _EmbeddingCall:
    def __init__(
        self, embedder: OpenAIEmbedder, timeout_seconds: float | None, *, is_probe: bool = False
    ) -> None:
        self._embedder = embedder
        self._is_probe = is_probe
        self._ends_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self.answered = 0
        self._refused_alone = 0
        self.tokens = 0

    def embed_all(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """A vector for each text, in requests as large as the server is known to take."""
        vectors: list[tuple[float, ...]] = []
        while left := texts[len(vectors) :]:
            form = self._embedder.form
            vectors += self.embed(first_batch(left, form.max_texts, form.max_characters))
        return vectors

    def embed(self, batch: Sequence[str]) -> list[tuple[float, ...]]:
        """A vector for each text; empty for a text refused by itself."""
        try:
            with after_answers(some=self.answered > 0):
                vectors, usage = self._embedder.request(batch, self._time_left, is_probe=self._is_probe)
        except RejectedError as error:
            return self._after_refusal(batch, error.rejection)
        except MiscountedError:
            if len(batch) > 1:
                return self._embed_halves(batch, Rejection(HTTPStatus.OK))
            if self._is_probe:
                raise TransientModelError(
                    "The model server did not return one embedding for each text."
                ) from None
            self.probe()
            self._refused_alone += 1
            return [NONE]
        self.answered += 1
        self.tokens += usage.prompt_tokens if usage else sum(map(len, batch)) // 4
        # A server that gives others as many numbers as they need gives a wrong vector for a text of its own.
        is_odd = any(len(vector) == self._embedder.dimensions for vector in vectors)
        return [self._vector(vector, is_odd=is_odd) for vector in vectors]

    def probe(self) -> None:
        """Embed one word within the time that is left, but no longer than a probe may take."""
        left = self._time_left()
        seconds = PROBE_SECONDS if left is None else min(left, PROBE_SECONDS)
        if not any(_EmbeddingCall(self._embedder, seconds, is_probe=True).embed([PROBE_TEXT])):
            raise not_of_form()

    def _after_refusal(self, batch: Sequence[str], rejection: Rejection) -> list[tuple[float, ...]]:
        role = self._embedder.role
        problem = judge(rejection, role)
        is_absent = rejection.status == 404 and "model" not in rejection.subject.lower()
        if is_absent or _NO_EMBEDDINGS.search(rejection.subject):
            problem = ProviderSetupError(
                f"The model server answered {rejection.status}: it has no embeddings at this address; set"
                f" STRANDLINE_EMBEDDING_BACKEND=local, or check {role.place('base_url')}."
            )
        if not self._is_probe:
            problem = confirmed(problem, judge(rejection.certain, role), self.probe)
        if not isinstance(problem, PermanentModelError):
            raise problem
        if len(batch) > 1:
            return self._embed_halves(batch, rejection)
        if self._is_probe:
            raise refuses_everything(rejection, role)
        form = self._embedder.form
        if not self.answered:
            self.probe()
        if form != self._embedder.form:  # found by the probe
            return self.embed(batch)
        self._refused_alone += 1
        (text,) = batch
        return [NONE] if len(text) <= _SHORTEST else self.embed([text[: len(text) // 2]])

    def _embed_halves(self, batch: Sequence[str], rejection: Rejection) -> list[tuple[float, ...]]:
        middle, refused_alone = len(batch) // 2, self._refused_alone
        vectors = self.embed_all(batch[:middle]) + self.embed_all(batch[middle:])
        if self._refused_alone == refused_alone:  # else that text explains the refusal
            self._embedder.note_size(batch[:middle], rejection)
        return vectors

    def _time_left(self) -> float | None:
        if self._ends_at is None:
            return None
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TransientModelError("The embedding took longer than its time limit.")
        return left

    def _vector(self, vector: Sequence[float], *, is_odd: bool) -> tuple[float, ...]:
        if vector and len(vector) != self._embedder.dimensions:
            if is_odd:
                return NONE
            # Wrong for every text alike, so an outage until the setting is right, and no text's fault.
            in_base64 = isinstance(vector, tuple) and (
                ", if its base64 is of float32; have the server send that, or lists of numbers. Otherwise"
            )
            raise ProviderSetupError(
                f"The model {self._embedder.model} returns {len(vector)} dimensions, but"
                f" {self._embedder.dimensions} are configured{in_base64 or ';'} set"
                f" STRANDLINE_EMBEDDING_DIMENSIONS={len(vector)}, or choose another"
                f" {self._embedder.role.place('model')}."
            )
        try:
            return unit_length(vector) if vector else NONE
        except ValueError:
            return NONE


def embedder_from(
    settings: Settings, purpose: EmbeddingPurpose = "embedding", *, is_quoted: bool = False
) -> OpenAIEmbedder:
    """The configured embedder of messages or of queries, with its own client; ``is_quoted`` as for ``Role``.

    Raises: as ``ModelClient``.
    """
    role = replace(settings.embedding_role(purpose), is_quoted=is_quoted)
    client = ModelClient(
        role,
        connect_timeout_seconds=settings.connect_timeout_seconds,
        max_answer_bytes=MAX_EMBEDDINGS_BYTES,
    )
    return OpenAIEmbedder(client, role, settings.embedding_model, settings.embedding_dimensions)
