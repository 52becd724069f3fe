"""The three answers a model may give: their JSON schemas, and how a stored answer is read.

The same rules serve twice: a client checks an answer before handing it over, and a stage parses the
stored text when it applies it.  Form is checked strictly, since it can be repaired; content is bounded
leniently: what is too long is cut, what points nowhere is dropped, and nothing is invented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from strandline.pipelines.models.contract import Task, TaskName
from strandline.schemas.errors import PermanentModelError

MAX_FACT_CHARACTERS = 1_000
MAX_SUMMARY_CHARACTERS = 20_000
MAX_TOPIC_CHARACTERS = 60
MAX_TOPICS = 8
MAX_NAME_CHARACTERS = 120

Operation = Literal["add", "update", "invalidate", "duplicate"]

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)

_Answer = TypeVar("_Answer", bound=BaseModel)


class FactAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str
    messages: list[int]
    topics: list[str] | None = None
    said_by: str | None = None
    about_date: str | None = None


class ExtractAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    facts: list[FactAnswer]


class OperationAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    op: Operation
    candidate: int
    fact: int | None = None
    text: str | None = None


class MergeAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    operations: list[OperationAnswer]


class SummaryAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(pattern=r"\S")]
    topics: list[str] | None = None


_MODELS: dict[TaskName, type[BaseModel]] = {
    "extract": ExtractAnswer,
    "merge": MergeAnswer,
    "summary": SummaryAnswer,
}


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """A candidate fact; ``messages`` are line numbers that exist in its task, ascending, at least one."""

    text: str
    messages: tuple[int, ...]
    topics: tuple[str, ...]
    said_by: str | None
    about_date: date | None


@dataclass(frozen=True, slots=True)
class MergeOperation:
    """What becomes of one candidate.

    Attributes:
        op: as in ``contract.MergeTask``.
        candidate: number of an existing candidate.
        fact: number of an existing known fact; None for ``add``, and for a ``duplicate`` of another
            candidate of the same task.
        text: the new wording for ``update`` and ``invalidate``; None means the candidate's own text.
    """

    op: Operation
    candidate: int
    fact: int | None
    text: str | None


@dataclass(frozen=True, slots=True)
class RolledSummary:
    """A summary that covers everything up to the last line of its task; never empty."""

    summary: str
    topics: tuple[str, ...]


def answer_schema(name: TaskName) -> dict[str, Any]:
    """The JSON schema of a task's answer, in the subset that strict structured output takes."""
    return json.loads(_schema_text(name))  # type: ignore[no-any-return]


def check_answer(task: Task, text: str) -> str:
    """Check that ``text`` holds a well-formed answer to ``task``; return it as one JSON object.

    Code fences and talk around the object are taken off, NUL and lone surrogates removed, so that the
    result can be stored as text or JSON.

    Raises:
        PermanentModelError: no such object; the sentence names the fields, never their content.
    """
    found = _object_in(text)
    _validated(_MODELS[task.name], found)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def parse_extract(text: str, line_count: int, *, max_facts: int = 30) -> tuple[ExtractedFact, ...]:
    """Read a stored extract answer; facts without text or without an existing message are dropped.

    Raises:
        PermanentModelError: the text is no extract answer.
    """
    answer = _validated(ExtractAnswer, _object_in(text))
    facts = (_fact(item, line_count) for item in answer.facts)
    return tuple(_distinct(fact for fact in facts if fact is not None))[:max_facts]


def parse_merge(text: str, known_count: int, candidate_count: int) -> tuple[MergeOperation, ...]:
    """Read a stored merge answer: for each candidate what to do, in the order of the candidates.

    Each candidate gets either one ``add``, ``update`` or ``duplicate``, or one ``invalidate`` per known
    fact that it ends.  Operations on numbers that do not exist are ignored.  A candidate that is left
    without any is added: forgetting it would lose what somebody said.

    Raises:
        PermanentModelError: the text is no merge answer.
    """
    answer = _validated(MergeAnswer, _object_in(text))
    proposed: dict[int, list[OperationAnswer]] = {n: [] for n in range(1, candidate_count + 1)}
    for item in answer.operations:
        if item.candidate in proposed and _target_exists(item, known_count):
            proposed[item.candidate].append(item)
    ended: set[int] = set()
    decided = [op for n, items in proposed.items() for op in _decide(n, items, ended)]
    return tuple(_without_rootless(decided))


def parse_summary(text: str, *, max_characters: int = MAX_SUMMARY_CHARACTERS) -> RolledSummary:
    """Read a stored summary answer, cut at ``max_characters``.

    Raises:
        PermanentModelError: the text is no summary answer, or the summary is empty.
    """
    answer = _validated(SummaryAnswer, _object_in(text))
    return RolledSummary(_cut(answer.summary, max_characters), _topics(answer.topics))


def storable(text: str) -> str:
    """``text`` without what Postgres cannot store and UTF-8 cannot encode: NUL and lone surrogates."""
    return _UNSTORABLE.sub("", text)


def _fact(item: FactAnswer, line_count: int) -> ExtractedFact | None:
    text = _cut(item.text, MAX_FACT_CHARACTERS)
    messages = tuple(sorted({n for n in item.messages if 1 <= n <= line_count}))
    if not text or not messages:
        return None
    said_by = _cut(item.said_by, MAX_NAME_CHARACTERS) if item.said_by else None
    return ExtractedFact(text, messages, _topics(item.topics), said_by or None, _day(item.about_date))


def _distinct(facts: Iterable[ExtractedFact]) -> Iterator[ExtractedFact]:
    seen: set[str] = set()
    for fact in facts:
        if fact.text not in seen:
            seen.add(fact.text)
            yield fact


def _target_exists(item: OperationAnswer, known_count: int) -> bool:
    if item.op == "add":
        return True
    if item.fact is None:
        return item.op == "duplicate"
    return 1 <= item.fact <= known_count


def _decide(candidate: int, items: Sequence[OperationAnswer], ended: set[int]) -> list[MergeOperation]:
    """The operations for one candidate; what earlier candidates ``ended`` is no target any more."""
    live = [item for item in items if item.fact is None or item.fact not in ended]
    endings: dict[int, OperationAnswer] = {}
    for item in live:
        if item.op == "invalidate" and item.fact is not None:
            endings.setdefault(item.fact, item)
    if endings:
        ended.update(endings)
        return [MergeOperation("invalidate", candidate, n, _wording(item)) for n, item in endings.items()]
    for op in ("update", "duplicate"):
        for item in live:
            if item.op == op:
                return [MergeOperation(item.op, candidate, item.fact, _wording(item))]
    return [MergeOperation("add", candidate, None, None)]


def _wording(item: OperationAnswer) -> str | None:
    if item.op == "duplicate" or item.text is None:
        return None
    return _cut(item.text, MAX_FACT_CHARACTERS) or None


def _without_rootless(decided: Sequence[MergeOperation]) -> Iterator[MergeOperation]:
    """Candidates that are only duplicates of each other would all vanish: those are added instead."""
    rooted = any(op.op != "duplicate" or op.fact is not None for op in decided)
    for op in decided:
        if not rooted:
            rooted = True
            yield MergeOperation("add", op.candidate, None, None)
        else:
            yield op


def _topics(topics: Sequence[str] | None) -> tuple[str, ...]:
    cleaned = (_cut(topic, MAX_TOPIC_CHARACTERS).casefold() for topic in topics or ())
    return tuple(dict.fromkeys(topic for topic in cleaned if topic))[:MAX_TOPICS]


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat((text or "")[:10])
    except ValueError:
        return None


def _cut(text: str, limit: int) -> str:
    text = storable(text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _validated(model: type[_Answer], found: dict[str, Any]) -> _Answer:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)[:5]
        listed = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'answer'}: {item['msg']}" for item in problems
        )
        raise PermanentModelError(f"The answer does not have the form asked for: {listed}.") from None


def _object_in(text: str) -> dict[str, Any]:
    """The JSON object in ``text``: all of it, or within a code fence, or between its outermost braces."""
    inner = text[text.find("{") : text.rfind("}") + 1]
    for piece in (text, *_FENCED.findall(text), inner):
        try:
            found = json.loads(piece, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return {storable(key): _storable_within(value) for key, value in found.items()}
    raise PermanentModelError("The answer is not one complete JSON object.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _storable_within(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable_within(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable_within(item) for key, item in value.items()}
    return value


@cache
def _schema_text(name: TaskName) -> str:
    schema = _MODELS[name].model_json_schema()
    return json.dumps(_strict(schema, schema.get("$defs", {})))


def _strict(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Keep only what every server's strict mode knows; references are written out, all fields required."""
    if "$ref" in node:
        return _strict(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        return {"anyOf": [_strict(option, definitions) for option in node["anyOf"]]}
    kept: dict[str, Any] = {key: node[key] for key in ("type", "enum") if key in node}
    if "items" in node:
        kept["items"] = _strict(node["items"], definitions)
    if "properties" in node:
        kept["properties"] = {key: _strict(item, definitions) for key, item in node["properties"].items()}
        kept["required"] = list(node["properties"])
        kept["additionalProperties"] = False
    return kept
