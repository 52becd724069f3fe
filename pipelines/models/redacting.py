"""Models that see redacted texts only: the last step before every model.

If a hook fails, nothing is sent.  A fact that the hook changed is not reworded by the model: its wording
would lose the redacted parts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from strandline.pipelines.models.contract import (
    CondenseTask,
    Embedder,
    EmbeddingAnswer,
    InstructTask,
    MergeTask,
    ModelAnswer,
    NumberedFact,
    Task,
    TextModel,
    TranscriptLine,
)
from strandline.pipelines.redaction.hook import Redaction, RedactionWaitsError
from strandline.schemas.errors import PermanentModelError, RedactionError, RefusalError, UnredactedError

Visit = Callable[[str], str]
T = TypeVar("T", bound=Task | TranscriptLine | NumberedFact)
_SAID = frozenset({"text", "previous", "instruction", "question"})
_LISTED = frozenset({"lines", "context", "known", "candidates", "facts"})


class RedactingTextModel:
    """A text model whose tasks a hook goes through first."""

    def __init__(self, model: TextModel, redaction: Redaction) -> None:
        self._model = model
        self._redaction = redaction
        self.model = model.model
        self.wait_seconds = model.wait_seconds

    def answer(self, task: Task) -> ModelAnswer:
        """As the model's own.

        Raises:
            UnredactedError: the hook failed, or was late; nothing was sent.
            PermanentModelError: the hook refuses a text; nothing was sent.
        """
        texts: list[str] = []

        def note(text: str) -> str:
            texts.append(text)
            return text

        _visit(task, note)
        results = _redact(self._redaction, texts)
        if results == texts:
            return self._model.answer(task)
        left = iter(results)
        shown = _visit(task, lambda _text: next(left))
        answer = self._model.answer(shown)
        return replace(answer, text=_spare(task, shown, answer.text))


class RedactingEmbedder:
    """An embedder whose texts a hook goes through first."""

    def __init__(self, embedder: Embedder, redaction: Redaction) -> None:
        self._embedder = embedder
        self._redaction = redaction
        self.model, self.dimensions = embedder.model, embedder.dimensions
        self.wait_seconds = embedder.wait_seconds

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """As the embedder's own, with the hook's time within ``timeout_seconds``.

        Raises: as ``RedactingTextModel.answer``.
        """
        began = time.monotonic()
        shown = _redact(self._redaction, texts, timeout_seconds)
        if timeout_seconds is not None:
            timeout_seconds -= time.monotonic() - began
            if timeout_seconds <= 0:
                raise UnredactedError("The redaction hook left no time to embed the text.")
        return self._embedder.embed(shown, timeout_seconds=timeout_seconds)


def _redact(redaction: Redaction, texts: Sequence[str], seconds: float | None = None) -> list[str]:
    try:
        return redaction.texts(texts, seconds=seconds)
    except RefusalError as error:
        raise PermanentModelError(f"A redaction hook refused the request's text: {error}") from error
    except RedactionError as error:
        unredacted = UnredactedError(str(error))
        unredacted.counts = not isinstance(error, RedactionWaitsError)
        raise unredacted from error


def _visit(task: T, visit: Visit) -> T:
    """The task with each text in it that people wrote, or a model after them, as ``visit`` gives it."""
    changed: dict[str, Any] = {}
    text_fields = _SAID | {"name"} if isinstance(task, TranscriptLine) else _SAID
    for field in fields(task):
        content = getattr(task, field.name)
        if field.name in text_fields and content is not None:
            changed[field.name] = visit(content)
        elif field.name in _LISTED:
            changed[field.name] = tuple(_visit(item, visit) for item in content)
    return replace(task, **changed)


def _spare(task: Task, shown: Task, text: str) -> str:
    """The answer without new wordings of facts that the model saw redacted."""
    answer = json.loads(text)
    if isinstance(task, MergeTask) and isinstance(shown, MergeTask):
        known = _numbers_changed(task.known, shown.known)
        candidates = _numbers_changed(task.candidates, shown.candidates)
        answer["operations"] = [_merged_apart(item, known, candidates) for item in answer["operations"]]
    elif isinstance(task, CondenseTask) and isinstance(shown, CondenseTask):
        answer = _kept_apart(answer, _numbers_changed(task.facts, shown.facts))
    elif isinstance(task, InstructTask) and isinstance(shown, InstructTask):
        facts = _numbers_changed(task.facts, shown.facts)
        answer["operations"] = [_added_apart(item, facts) for item in answer["operations"]]
    else:
        return text
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _numbers_changed(facts: Iterable[NumberedFact], shown: Iterable[NumberedFact]) -> frozenset[int]:
    return frozenset(fact.number for fact, seen in zip(facts, shown, strict=True) if fact.text != seen.text)


def _added_apart(item: dict[str, Any], facts: frozenset[int]) -> dict[str, Any]:
    """An update of such a fact adds its words separately."""
    return (
        {**item, "op": "add", "fact": None} if item["op"] == "update" and item.get("fact") in facts else item
    )


def _merged_apart(item: dict[str, Any], known: frozenset[int], candidates: frozenset[int]) -> dict[str, Any]:
    """As above, in the candidate's own words; and such a candidate keeps its words."""
    added = _added_apart({"fact": None, **item}, known)
    is_own = added["op"] != item["op"] or item["candidate"] in candidates
    return {**item, **added, "text": None} if is_own else item


def _kept_apart(answer: dict[str, Any], changed: frozenset[int]) -> dict[str, Any]:
    merged = [item for item in answer["facts"] if not changed.intersection(item["merged"])]
    apart = [number for item in answer["facts"] if item not in merged for number in item["merged"]]
    return {**answer, "facts": merged, "kept": sorted({*answer["kept"], *apart})}
