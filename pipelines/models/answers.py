"""Reads a stored answer: the result of each task's answer, within bounds.

The same rules serve twice: a client checks an answer before handing it over, and a stage parses the
stored text when it applies it.  Content is bounded leniently: texts that are too long are cut, references
that lead nowhere and placeholders are dropped, and nothing is invented.  If a mistake would lose facts, a
better answer is asked for.  Each function that reads a stored answer raises UnusableAnswerError if it has
another form.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from strandline.pipelines.engine.stage import RawAnswer
from strandline.pipelines.models.answer_forms import (
    FORMS,
    ChooseAnswer,
    CondenseAnswer,
    ExtractAnswer,
    FactAnswer,
    InstructAnswer,
    InstructedOperation,
    MergeAnswer,
    OperationAnswer,
    OperationName,
    Reading,
    SummaryAnswer,
    is_placeholder,
    list_name,
    read_answer,
    storable,
)
from strandline.pipelines.models.contract import (
    CondenseTask,
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TextModel,
    TranscriptLine,
)
from strandline.pipelines.text.spoken_dates import as_date
from strandline.schemas.errors import UnusableAnswerError
from strandline.schemas.values.doubts import Doubt
from strandline.schemas.values.same_named import make_from

MAX_FACT_CHARACTERS = 1_000
MAX_SUMMARY_CHARACTERS = 20_000
MAX_TOPIC_CHARACTERS = 60
MAX_TOPICS = 8
MAX_NAME_CHARACTERS = 120
# A point behind these ends no sentence: one letter, a few consonants, as in "Dr" and "bzw", and some words.
_CONSONANTS = "[bcdfghj-np-tvwxzбвгджзклмнпрстфхцчшщ]"
_SHORTENED = (
    "prof sra dra srta sig dott avv ing gen rev gov sen capt inc ave abs evtl usw mevr etc ca проф ул им"
)
_POINT = "".join(
    rf"(?<!\b{form})" for form in (r"[^\W\d_]", *(_CONSONANTS * n for n in (2, 3, 4)), *_SHORTENED.split())
)
_SENTENCES = re.compile(
    rf"""(?si)\A.*(?:(?:{_POINT}\.|[!?])["')\]]*(?=\s|$)|[\u3002\uff01\uff1f\u061f\u0964])"""
)
# Most changes of one instruction.
MAX_INSTRUCTED_CHANGES = 200
# One sentence cannot say more than this many facts did, nor more than so many lines.
MAX_MERGED_FACTS = 12
# Lines, or candidates, that a cut answer leaves open are asked about in parts of so many, or fewer.
FEW_ITEMS = 10


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
    """The decision on one candidate.

    Attributes:
        op: as in ``contract.MergeTask``.
        candidate: number of an existing candidate.
        fact: number of an existing known fact; None for ``add``, and for a ``duplicate`` of another
            candidate of the same task.
        text: the new wording for ``update`` and ``invalidate``; None means the candidate's own text.
        doubt: the decision in whose place this ``add`` stands.
    """

    op: OperationName
    candidate: int
    fact: int | None
    text: str | None
    doubt: Doubt | None = None


@dataclass(frozen=True, slots=True)
class CondensedFact:
    """One sentence for several facts: ``facts`` are at least two numbers that exist in its task."""

    text: str
    facts: tuple[int, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstructedChange:
    """One change that an instruction asks for: ``fact`` is an existing number, None for ``add``."""

    op: InstructedOperation
    fact: int | None
    text: str | None


@dataclass(frozen=True, slots=True)
class RolledSummary:
    """A summary that covers everything up to the last line of its task; empty if the model says nothing."""

    summary: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer in the form that is stored: one JSON object without NUL and lone surrogates.

    ``shortcoming`` says why a better one should be asked for; the answer can be used if none comes.
    ``weight`` tells which of two says more: the facts or decisions that can be used, else the characters.
    ``covered``: places, from 1, of the lines that the facts of a cut answer are about, or of the candidates
    that it decides on, if the others are to be asked about by themselves; None: all are answered.
    ``is_enough``: they are many enough to do without a better answer.
    """

    text: str
    shortcoming: str = ""
    weight: int = 0
    covered: frozenset[int] | None = None
    is_enough: bool = True


def check_answer(task: Task, text: str) -> CheckedAnswer:
    """Read a model's answer to ``task``, mended where its meaning is certain.

    Raises:
        UnusableAnswerError: the sentence names the fields, never their content.
    """
    reading = _read(task, text)
    answer = reading.answer
    if isinstance(task, CondenseTask):
        _read_condensed(answer, len(task.facts))
    shortcoming = "The answer stops in the middle; answer again, and more briefly." if reading.is_cut else ""
    if isinstance(answer, SummaryAnswer) and is_placeholder(answer.summary):
        shortcoming = "The summary says nothing."
    if isinstance(task, ExtractTask) and task.lines:
        if not task.context and _counts_from_zero(answer, len(task.lines)):
            answer = _counted_from_one(answer)
            shortcoming = shortcoming or "The lines are numbered from 1, and the answer names a line 0."
        if not shortcoming and _lacks_sources(answer, len(task.lines)):
            shortcoming = "No fact names the numbers of the lines that it is from."
    stored = _as_stored(answer.model_dump(exclude_unset=True))
    weight, covered = len(stored), None
    if isinstance(task, ExtractTask):
        facts = [fact for item in answer.facts if (fact := _fact(item, len(task.lines)))]
        weight = len(facts)
        covered = {n for fact in facts if len(fact.messages) <= MAX_MERGED_FACTS for n in fact.messages}
    elif isinstance(task, MergeTask):
        covered = _decided_places(task, answer, is_cut=reading.is_cut)
        weight = len(covered)
    count = len(items_of(task))
    # A few are asked about once more if less than half of them are answered.
    is_enough = covered is not None and (count > FEW_ITEMS or 2 * len(covered) >= count)
    answered = frozenset(covered) if covered is not None and reading.is_cut else None
    return CheckedAnswer(stored, shortcoming, weight, answered if answered or is_enough else None, is_enough)


def items_of(task: Task) -> Sequence[TranscriptLine | NumberedFact]:
    """The lines or candidates of a task, some of which another answer may be about."""
    if isinstance(task, ExtractTask):
        return task.lines
    return task.candidates if isinstance(task, MergeTask) else ()


def _decided_places(task: MergeTask, answer: MergeAnswer, *, is_cut: bool) -> set[int]:
    """Places of the candidates that an answer decides on."""
    places = {candidate.number: place for place, candidate in enumerate(task.candidates, 1)}
    operations = [item for item in answer.operations if _target_exists(item, len(task.known))]
    decided = {places[item.candidate] for item in operations if item.candidate in places}
    # The facts that the last one ends may not all be there.
    if is_cut and operations and operations[-1].op == "invalidate" and len(decided) > 1:
        decided.discard(places.get(operations[-1].candidate, 0))
    return decided


def _read(task: Task, text: str) -> Reading[Any]:
    """The answer; a summary that was cut in its text is read up to its last sentence."""
    try:
        return read_answer(FORMS[task.name], text)
    except UnusableAnswerError:
        if not isinstance(task, SummaryTask):
            raise
    answer = read_answer(SummaryAnswer, f'{text}"}}').answer
    whole = _SENTENCES.match(answer.summary)
    summary = whole[0] if whole else answer.summary
    return Reading(answer.model_copy(update={"summary": summary}), is_cut=True)


def with_first(task: Task, most: int) -> Task:
    """The task about the first of its lines, numbered from 1, or of its candidates."""
    if isinstance(task, MergeTask):
        return replace(task, candidates=task.candidates[:most])
    if not isinstance(task, ExtractTask):
        return task
    lines = (replace(line, number=place) for place, line in enumerate(task.lines[:most], 1))
    return replace(task, lines=tuple(lines))


def without_items(task: Task) -> CheckedAnswer:
    """The answer that leaves all open."""
    return CheckedAnswer(_as_stored({list_name(FORMS[task.name]): []}), covered=frozenset())


def by_numbers_of(task: Task, asked: int, answer: CheckedAnswer) -> str:
    """An answer about the first ``asked`` items of a task, by their numbers, with those left open."""
    numbers = [item.number for item in items_of(task)]
    shown = range(1, asked + 1)
    read = shown if answer.covered is None else answer.covered
    left = [number for place, number in enumerate(numbers, 1) if place not in read]
    if not left and (numbers == [*shown] or not isinstance(task, ExtractTask)):
        return answer.text
    stored = json.loads(answer.text)
    if isinstance(task, ExtractTask):
        stored["facts"] = [
            {**fact, "messages": [numbers[n - 1] for n in fact.get("messages") or [asked] if n in shown]}
            for fact in stored["facts"]
            if fact.get("messages") or asked == 1
        ]
    return _as_stored({**stored, "open": left})


def open_numbers(text: str) -> frozenset[int]:
    """The lines, or candidates, that a stored answer leaves open, by their numbers."""
    with suppress(ValueError):
        answer = json.loads(text)
        numbers = answer.get("open") if isinstance(answer, dict) else None
        if isinstance(numbers, list):
            return frozenset(one for one in numbers if isinstance(one, int))
    return frozenset()


def _as_stored(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _counts_from_zero(answer: ExtractAnswer, line_count: int) -> bool:
    numbers = {number for item in answer.facts for number in item.messages}
    return 0 in numbers and numbers <= set(range(line_count))


def _counted_from_one(answer: ExtractAnswer) -> ExtractAnswer:
    moved = [
        item.model_copy(update={"messages": [number + 1 for number in item.messages]})
        for item in answer.facts
    ]
    return answer.model_copy(update={"facts": moved})


def _lacks_sources(answer: ExtractAnswer, line_count: int) -> bool:
    statements = [item for item in answer.facts if not is_placeholder(item.text)]
    return bool(statements) and all(_fact(item, line_count) is None for item in statements)


def parse_extract(text: str, line_count: int, *, max_facts: int = 30) -> tuple[ExtractedFact, ...]:
    """Read a stored extract answer; facts without text or without an existing message are dropped."""
    answer = read_answer(ExtractAnswer, text).answer
    facts = (_fact(item, line_count) for item in answer.facts)
    return _distinct(fact for fact in facts if fact is not None)[:max_facts]


def parse_merge(text: str, known_count: int, candidate_count: int) -> tuple[MergeOperation, ...]:
    """Read a stored merge answer: the operations for each candidate, in the order of the candidates.

    Each candidate gets either one ``add``, ``update`` or ``duplicate``, or one ``invalidate`` per known
    fact that it ends.  Operations on numbers that do not exist are ignored.  A candidate without any
    operation is added: forgetting it would lose a user's statement.
    """
    return parse_merges([(text, known_count, range(1, candidate_count + 1))], candidate_count)


def parse_merges(
    answers: Iterable[tuple[str, int, Iterable[int]]], candidate_count: int
) -> tuple[MergeOperation, ...]:
    """As ``parse_merge`` for several answers: the text, known facts shown, and candidates asked about."""
    proposed: dict[int, list[OperationAnswer]] = {n: [] for n in range(1, candidate_count + 1)}
    for text, known_count, asked in answers:
        answered = set(asked) - open_numbers(text)
        for item in read_answer(MergeAnswer, text).answer.operations:
            if item.candidate in answered and _target_exists(item, known_count):
                proposed[item.candidate].append(item)
    ended: set[int] = set()
    decided = [op for n, items in proposed.items() for op in _decide(n, items, ended)]
    return tuple(_without_rootless(decided))


def parse_choice(text: str, fact_count: int) -> tuple[int, ...]:
    """Read a choose answer: the numbers that exist, each once, in the model's order."""
    answer = read_answer(ChooseAnswer, text).answer
    return tuple(dict.fromkeys(number for number in answer.facts if 1 <= number <= fact_count))


def parse_condense(text: str, fact_count: int) -> tuple[CondensedFact, ...]:
    """Read a stored condense answer: the sentences that each say several facts; the others are kept.

    A sentence for a single fact would only reword it, so that fact is kept as it is.

    Raises:
        UnusableAnswerError: the text is not a condense answer, a fact is neither kept nor merged or is both,
            or a sentence is too long or merges too many facts.
    """
    return _read_condensed(read_answer(CondenseAnswer, text).answer, fact_count)


def _read_condensed(answer: CondenseAnswer, fact_count: int) -> tuple[CondensedFact, ...]:
    existing = range(1, fact_count + 1)
    merged = [tuple(sorted({n for n in item.merged if n in existing})) for item in answer.facts]
    _check_accounted(set(answer.kept) & set(existing), merged, fact_count)
    condensed = []
    for item, numbers in zip(answer.facts, merged, strict=True):
        if len(numbers) > MAX_MERGED_FACTS or len(item.text) > MAX_FACT_CHARACTERS:
            raise UnusableAnswerError(
                f"A merged fact says too much: at most {MAX_MERGED_FACTS} facts, {MAX_FACT_CHARACTERS}"
                " characters."
            )
        if len(numbers) > 1 and is_placeholder(item.text):
            raise UnusableAnswerError("A merged fact says nothing.")
        if len(numbers) > 1:
            condensed.append(CondensedFact(item.text.strip(), numbers, _topics(item.topics)))
    return tuple(condensed)


def parse_instruct(text: str, fact_count: int) -> tuple[InstructedChange, ...]:
    """Read a stored answer to an instruction: at most one change of each fact, and bounded additions.

    Operations on numbers that do not exist, and wordings without text, are ignored.
    """
    answer = read_answer(InstructAnswer, text).answer
    changes: dict[object, InstructedChange] = {}
    for item in answer.operations:
        words = _said(item.text)
        is_known = item.fact is not None and 1 <= item.fact <= fact_count
        if item.op == "add" and words is not None:
            changes.setdefault(words, InstructedChange("add", None, words))
        elif is_known and item.op == "delete":
            changes.setdefault(item.fact, InstructedChange("delete", item.fact, None))
        elif is_known and item.op == "update" and words is not None:
            changes.setdefault(item.fact, InstructedChange("update", item.fact, words))
    return tuple(changes.values())[:MAX_INSTRUCTED_CHANGES]


def parse_summary(text: str, *, max_characters: int = MAX_SUMMARY_CHARACTERS) -> RolledSummary:
    """Read a stored summary answer, cut at ``max_characters``; empty if it says nothing."""
    answer = read_answer(SummaryAnswer, text).answer
    if is_placeholder(answer.summary):
        return RolledSummary("", ())
    return RolledSummary(_cut(answer.summary, max_characters), _topics(answer.topics))


def _check_accounted(kept: set[int], merged: Sequence[tuple[int, ...]], fact_count: int) -> None:
    named = Counter(kept)
    for parts in merged:
        named.update(parts)
    missing = [number for number in range(1, fact_count + 1) if not named[number]]
    twice = sorted(number for number, times in named.items() if times > 1)
    for problem, numbers in (("neither kept nor merged", missing), ("named more than once", twice)):
        if numbers:
            raise UnusableAnswerError(f"Facts are {problem}: {', '.join(map(str, numbers[:20]))}.")


def _fact(item: FactAnswer, line_count: int) -> ExtractedFact | None:
    text = _cut(item.text, MAX_FACT_CHARACTERS)
    messages = tuple(sorted({n for n in item.messages if 1 <= n <= line_count}))
    if not messages and line_count == 1 and not item.messages:
        messages = (1,)  # there is no other
    if is_placeholder(text) or not messages:
        return None
    said_by = None if is_placeholder(item.said_by or "") else _cut(item.said_by or "", MAX_NAME_CHARACTERS)
    return ExtractedFact(text, messages, _topics(item.topics), said_by, as_date(item.about_date))


def _distinct(facts: Iterable[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    by_text: dict[str, ExtractedFact] = {}
    for fact in facts:
        first = by_text.setdefault(fact.text, fact)
        messages = tuple(sorted({*first.messages, *fact.messages}))
        by_text[fact.text] = replace(first, messages=messages)
    return tuple(by_text.values())


def _target_exists(item: OperationAnswer, known_count: int) -> bool:
    if item.fact is None or item.op == "add":
        return item.op in ("add", "duplicate")
    return 1 <= item.fact <= known_count


def _decide(candidate: int, items: Sequence[OperationAnswer], ended: set[int]) -> list[MergeOperation]:
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
    return None if item.op == "duplicate" else _said(item.text)


def _said(text: str | None) -> str | None:
    return None if text is None or is_placeholder(text) else _cut(text, MAX_FACT_CHARACTERS)


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
    return tuple(dict.fromkeys(topic for topic in cleaned if not is_placeholder(topic)))[:MAX_TOPICS]


def _cut(text: str, limit: int) -> str:
    text = storable(text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def ask(model: TextModel, task: Any) -> RawAnswer:
    """Call a text model and keep its raw answer in the form that is stored."""
    answer = model.answer(task)
    return make_from(RawAnswer, answer, body=answer.text.encode())
