"""Rules of the source that no linter covers: checked on the syntax trees, without importing anything.

Which folder may import which, and who may know Celery or openai, is checked by import-linter
(``make check``; the contracts are in pyproject.toml).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("deploy", "pipelines", "producers", "schemas", "workers")
MODULE_LINES = 400
FUNCTION_LINES = 80

STATEMENT = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b", re.IGNORECASE | re.DOTALL
)
# Prose may say "select one from the list"; a statement begins with its verb, or is shouted.
FIRST_WORD = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)
SHOUTED = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules_of(*folders: str) -> list[Path]:
    """The modules of top-level folders; of ``strandline`` its own, not those behind its links."""
    links = [path for path in (ROOT / "strandline").iterdir() if path.is_symlink()]
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(path.is_relative_to(link) for link in links)
    ]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


LAYERED = modules_of(*FOLDERS)
# It imports the one family of models that the settings ask for: the other may not be installed.
LOADS_AT_RUN_TIME = {"pipelines/models/factory.py"}
ALL = [*LAYERED, *modules_of("strandline")]
OUTSIDE_SCHEMAS = [path for path in ALL if not name_of(path).startswith("schemas/")]
# A migration is written once and never edited; `make queries` writes the queries.
WRITTEN_ONCE = ("schemas/migrations/versions/", "schemas/queries/")
MAINTAINED = [path for path in ALL if not name_of(path).startswith(WRITTEN_ONCE)]


def test_there_are_modules_to_check() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in ALL} == {*FOLDERS, "strandline"}
    assert {"strandline/memory.py", "strandline/cli/entry.py", "schemas/tables/work.py"} <= set(
        map(name_of, ALL)
    )
    assert not any(name_of(path).startswith("strandline/schemas/") for path in ALL)


@pytest.mark.parametrize("path", LAYERED, ids=name_of)
def test_own_code_is_imported_at_the_top(path: Path) -> None:
    if name_of(path) in LOADS_AT_RUN_TIME:
        return
    functions = [node for node in ast.walk(tree_of(path)) if isinstance(node, Function)]
    late = [found for function in functions for found in imports_in(function) if is_own(found[1])]
    assert not late, "an import of our own code inside a function hides a cycle; only strandline/ may be lazy"


@pytest.mark.parametrize("path", LAYERED, ids=name_of)
def test_folders_do_not_import_the_public_face(path: Path) -> None:
    below = tuple(f"strandline.{folder}" for folder in FOLDERS)
    upward = [
        found for found in imports_in(tree_of(path)) if is_own(found[1]) and not found[1].startswith(below)
    ]
    assert not upward, "the folders are wired together in strandline/, and know nothing of it"


@pytest.mark.parametrize("path", OUTSIDE_SCHEMAS, ids=name_of)
def test_sql_stands_in_schemas(path: Path) -> None:
    statements = [
        f"line {line}: {text.strip()[:60]}" for line, text in texts_of(tree_of(path)) if looks_like_sql(text)
    ]
    assert not statements, "SQL has one home, with a name: schemas/sql"


@pytest.mark.parametrize("path", MAINTAINED, ids=name_of)
def test_modules_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MODULE_LINES, "a module this long is two modules"


@pytest.mark.parametrize("path", MAINTAINED, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    long = [
        f"{node.name}: {lines} lines"
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function) and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize(
    "text",
    [
        "SELECT seq FROM strandline.message",
        "  update session\n  set tokens = 0",
        "with due as (select 1) delete from due",
        "EXPLAIN INSERT INTO due VALUES (1)",
    ],
)
def test_statements_are_recognised(text: str) -> None:
    assert looks_like_sql(text)


@pytest.mark.parametrize(
    "text",
    ["Choose one: select it from the list.", "select", "The worker deletes what it took from the queue."],
)
def test_prose_is_no_statement(text: str) -> None:
    assert not looks_like_sql(text)


def imports_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def is_own(name: str) -> bool:
    return name.partition(".")[0] in {"", "strandline", *FOLDERS}


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring; of an f-string, its parts joined."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def looks_like_sql(text: str) -> bool:
    return bool(STATEMENT.search(text) and (FIRST_WORD.match(text) or SHOUTED.search(text)))
