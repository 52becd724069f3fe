"""Every module has its room, rooms stay small enough to be looked over, and imports can be seen."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.project.test_contracts import ALL, ROOT, imports_in, is_own, name_of, tree_of

# Folders that hold modules; what is new belongs to one of them, or is a decision (docs/decisions).
ROOMS = {
    "schemas": "broker display migrations migrations/versions postgres postgres/pools queries"
    " queries/conversation queries/derived queries/inspection queries/work sql tables values",
    "pipelines": "custom engine facts flush generations inspect models models/local models/openai"
    " models/prompts replay text vectors",
    "producers": "blocks doorbell facts reading search writing",
    "workers": "celery_app",
    "deploy": "embedded",
    "strandline": "adapters adapters/agents adapters/langchain adapters/llamaindex chat_import cli cli/demo"
    " cli/doctor cli/facts cli/generations cli/reports cli/servers cli/sessions cli/terminal wiring",
}
SIDE_BY_SIDE = 13
# One module a command, or a folder if the command has parts; these are what the commands share.
COMMAND_LINE = ROOT / "strandline" / "cli"
SHARED_BY_COMMANDS = {"reports", "servers", "terminal"}
WITHOUT_BOUND = {"strandline/cli"}
# What an application names in its settings is the application's own.
IMPORTS_BY_NAME = {"pipelines/custom/loading.py"}

CHECKED = [
    *ALL,
    *(path for folder in ("tests", "bench", "tools") for path in sorted((ROOT / folder).rglob("*.py"))),
]


def test_every_module_is_in_a_room() -> None:
    known = {*ROOMS, *(f"{top}/{room}" for top, rooms in ROOMS.items() for room in rooms.split())}
    assert {name_of(path.parent) for path in ALL} == known


def test_no_room_has_more_modules_than_can_be_looked_over() -> None:
    beside: dict[str, list[str]] = {}
    for path in CHECKED:
        if path.name != "__init__.py":
            beside.setdefault(name_of(path.parent), []).append(path.name)
    crowded = {folder: len(names) for folder, names in beside.items() if len(names) > SIDE_BY_SIDE}
    assert {folder for folder in crowded if folder not in WITHOUT_BOUND} == set(), crowded


def test_the_command_line_has_one_module_a_command() -> None:
    inside = [path.relative_to(COMMAND_LINE) for path in COMMAND_LINE.rglob("*.py")]
    modules = {path.parts[0].removesuffix(".py") for path in inside} - {"__init__"}
    imported = [name for _, name in imports_in(tree_of(COMMAND_LINE / "commands.py")) if is_own(name)]
    commands = {name.split(".")[2] for name in imported}
    assert modules == {*commands, *SHARED_BY_COMMANDS, "entry", "commands"}


def test_what_the_commands_share_knows_none_of_them() -> None:
    known = {
        name.split(".")[2]
        for folder in SHARED_BY_COMMANDS
        for path in (COMMAND_LINE / folder).rglob("*.py")
        for _, name in imports_in(tree_of(path))
        if name.startswith("strandline.cli.")
    }
    assert known <= SHARED_BY_COMMANDS


@pytest.mark.parametrize("path", [path for path in ALL if name_of(path) not in IMPORTS_BY_NAME], ids=name_of)
def test_no_module_is_imported_by_a_name_in_a_string(path: Path) -> None:
    called = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    names = [f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called]
    assert not {"import_module", "__import__"} & set(names), "neither mypy nor the import contracts see it"


@pytest.mark.parametrize("path", CHECKED, ids=name_of)
def test_no_name_is_given_twice(path: Path) -> None:
    scopes = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Module | ast.ClassDef))
    for scope in scopes:
        names = [name for node in scope.body for name in _named_by(node)]
        assert len(names) == len(set(names)), "the second value takes the place of the first, unseen"


def _named_by(node: ast.stmt) -> list[str]:
    """What a statement names for good; overloads and properties name one thing several times."""
    match node:
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if not node.decorator_list:
            return [node.name]
    return []
