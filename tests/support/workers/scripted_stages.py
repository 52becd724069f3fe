"""Stages whose model follows a script: quick, in the process, and the same answer to the same question.

It extracts one fact from each line of a user of the form ``my boat is blue k1n2``.  It merges as models
do: it recognises repeats, makes one fact of two about a thing, ends one by another, and rewords some of
them, so that different words can become the same.  Generations of even number word all
they extract otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from strandline.pipelines.engine.stage import Stage
from strandline.pipelines.facts.extract import ExtractStage
from strandline.pipelines.facts.merge import MergeStage
from strandline.pipelines.models.contract import (
    ChooseTask,
    CondenseTask,
    EmbeddingAnswer,
    ExtractTask,
    InstructTask,
    MergeTask,
    ModelAnswer,
    NumberedFact,
    SummaryTask,
    Task,
)
from strandline.pipelines.summary import SummaryStage
from strandline.pipelines.vectors.stage import VectorsStage
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, STAGES, SUMMARY_STAGE, VECTORS_STAGE

MAX_FACTS = 8
MAX_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """A text model that answers by a script; ``prefix`` is what its facts begin with."""

    prefix: str = ""

    @property
    def model(self) -> str:
        return "scripted"

    def wait_seconds(self) -> float:
        return 0.0

    def answer(self, task: Task) -> ModelAnswer:
        """The answer in the task's form."""
        return ModelAnswer(json.dumps(self._answer(task)), self.model, task.name, 0, 0)

    def _answer(self, task: Task) -> dict[str, Any]:
        match task:
            case ExtractTask():
                return {"facts": [self._found(line.number, line.text) for line in _lines_with_facts(task)]}
            case MergeTask():
                return {"operations": list(_operations(task))}
            case CondenseTask():
                return _condensed(task)
            case InstructTask():
                return {"operations": []}
            case SummaryTask():
                return {"summary": f"{len(task.lines)} lines since {len(task.previous)} characters"}
            case ChooseTask():
                return {"facts": [fact.number for fact in task.facts]}

    def _found(self, number: int, text: str) -> dict[str, Any]:
        return {"text": f"{self.prefix}{text}", "messages": [number]}


def _lines_with_facts(task: ExtractTask) -> Iterator[Any]:
    return (line for line in task.lines if line.role == "user" and " is " in line.text)


def _operations(task: MergeTask) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for candidate in task.candidates:
        yield {"candidate": candidate.number, **_operation(candidate, task.known, seen)}
        seen.add(candidate.text)


def _operation(candidate: NumberedFact, known: Sequence[NumberedFact], seen: set[str]) -> dict[str, Any]:
    if candidate.text in seen:
        return {"op": "duplicate", "fact": None}
    for fact in known:
        if fact.text == candidate.text:
            return {"op": "duplicate", "fact": fact.number}
    about = [fact for fact in known if _thing(fact.text) == _thing(candidate.text)]
    choice = blake2b(candidate.text.encode(), digest_size=1).digest()[0] % 8
    if not about or choice < 2:
        return {"op": "add"}
    first = about[0]
    if choice < 5 and len(first.text) + len(candidate.text) < MAX_CHARACTERS:
        return {"op": "update", "fact": first.number, "text": f"{first.text}, {candidate.text}"}
    # In words that others may have used for the same.
    plain = _plain(candidate.text) if choice == 7 else None
    return {"op": "invalidate", "fact": first.number, "text": plain}


def _condensed(task: CondenseTask) -> dict[str, Any]:
    by_thing: dict[str, list[NumberedFact]] = {}
    for fact in task.facts:
        by_thing.setdefault(_thing(fact.text), []).append(fact)
    merged = [
        facts[:2]
        for facts in by_thing.values()
        if len(facts) > 1 and sum(len(fact.text) for fact in facts[:2]) < MAX_CHARACTERS
    ]
    said = {fact.number for facts in merged for fact in facts}
    return {
        "facts": [
            {"text": "; ".join(fact.text for fact in facts), "merged": [fact.number for fact in facts]}
            for facts in merged
        ],
        "kept": [fact.number for fact in task.facts if fact.number not in said],
    }


def _thing(text: str) -> str:
    """The subject of a fact: the word before its first ``is``."""
    return text.partition(" is ")[0].rpartition(" ")[2]


def _plain(text: str) -> str:
    """A fact without what makes it like no other: its tokens."""
    return " ".join(word for word in text.split() if not word.startswith(("k", "p")) or word.isalpha())


@dataclass(frozen=True, slots=True)
class ScriptedEmbedder:
    """Vectors of eight numbers, by the digest of the text."""

    @property
    def model(self) -> str:
        return "scripted"

    @property
    def dimensions(self) -> int:
        return 8

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """One vector per text."""
        return EmbeddingAnswer(tuple(map(_vector, texts)), self.model, 0)


def _vector(text: str) -> tuple[float, ...]:
    numbers = [byte - 127.5 for byte in blake2b(text.encode(), digest_size=8).digest()]
    length = sum(number * number for number in numbers) ** 0.5
    return tuple(number / length for number in numbers)


class ScriptedStages(Mapping[str, Stage[Any, Any]]):
    """The stages of every generation; those of even number word otherwise what they extract."""

    def __init__(self) -> None:
        self._made = (_stages(ScriptedModel("Noted that ")), _stages(ScriptedModel()))

    def of(self, generation_id: int, stage: str) -> Stage[Any, Any] | None:
        return self._made[generation_id % 2].get(stage)

    def unbuildable(self) -> list[int]:
        return []

    def __getitem__(self, name: str) -> Stage[Any, Any]:
        return self._made[1][name]

    def __iter__(self) -> Iterator[str]:
        return iter(STAGES)

    def __len__(self) -> int:
        return len(STAGES)


def _stages(model: ScriptedModel) -> dict[str, Stage[Any, Any]]:
    return {
        EXTRACT_STAGE: ExtractStage(model),
        MERGE_STAGE: MergeStage(model, MAX_FACTS),
        SUMMARY_STAGE: SummaryStage(model, 200),
        VECTORS_STAGE: VectorsStage(ScriptedEmbedder()),
    }
