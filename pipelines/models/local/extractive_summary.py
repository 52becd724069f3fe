"""Rolls a summary forward by choosing sentences, without a model: a stand-in, as for facts.

A sentence weighs as much as its words are frequent in what is being summarised.  The summary is one
sentence per line, in order of time; when it grows over its bound, the lightest sentences go first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from strandline.pipelines.models.contract import SummaryTask
from strandline.pipelines.models.local.extractive_facts import attribute_sentence, score, topic_words
from strandline.pipelines.models.local.sentences import estimated_tokens, is_wide, sentences, words

LINES_PER_SENTENCE = 4
MAX_TOPICS = 6
_MAX_WORDS = 60


def roll_summary(task: SummaryTask) -> tuple[str, list[str]]:
    """The new summary, within about ``task.max_tokens``, and its most frequent words as topics."""
    kept = [line.strip() for line in task.previous.splitlines() if line.strip()]
    spoken = [
        attribute_sentence(line, text)
        for line in task.lines
        if line.role != "tool"
        for text in sentences(line.text)
    ]
    frequencies = Counter(word for sentence in kept + spoken for word in _weighty(sentence))
    rows = kept + _heaviest(spoken, frequencies, limit=max(1, -(-len(task.lines) // LINES_PER_SENTENCE)))
    summary = "\n".join(_within(list(dict.fromkeys(rows)), frequencies, task.max_tokens))
    counted = Counter(word for row in summary.splitlines() for word in _weighty(row) if not is_wide(row))
    topics = sorted(counted, key=lambda word: (-counted[word], word))[:MAX_TOPICS]
    return summary or "-", topics


def _weighty(sentence: str) -> list[str]:
    if is_wide(sentence):
        characters = words(sentence)
        return [first + second for first, second in pairwise(characters)]
    said_by, _, rest = sentence.rpartition(": ")
    names = set(words(said_by))
    return [word for word in topic_words(rest) if word not in names]


def _weight(sentence: str, frequencies: Counter[str]) -> float:
    sentence_words = set(_weighty(sentence))
    if not sentence_words or len(words(sentence)) > _MAX_WORDS:
        return 0.0
    # The root keeps long sentences from winning by length alone; what looks like a fact goes first.
    frequency = sum(frequencies[word] for word in sentence_words) / math.sqrt(len(sentence_words))
    return frequency * (0.2 + max(score(sentence.rpartition(": ")[2]), 0.0))


def _heaviest(sentences: Sequence[str], frequencies: Counter[str], *, limit: int) -> list[str]:
    order = sorted(range(len(sentences)), key=lambda index: (-_weight(sentences[index], frequencies), index))
    return [sentences[index] for index in sorted(order[:limit])]


def _within(rows: list[str], frequencies: Counter[str], max_tokens: int) -> list[str]:
    """``rows`` without the lightest, oldest first among equals; a lone one that is too long is cut."""
    sizes = {row: estimated_tokens(row) + 1 for row in rows}
    total = sum(sizes.values())
    lightest_first = sorted(rows, key=lambda row: _weight(row, frequencies))
    dropped: set[str] = set()
    for row in lightest_first[: len(rows) - 1]:
        if total <= max_tokens:
            break
        dropped.add(row)
        total -= sizes[row]
    return [_cut(row, max_tokens) for row in rows if row not in dropped]


def _cut(row: str, max_tokens: int) -> str:
    if estimated_tokens(row) <= max_tokens:
        return row
    return row[: max_tokens - 1 if is_wide(row) else 4 * max_tokens - 4].rstrip() + "…"
