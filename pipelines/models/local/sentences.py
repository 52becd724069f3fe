"""Cuts chat text into sentences and words, in Latin and in Chinese, Japanese or Korean script."""

from __future__ import annotations

import re

from strandline.schemas.values.normal_form import folded

_SENTENCE = re.compile(
    r"[^.!?。！？\n]*(?:[.!?](?!\s|$|[\"')])[^.!?。！？\n]*)*(?:[.!?。！？]+[\"')」”]*|\n|$)"
)
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|prof|vs|e\.g|i\.e|etc)\.$", re.IGNORECASE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['\u2019][^\W_]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, trimmed, with their end marks; none of them empty."""
    sentences: list[list[str]] = []
    for match in _SENTENCE.finditer(text):
        piece = " ".join(match.group().split())
        if not piece:
            continue
        if sentences and _ABBREVIATION.search(sentences[-1][-1]):
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
    return [" ".join(pieces) for pieces in sentences]


def words(text: str) -> list[str]:
    """Case-folded words; each Chinese, Japanese or Korean character counts as one."""
    return _WORD.findall(folded(text).replace("\u2019", "'"))


def is_wide(text: str) -> bool:
    """True where ``text`` has Chinese, Japanese or Korean characters."""
    return _WIDE.search(text) is not None


def estimated_tokens(text: str) -> int:
    """About as many tokens as a model counts: one per wide character, one per four others."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4
