"""The language of a short text, by its script and its commonest words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from strandline.pipelines.text.common_words import marks_of_languages
from strandline.schemas.values.normal_form import folded

_SCRIPTS = (
    ("japanese", re.compile("[\u3041-\u30fa]")),
    ("korean", re.compile("[\u1100-\u11ff\uac00-\ud7a3]")),
    ("chinese", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("cyrillic", re.compile("[\u0400-\u052f]")),
    ("greek", re.compile("[\u0370-\u03ff]")),
    ("arabic", re.compile("[\u0620-\u06ff]")),
    ("hebrew", re.compile("[\u05d0-\u05ea]")),
    ("hindi", re.compile("[\u0904-\u0965]")),
    ("thai", re.compile("[\u0e01-\u0e4e]")),
    ("latin", re.compile("[a-z\u00df-\u024f\u1e00-\u1eff]")),
)
SCRIPTS_WITHOUT_CASE = frozenset({"japanese", "korean", "chinese", "arabic", "hebrew", "hindi", "thai"})
# A character of these says as much as a few letters.
_DENSE = frozenset({"japanese", "korean", "chinese"})
_ENGLISH_I = re.compile(r"(?<!\w)I(?= [a-z])")
_WORD = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str | None:
    """The language, or the script if no language of it is known; None if the text is too short to tell."""
    plain = folded(text)
    counts = Counter(
        {name: len(pattern.findall(plain)) * (3 if name in _DENSE else 1) for name, pattern in _SCRIPTS}
    )
    if counts["japanese"]:
        counts["japanese"] += counts.pop("chinese")
    script, weight = counts.most_common(1)[0]
    if script not in ("latin", "cyrillic"):
        return script if weight else None
    words = set(_WORD.findall(plain))
    is_cyrillic = script == "cyrillic"
    hits = {
        name: len(words & marks)
        for name, marks in marks_of_languages().items()
        if (name == "russian") == is_cyrillic
    }
    if not is_cyrillic and _ENGLISH_I.search(text):
        hits["english"] += 1
    (first, most), *others = sorted(hits.items(), key=lambda one: -one[1])
    if most > max((hit for _name, hit in others), default=0):
        return first
    return "cyrillic" if is_cyrillic and len(words) > 2 else None


def is_foreign(text: str, parts: Iterable[str]) -> bool:
    """Whether a text is in another language than all parts; False if that of one cannot be told."""
    language, others = language_of(text), [language_of(part) for part in parts]
    return language is not None and None not in others and language not in others
