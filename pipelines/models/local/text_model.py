"""Stand-ins for a text model that need no key: they select sentences, they write none.

Deterministic and in-process; the model's name, ``local-extractive``, is in the provenance of everything
derived with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, assert_never

from strandline.pipelines.models.contract import (
    ChooseTask,
    CondenseTask,
    ExtractTask,
    InstructTask,
    MergeTask,
    ModelAnswer,
    NumberedFact,
    SummaryTask,
    Task,
)
from strandline.pipelines.models.local.extractive import pick_facts, roll_summary, words
from strandline.schemas.errors import PermanentModelError

MODEL = "local-extractive"
EMBEDDER = "wordllama-l2-supercat-256"
EMBEDDER_DIMENSIONS = 256
MULTILINGUAL_EMBEDDER = "use-multilingual-3"
MULTILINGUAL_DIMENSIONS = 512
LOCAL_EMBEDDERS: Mapping[str, tuple[str, int]] = {
    "local": (EMBEDDER, EMBEDDER_DIMENSIONS),
    "local-multilingual": (MULTILINGUAL_EMBEDDER, MULTILINGUAL_DIMENSIONS),
}
"""By backend: the model, and the dimensions of its vectors."""
RULES_VERSION = 3
"""Part of the prompt hash: raise it when the rules change the selection."""

DUPLICATE_FROM = 0.8

_NEGATIONS = frozenset({"not", "no", "never", "nobody", "nothing", "none", "cannot", "没", "不"})


def is_local_embedder(model: str) -> bool:
    """Whether vectors of this model are made in-process, by this release or by another; else a server's."""
    return model.startswith("wordllama")


class LocalTextModel:
    """Answers tasks by selection; safe to call from many threads, since it keeps nothing."""

    @property
    def model(self) -> str:
        return MODEL

    def wait_seconds(self) -> float:
        return 0.0

    def answer(self, task: Task) -> ModelAnswer:
        """Return an answer in the task's JSON; it costs no tokens.

        Raises:
            PermanentModelError: the task is to carry out an instruction.
        """
        text = json.dumps(_answer(task), ensure_ascii=False, separators=(",", ":"))
        rules = f"{MODEL}/{task.name}/{RULES_VERSION}"
        return ModelAnswer(text, MODEL, blake2b(rules.encode()).hexdigest()[:16], 0, 0)


def _answer(task: Task) -> dict[str, Any]:
    match task:
        case ExtractTask():
            return _extract(task)
        case MergeTask():
            return _merge(task)
        case CondenseTask():
            return _condense(task)
        case InstructTask():
            # To understand an instruction takes a model that reads.  Whoever asked for it is told.
            raise PermanentModelError(
                "The local stand-in for a model carries out no instructions."
                " Configure a model, then requeue this dead letter."
            )
        case SummaryTask():
            summary, topics = roll_summary(task)
            return {"summary": summary, "topics": topics}
        case ChooseTask():
            return {"facts": _choose(task)}
        case _:
            assert_never(task)


def _extract(task: ExtractTask) -> dict[str, Any]:
    return {
        "facts": [
            {
                "text": pick.text,
                "messages": [pick.line.number],
                "topics": list(pick.topics),
                "said_by": pick.said_by,
                "about_date": pick.about_date.isoformat() if pick.about_date else None,
            }
            for pick in pick_facts(task.lines, max_facts=task.max_facts)
        ]
    }


@dataclass(frozen=True, slots=True)
class _Likeness:
    words: frozenset[str]
    sharp: tuple[str, tuple[str, ...], bool]

    @classmethod
    def of(cls, fact: NumberedFact) -> _Likeness:
        said_by, _, rest = fact.text.rpartition(": ")
        rest_words = words(rest)
        numbers = tuple(sorted(word for word in rest_words if any(map(str.isdigit, word))))
        negated = any(word in _NEGATIONS or word.endswith("n't") for word in rest_words)
        return cls(frozenset(rest_words), (said_by.casefold(), numbers, negated))

    def says_the_same_as(self, other: _Likeness) -> bool:
        if self.sharp != other.sharp:
            return False
        either = len(self.words | other.words)
        return either > 0 and len(self.words & other.words) / either >= DUPLICATE_FROM


def _merge(task: MergeTask) -> dict[str, Any]:
    known = [(fact.number, _Likeness.of(fact)) for fact in task.known]
    added: list[_Likeness] = []
    operations = []
    for candidate in task.candidates:
        likeness = _Likeness.of(candidate)
        operation = _operation(likeness, known, added)
        if operation["op"] == "add":
            added.append(likeness)
        operations.append({**operation, "candidate": candidate.number, "text": None})
    return {"operations": operations}


def _operation(
    candidate: _Likeness, known: Sequence[tuple[int, _Likeness]], added: Sequence[_Likeness]
) -> dict[str, Any]:
    for number, fact in known:
        if candidate.says_the_same_as(fact):
            return {"op": "duplicate", "fact": number}
    if any(candidate.says_the_same_as(earlier) for earlier in added):
        return {"op": "duplicate", "fact": None}
    return {"op": "add", "fact": None}


def _condense(task: CondenseTask) -> dict[str, Any]:
    groups: list[tuple[_Likeness, list[NumberedFact]]] = []
    for fact in task.facts:
        likeness = _Likeness.of(fact)
        like = next((group for first, group in groups if likeness.says_the_same_as(first)), None)
        if like is None:
            groups.append((likeness, [fact]))
        else:
            like.append(fact)
    merged = [
        {
            "text": max(group, key=lambda fact: len(fact.text)).text,
            "merged": [fact.number for fact in group],
            "topics": [],
        }
        for _first, group in groups
        if len(group) > 1
    ]
    return {"facts": merged, "kept": [group[0].number for _first, group in groups if len(group) == 1]}


def _choose(task: ChooseTask) -> list[int]:
    sought = set(words(task.question))
    shared = {fact.number: len(sought & set(words(fact.text))) for fact in task.facts}
    ranked = sorted((number for number, count in shared.items() if count), key=lambda n: (-shared[n], -n))
    return ranked[: task.max_facts]
