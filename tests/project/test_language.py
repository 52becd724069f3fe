"""What users and operators read is plain English: the subject comes first, and it has a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("schemas", "pipelines", "producers", "workers", "deploy", "strandline")
# Words of a language, which are data.
DATA = {
    "pipelines/text/lexemes.py",
    "pipelines/models/local/extractive.py",
    "pipelines/models/local/text_model.py",
}

_VERBS = "is|was|are|were|has|had|came|comes|it|they|a|the"
_KNOWN = r"longer\b|more\b|other\b|need\b|way\b"
PHRASES = {
    "a clause as the subject": rf"(?:^|[.;:,] )(?:what|who|whoever) (?:{_VERBS}) (?!.*\?)",
    "is no X, for is not an X": rf"(?<!there )\b(?:is|are|was|were) no (?!{_KNOWN})[a-z]+",
    "somebody, where the actor has a name": r"\b(?:some|any|no|every)body\b",
    "to be had, to be told": r"\bto be (?:had|told)\b",
    "a X of its own": r"\bof (?:its|their|your|one's) own\b",
    "anew, besides, heed": r"\b(?:anew|besides|heed(?:s|ed)?)\b",
    "for ever": r"\bfor ever\b",
    "none of, those there are": r"\b(?:is none of|those there are)\b",
}


def _help_texts(tree: ast.AST) -> Iterator[ast.expr]:
    """The docstrings of click's commands and groups, which are their help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_makes_a_command(d) for d in node.decorator_list):
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value


def _makes_a_command(decorator: ast.expr) -> bool:
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(made, ast.Name):
        return made.id in {"cli_command", "offline_command"}
    return isinstance(made, ast.Attribute) and made.attr in {"command", "group"}


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a module, without its docstrings, and the help of its commands."""
    tree = ast.parse(source)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    help_texts = {id(text) for text in _help_texts(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in statements or id(node) in help_texts:
            yield node.lineno, " ".join(node.value.split())


def _awkward(text: str) -> list[str]:
    return [name for name, phrase in PHRASES.items() if re.search(phrase, text, re.IGNORECASE)]


@pytest.mark.parametrize("room", ROOMS)
def test_what_users_read_names_its_subject(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {', '.join(_awkward(text))}: {text}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents) and str(path.relative_to(ROOT)) not in DATA
        for line, text in _texts(path.read_text(encoding="utf-8"))
        if _awkward(text)
    ]
    assert not found, "\n".join(found)


def test_awkward_phrases_are_found() -> None:
    for text in (
        *("OPENAI_BASE_URL is no http(s) address", "which is not to be had here", "somebody took it"),
        *("What is flushed would never be derived.", "give each a name= of its own"),
    ):
        assert _awkward(text), text
    for text in ("There is no session 'a'", "it is no longer served", "What is your name?"):
        assert not _awkward(text), text


def test_bounds_have_one_style_of_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents)
        for name in re.findall(
            r"^(_?(?:MOST|LONGEST|LARGEST|LEAST)\w*)\b(?=[^=\n]*=)", path.read_text("utf-8"), re.M
        )
    ]
    assert not found, f"a bound is MAX_ or MIN_, what it bounds, and the unit: {found}"
