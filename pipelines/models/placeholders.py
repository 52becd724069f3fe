"""Texts that say nothing: what stands in the place of a text in a form, and what models write for nothing."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from strandline.schemas.values.normal_form import folded

# The longest that is looked at: more says something.
_MAX_CHARACTERS = 120
_WORD = re.compile(r"n/a|[^\s.,;:!?()\"]+")
_AROUND = "<>[](){}«»„“”\"'`*_.…。!?: \n\t-–—"
_JAPANESE_DENIALS = ("なし", "ない", "ません")


def is_placeholder(text: str) -> bool:
    """Whether a text says nothing: no letter and no digit, or only words of forms or for nothing."""
    if len(text) > _MAX_CHARACTERS:
        return not any(map(str.isalnum, text))
    plain = folded(text).strip(_AROUND)
    if not any(map(str.isalnum, plain)):
        return True
    forms, denying, empty, pieces, marks = _table()
    words = _WORD.findall(plain)
    if plain in forms or (denying.intersection(words) and empty.issuperset(words)):
        return True
    denies = any(mark in plain for mark in (*marks, *_JAPANESE_DENIALS))
    return denies and pieces.fullmatch(plain) is not None


@cache
def _table() -> tuple[frozenset[str], frozenset[str], frozenset[str], re.Pattern[str], str]:
    file = resources.files(__package__) / "placeholders.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    denying = frozenset(table["denying"].split())
    pieces = re.compile(rf"(?:{'|'.join(table['unspaced'])}|\s)+")
    return (
        frozenset(table["forms"]),
        denying,
        denying.union(table["empty"].split()),
        pieces,
        table["unspaced_denying"],
    )
