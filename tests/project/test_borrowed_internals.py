"""Undocumented parts of libraries are used where the page about them says, and their versions are bounded."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.project.test_contracts import ALL, ROOT, name_of, offenders

pytestmark = pytest.mark.usefixtures("without_collection")

PAGE = ROOT / "docs" / "architecture" / "borrowed-internals.md"

LIBRARIES = ("psycopg", "psycopg_pool", "celery", "kombu", "amqp")

# What their documentation describes as meant for applications.
DOCUMENTED = {
    "celery",
    "celery.bootsteps",
    "celery.platforms",
    "celery.signals",
    "kombu",
    "kombu.exceptions",
    "psycopg",
    "psycopg.conninfo",
    "psycopg.errors",
    "psycopg.rows",
    "psycopg_pool",
}


def borrowed_in(tree: ast.AST) -> Iterator[str]:
    """The modules of the libraries that it imports and that are not documented."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _undocumented(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _undocumented(alias.name)


def _undocumented(module: str) -> Iterator[str]:
    if module.partition(".")[0] in LIBRARIES and module not in DOCUMENTED:
        yield module


def test_each_module_that_borrows_internals_is_in_the_table() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    places = [row.split("|")[2] for row in rows]
    unnamed = [path for path in ALL if not any(name_of(path) in place for place in places)]
    found = offenders(unnamed, borrowed_in)
    assert not found, f"the table does not name these, with what they borrow:\n{found}"


def test_the_table_names_modules_that_exist() -> None:
    named = re.findall(r"`((?:schemas|producers|workers)/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_each_library_whose_internals_are_borrowed_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for library in ("psycopg", "psycopg-pool", "celery", "kombu", "amqp"):
        (wanted,) = [line for line in project["dependencies"] if re.match(rf"{library}(\[[\w,]+\])?>=", line)]
        assert "," in wanted and "<" in wanted.partition(",")[2], wanted
