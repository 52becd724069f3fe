"""Models and embedders of an application's own: objects that the entry points of installed packages name.

They get the same tasks, prompts and checks as a server's, and their names are recorded in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar, cast

from strandline.pipelines.models.answers import by_numbers_of, check_answer, items_of
from strandline.pipelines.models.contract import EmbeddingAnswer, ModelAnswer, Task, TaskName
from strandline.pipelines.models.embedding_batches import unit_length
from strandline.pipelines.models.prompts.render import render
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import (
    ConfigurationError,
    ModelError,
    PermanentModelError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.tracing import call_span

ENTRY_POINT_GROUP = "strandline.models"
# As much as a server's response may have.
MAX_ANSWER_CHARACTERS = 8_000_000
MAX_DIMENSIONS = 3_900

R = TypeVar("R")


class OwnTextModel(Protocol):
    """The target of a text model's entry point: a class without arguments, or an object.

    It may raise any of Strandline's model errors; other errors count as transient.
    """

    def complete(self, instructions: str, data: str, *, timeout_seconds: float) -> str:
        """Answer ``data`` as ``instructions`` say, with one JSON object; called from many threads at once."""
        ...


class OwnEmbedder(Protocol):
    """The target of an embedder's entry point: a class without arguments, or an object."""

    @property
    def dimensions(self) -> int:
        """Length of each vector, up to 3,900."""
        ...

    def embed(
        self, texts: Sequence[str], *, timeout_seconds: float | None = None
    ) -> Sequence[Sequence[float]]:
        """A vector for each text, in order; called from many threads at once."""
        ...


class InstalledTextModel:
    """An application's text model, with Strandline's prompts and checks."""

    def __init__(
        self, name: str, code: OwnTextModel, timeout_seconds: float, prompts: Mapping[TaskName, str] | None
    ) -> None:
        self.model = name
        self._code = code
        self._timeout_seconds = timeout_seconds
        self._prompts = dict(prompts or {})

    def wait_seconds(self) -> float:
        return 0.0

    def answer(self, task: Task) -> ModelAnswer:
        """Return a checked answer, as one JSON object.

        Raises:
            TransientModelError: the application's code failed.
            PermanentModelError: its answer cannot be used.
        """
        prompt = render(task, self._prompts)
        try:
            with call_span("chat", self.model, "installed"):
                text: object = self._code.complete(
                    prompt.instructions, prompt.data, timeout_seconds=self._timeout_seconds
                )
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # the edge to foreign code: an application's model
            raise _failure(self.model, error) from error
        if not isinstance(text, str) or len(text) > MAX_ANSWER_CHARACTERS:
            raise UnusableAnswerError(
                f"The model {self.model!r} returned {type(text).__name__}; it has to return text of at most"
                f" {MAX_ANSWER_CHARACTERS:,} characters."
            )
        checked = by_numbers_of(task, len(items_of(task)), check_answer(task, text))
        return ModelAnswer(checked, self.model, prompt.hash, 0, 0)


class InstalledEmbedder:
    """An application's embedder; its vectors are brought to length 1."""

    def __init__(self, name: str, code: OwnEmbedder, dimensions: int) -> None:
        self.model = name
        self.dimensions = dimensions
        self._code = code

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order.

        Raises:
            TransientModelError: the application's code failed.
            PermanentModelError: it did not return one vector of numbers for each text.
        """
        try:
            with call_span("embeddings", self.model, "installed"):
                vectors = [
                    tuple(float(number) for number in vector)
                    for vector in self._code.embed(list(texts), timeout_seconds=timeout_seconds)
                ]
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # the edge to foreign code: an application's embedder
            raise _failure(self.model, error) from error
        is_whole = len(vectors) == len(texts) and all(len(vector) == self.dimensions for vector in vectors)
        if not is_whole or not all(0 < math.hypot(*vector) < math.inf for vector in vectors):
            raise PermanentModelError(
                f"The embedder {self.model!r} did not return {len(texts)} vectors of {self.dimensions}"
                " numbers that are finite and not all 0."
            )
        return EmbeddingAnswer(tuple(map(unit_length, vectors)), self.model, 0)


def load_text_model(
    name: str, timeout_seconds: float, prompts: Mapping[TaskName, str] | None = None
) -> InstalledTextModel:
    """The text model of this name.

    Raises:
        ConfigurationError: no installed package names one, or it names no text model.
    """
    code = _load(name, "complete")
    return InstalledTextModel(name, cast("OwnTextModel", code), timeout_seconds, prompts)


def load_embedder(name: str) -> InstalledEmbedder:
    """The embedder of this name; raises as ``load_text_model``."""
    code = _load(name, "embed")
    dimensions: object = getattr(code, "dimensions", None)
    is_number = isinstance(dimensions, int) and not isinstance(dimensions, bool)
    if not is_number or not 1 <= cast("int", dimensions) <= MAX_DIMENSIONS:
        raise ConfigurationError(
            f"The embedder {quote(name)} has dimensions {quote(dimensions)}; it has to be a whole number from"
            f" 1 to {MAX_DIMENSIONS:,}."
        )
    return InstalledEmbedder(name, cast("OwnEmbedder", code), cast("int", dimensions))


def _load(name: str, method: str) -> Any:
    points = {point.value: point for point in entry_points(group=ENTRY_POINT_GROUP, name=name)}
    if len(points) != 1:
        problem = "No installed package has" if not points else "Several installed packages have"
        raise ConfigurationError(
            f"{problem} an entry point {quote(name)} in the group {ENTRY_POINT_GROUP}, as the backend"
            " 'installed' needs. Install one package that has it, here and wherever workers run."
        )
    (place,) = points
    try:
        code = points[place].load()
        code = code() if isinstance(code, type) else code
    except Exception as error:
        raise ConfigurationError(
            f"The model {quote(name)} ({place}) cannot be loaded: {type(error).__name__}."
        ) from error
    if not callable(getattr(code, method, None)):
        raise ConfigurationError(f"The model {quote(name)} ({place}) has no method {method}().")
    return code


def _failure(name: str, error: Exception) -> TransientModelError:
    """Without the message, which may quote anything."""
    return TransientModelError(f"The model {name!r} failed with {type(error).__name__}.")
