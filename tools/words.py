"""``python -m tools.words``: count the phrases of awkward prose, in documents and in strings of the code.

``--show`` prints their lines.  ``tests/project/test_words.py`` holds the totals at most at its numbers.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "schemas",
    "pipelines",
    "producers",
    "workers",
    "deploy",
    "strandline",
    "service",
    "administration",
    "operations",
)
GENERATED = ("schemas/queries", "migrations/versions")
SHORTEST_STRING = 40

_NOUNLESS = r"is|are|was|were|has|have|had|an?|the|it|they|he|no|nobody|one"
RELATIVES = re.compile(
    rf"\b(?:what|whatever|whoever|who) (?:{_NOUNLESS})\b"
    r"|\bthose that\b|\bone that\b|\b(?:anew|meanwhile|beside|by now)\b",
    re.IGNORECASE,
)
IDIOMS = re.compile(
    r"\b(?:carr(?:y|ies|ied|ying)|go|goes|went|going) on\b(?! to\b)|\bas far as\b|\b(?:no|some)body\b"
    r"|(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|other\b)[a-z]+",
    re.IGNORECASE,
)


class Found(NamedTuple):
    """A phrase, and where it stands."""

    file: str
    line: int
    phrase: str
    text: str


class Count(NamedTuple):
    """How many phrases: relatives and adverbs, and the other idioms."""

    relatives: int
    idioms: int


def documents() -> list[Path]:
    outside = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md"))
    return [*sorted((ROOT / "docs").rglob("*.md")), *outside]


def modules() -> Iterator[Path]:
    """The modules written by hand; a link's target is counted where it stands."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            linked = any(place.is_symlink() for place in (path, *path.parents))
            if not linked and not any(part in str(path) for part in GENERATED):
                yield path


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The longer strings and docstrings of a module, each with its first line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value) > SHORTEST_STRING
        ):
            yield node.lineno, node.value


def phrases(path: Path, pattern: re.Pattern[str]) -> Iterator[Found]:
    texts = strings(path) if path.suffix == ".py" else [(1, path.read_text(encoding="utf-8"))]
    for first, text in texts:
        for match in pattern.finditer(text):
            before = text.count("\n", 0, match.start())
            yield Found(
                str(path.relative_to(ROOT)), first + before, match[0], text.splitlines()[before].strip()
            )


def count(path: Path) -> Count:
    return Count(*(sum(1 for _ in phrases(path, pattern)) for pattern in (RELATIVES, IDIOMS)))


def total(counts: Mapping[Path, Count]) -> Count:
    return Count(
        sum(each.relatives for each in counts.values()), sum(each.idioms for each in counts.values())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="print the lines")
    parser.add_argument("files", nargs="*", type=Path, help="documents or modules; none: all")
    asked = parser.parse_args()
    named = [path.resolve() for path in asked.files]
    for room, paths in (("documents", documents()), ("code", list(modules()))):
        counts = {path: count(path) for path in paths if not named or path in named}
        for path in sorted(counts, key=lambda path: -sum(counts[path])):
            if any(counts[path]):
                print(f"{counts[path].relatives:5} {counts[path].idioms:4}  {path.relative_to(ROOT)}")
            for pattern in (RELATIVES, IDIOMS) if asked.show else ():
                for found in phrases(path, pattern):
                    print(f"            {found.line}: {found.phrase}: {found.text}")
        print(f"{total(counts).relatives:5} {total(counts).idioms:4}  {room}")


if __name__ == "__main__":
    main()
