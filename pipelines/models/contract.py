"""The contract between pipelines and models: typed tasks, and the answers to them.

A stage never sees an HTTP client or a prompt.  It hands one task to a ``TextModel`` (or texts to an
``Embedder``) and gets a ``ModelAnswer``, whose ``text`` is stored before it is parsed and applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

TaskName = Literal["extract", "merge", "condense", "instruct", "summary", "choose"]


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message as a model sees it.

    ``number`` counts from 1 within the batch; a model names messages by it, never by id.  Lines of context
    have 0 and below, so that none of them can be named as a source.
    ``text`` is the message's plain text, or a piece of it, tool calls rendered as text included.
    """

    number: int
    role: str
    name: str | None
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ExtractTask:
    """Find facts worth keeping in a piece of conversation.

    Answer: ``{"facts": [{"text": str, "messages": [int], "topics": [str], "said_by": str | null,
    "about_date": "YYYY-MM-DD" | null}]}``; ``messages`` are ``TranscriptLine.number`` values of ``lines``.
    ``context`` holds the lines just before; they explain ``lines``, and give no fact themselves.
    ``instructions`` replace the prompt's section on what to keep, ``more_instructions`` follow it; both are
    an operator's, and belong to the prompt and not to its data.
    """

    lines: tuple[TranscriptLine, ...]
    max_facts: int = 30
    context: tuple[TranscriptLine, ...] = ()
    instructions: str | None = None
    more_instructions: str | None = None
    name: TaskName = "extract"


@dataclass(frozen=True, slots=True)
class NumberedFact:
    """A fact as the merge model sees it: ``number`` is local to its list and counts from 1."""

    number: int
    text: str
    said_at: datetime


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Fold candidate facts into the known facts of one owner.

    Answer: ``{"operations": [{"op": "add" | "update" | "invalidate" | "duplicate",
    "candidate": int, "fact": int | null, "text": str | null}]}``.  ``fact`` is the number of the
    known fact that is updated (its text becomes ``text``), invalidated (it was true, and no longer
    is: the candidate replaces it) or already says the same; it is null for ``add``, and for a ``duplicate``
    of another candidate.  ``switched_off`` names operations that an operator wants none of.
    """

    known: tuple[NumberedFact, ...]
    candidates: tuple[NumberedFact, ...]
    switched_off: tuple[str, ...] = ()
    name: TaskName = "merge"


@dataclass(frozen=True, slots=True)
class CondenseTask:
    """Say known facts of one owner in fewer sentences, and lose nothing.

    Answer: ``{"facts": [{"text": str, "merged": [int], "topics": [str]}], "kept": [int]}``: each number is
    either in one ``merged`` or in ``kept``.  ``max_facts`` is a goal, not a requirement.
    """

    facts: tuple[NumberedFact, ...]
    max_facts: int
    name: TaskName = "condense"


@dataclass(frozen=True, slots=True)
class InstructTask:
    """Change the known facts of one user as that user asks for.

    Answer: ``{"operations": [{"op": "add" | "update" | "delete", "fact": int | null, "text": str | null}]}``;
    ``fact`` is a number of ``facts``, null for ``add``.
    """

    instruction: str
    facts: tuple[NumberedFact, ...]
    name: TaskName = "instruct"


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Roll a summary forward: ``previous`` (empty at the start) plus the lines since.

    Answer: ``{"summary": str, "topics": [str]}``.  ``instructions`` replace the prompt's section on how to
    write it.
    """

    previous: str
    lines: tuple[TranscriptLine, ...]
    max_tokens: int
    instructions: str | None = None
    name: TaskName = "summary"


@dataclass(frozen=True, slots=True)
class ChooseTask:
    """Choose the known facts of one owner that help with an application's question.

    Answer: ``{"facts": [int]}``, the most helpful first; at most ``max_facts`` are wanted.
    """

    question: str
    facts: tuple[NumberedFact, ...]
    max_facts: int
    name: TaskName = "choose"


Task = ExtractTask | MergeTask | CondenseTask | InstructTask | SummaryTask | ChooseTask


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A raw answer with the data needed to account for it.

    ``prompt_hash`` identifies instructions and schema (hex, 16 characters), not the input.
    Token counts are the provider's, or 0 where none were spent.
    """

    text: str
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class EmbeddingAnswer:
    """One vector per text, in order, each of the embedder's ``dimensions``, L2-normalised.

    A vector is empty for a text that its provider refuses by itself.
    """

    vectors: tuple[tuple[float, ...], ...]
    model: str
    input_tokens: int


class TextModel(Protocol):
    """Answers tasks; must be safe to call from many threads at once."""

    @property
    def model(self) -> str:
        """The model's name as recorded in provenance, such as ``gpt-4.1-mini`` or ``local-extractive``."""
        ...

    def wait_seconds(self) -> float:
        """Seconds until its provider may be asked again; 0 for a healthy one."""
        ...

    def answer(self, task: Task) -> ModelAnswer:
        """Return a raw answer whose text is JSON of the task's form.

        Raises:
            TransientModelError: trying again later may help.
            PermanentModelError: the provider refused, or output stayed unusable after one repair.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors; must be safe to call from many threads at once."""

    @property
    def model(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def wait_seconds(self) -> float:
        """As for ``TextModel``."""
        ...

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order, in batches where the provider needs it.

        ``timeout_seconds`` bounds the whole call (default: the client's own limit).

        Raises:
            TransientModelError, PermanentModelError: as for ``TextModel.answer``.
        """
        ...
