"""CONTRIBUTING, followed: its ways are the calls of the code, its lists name what is there and stay short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.syntax_trees import tree_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WAYS = ("A put", "A read", "A flush, until there is a fact")
# Called by an application, and by Celery when a hint arrives.
BEGINNINGS = ("put", "get", "_drain_task")
# The most files that a person changes for each, beside SQL and tests.
MOST_FILES = {"operation": [2, 3], "column": [2], "setting": [2], "adapter": [6]}
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))

ROW = re.compile(r"^\| `(?P<module>[^`]+)` \| `(?P<function>[\w.]+)` \| (?P<calls>.+) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
LIST = re.compile(r"^1\. (?:.+\n)(?:(?:\d+\. |   ).+\n)*", re.MULTILINE)
# A name with a slash is a place in the checkout.
PLACE = re.compile(r"^\.?[a-z][\w./]*/[\w./]*$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def section(title: str) -> str:
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def function_of(module: str, name: str) -> Function:
    body: list[ast.stmt] = tree_of(ROOT / module).body
    *classes, function = name.split(".")
    for part in classes:
        (body,) = [one.body for one in body if isinstance(one, ast.ClassDef) and one.name == part]
    (found,) = [one for one in body if isinstance(one, Function) and one.name == function]
    return found


def names_in(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_a_way_is_the_calls_of_the_code() -> None:
    called = set(BEGINNINGS)
    rows = [row for way in WAYS for row in ROW.finditer(section(way))]
    assert len(rows) >= 25
    for row in rows:
        module, function, calls = row["module"], row["function"], CODE.findall(row["calls"])
        is_sql = module.endswith(".sql")
        name = function.title().replace("_", "") if is_sql else function.rpartition(".")[2]
        assert name in called, f"nothing above calls {function} of {module}"
        called.update(calls)
        if is_sql:
            assert f"-- name: {function}\n" in (ROOT / module).read_text(encoding="utf-8")
        else:
            missing = set(calls) - set(names_in(function_of(module, function)))
            assert not missing, f"{function} of {module} does not call {missing}"


@pytest.mark.parametrize("thing", MOST_FILES)
def test_a_list_of_files_is_short(thing: str) -> None:
    text = section(f"Add an {thing}" if thing[0] in "ao" else f"Add a {thing}")
    counts = [len(re.findall(r"^\d+\. ", list_, re.MULTILINE)) for list_ in LIST.findall(text)]
    assert counts == MOST_FILES[thing]


def test_what_the_page_names_is_there() -> None:
    places = [name for name in CODE.findall(PAGE) if PLACE.match(name) and "NNNN" not in name]
    assert [name for name in places if not (ROOT / name).exists()] == []
    modules = re.findall(r"python -m ([\w.]+)", PAGE)
    files = [ROOT / module.replace(".", "/") for module in modules if module != "pytest"]
    assert [str(file) for file in files if not (file.with_suffix(".py").exists() or file.is_dir())] == []


def test_the_page_is_read_in_ten_minutes() -> None:
    assert len(PAGE.split()) <= 2_000


def test_the_templates_are_forms() -> None:
    assert {path.name for path in TEMPLATES} == {"bug.yml", "config.yml", "proposal.yml"}
    for path in TEMPLATES:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            assert form == {"blank_issues_enabled": False}
            continue
        asked = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(set(asked)) == len(asked) > 0
        assert {"name", "description", "body"} <= form.keys()
