"""Every module has its room, rooms stay small enough to be looked over, and imports can be seen."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.project.test_contracts import ALL, BESIDE, ROOT, imports_in, name_of, offenders
from tests.support.syntax_trees import tree_of

pytestmark = pytest.mark.usefixtures("without_collection")

# Folders that hold modules; what is new belongs to one of them, or is a decision (docs/decisions).
ROOMS = {
    "schemas": "broker display postgres postgres/pools queries"
    " queries/application queries/conversation queries/derived queries/inspection queries/upkeep queries/work"
    " queries/audit sealed sealing sql tables values values/acts values/forms wire",
    "pipelines": "audit custom engine facts flush generations inspect models models/local"
    " models/openai models/prompts models/provided overflow own_code redaction replay sealing text"
    " upkeep upkeep/erasure vectors",
    "producers": "audit blocks doorbell erasing evaluation exports facts items operations"
    " reading runs search search/index tools"
    " writing writing/correcting",
    "workers": "celery_app upkeep",
    "deploy": "embedded",
    "strandline": "administration adapters adapters/agents adapters/agno adapters/langchain"
    " adapters/langgraph adapters/legacy adapters/legacy/agno_v1 adapters/legacy/tframex"
    " adapters/llamaindex adapters/pydantic_ai"
    " chat_import chat_import/exports chat_import/tables"
    " client client/upkeep cli cli/demo cli/doctor cli/erasures cli/serve cli/servers cli/terminal"
    " service service/gate service/pages service/routes wiring",
}
SIDE_BY_SIDE = 20
# One module a command, or a folder if the command has parts; these are what the commands share.
COMMAND_LINE = ROOT / "strandline" / "cli"
SHARED_BY_COMMANDS = {"servers", "terminal"}
WITHOUT_BOUND = {"strandline/cli"}
# What an application names in its settings is the application's own; queries compile their constructors.
IMPORTS_BY_NAME = {
    "pipelines/custom/loading.py",
    "pipelines/models/installed.py",
    "pipelines/own_code/places.py",
    "schemas/postgres/query.py",
    "schemas/sealed/opening.py",
    "schemas/tracing.py",  # looks whether OpenTelemetry is loaded
}
# What takes a module's name as a string, in the standard library and in Celery's and Kombu's helpers.
LOADERS = set(
    "import_module __import__ __loader__ resolve_name run_module run_path entry_points load_module"
    " exec_module module_from_spec spec_from_file_location symbol_by_name import_from_cwd instantiate".split()
)
LOADING_MODULES = set("pkgutil runpy zipimport imp kombu.utils.imports celery.utils.imports".split())
# Names alone: `re` compiles as well, and cursors execute.
RUN_TEXT = {"eval", "exec"}

CHECKED = [*ALL, *BESIDE]


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
    imported = [name for _, name in imports_in(tree_of(COMMAND_LINE / "entry.py"))]
    commands = {name.split(".")[2] for name in imported if name.startswith("strandline.cli.")}
    assert modules == {*commands, *SHARED_BY_COMMANDS, "entry", "command"}


def test_what_the_commands_share_knows_none_of_them() -> None:
    known = {
        name.split(".")[2]
        for folder in SHARED_BY_COMMANDS
        for path in (COMMAND_LINE / folder).rglob("*.py")
        for _, name in imports_in(tree_of(path))
        if name.startswith("strandline.cli.")
    }
    assert known <= SHARED_BY_COMMANDS


def test_no_module_is_imported_by_a_name_in_a_string() -> None:
    found = offenders([path for path in ALL if name_of(path) not in IMPORTS_BY_NAME], loads_in)
    assert not found, f"neither mypy nor the import contracts see these lines:\n{found}"


def test_an_import_by_name_is_recognised() -> None:
    for source in (
        *("from importlib import import_module as _load", "_load = importlib.import_module"),
        *('getattr(importlib, "import_module")(name)', "__import__(name)", "import pkgutil as p"),
        *("from kombu.utils import imports", "from sys import modules", "sys.modules[name]", "exec(text)"),
    ):
        assert loads_in(ast.parse(source)), source
    for source in ("importlib.util.find_spec(name)", "cursor.exec(text)", "node.modules"):
        assert not loads_in(ast.parse(source)), source


def test_no_name_is_given_twice() -> None:
    found = offenders(CHECKED, named_twice)
    assert not found, f"the second value takes the place of the first, unseen:\n{found}"


def loads_in(tree: ast.AST) -> list[int]:
    """The lines that import by a name in a string, or take hold of what does."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr) and loads(node)]


def loads(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            names = [name for _, name in imports_in(node)]
            return any(
                name.rpartition(".")[2] in LOADERS or name == "sys.modules" or is_loading_module(name)
                for name in names
            )
        case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
            return True
        case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name in LOADERS
        case ast.Name(id=name):
            return name in LOADERS or name in RUN_TEXT
    return False


def is_loading_module(name: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in LOADING_MODULES)


def named_twice(tree: ast.AST) -> set[str]:
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
    counts = (Counter(name for node in scope.body for name in _named_by(node)) for scope in scopes)
    return {name for count in counts for name, times in count.items() if times > 1}


def _named_by(node: ast.stmt) -> list[str]:
    """What a statement names for good; overloads and properties name one thing several times."""
    match node:
        case ast.Assign():
            return [name for target in node.targets for name in _bound_in(target)]
        case ast.For(target=target):
            return list(_bound_in(target))
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if not node.decorator_list:
            return [node.name]
    return []


def _bound_in(target: ast.expr) -> Iterator[str]:
    """The names in a target, those in a tuple as well; ``_`` names nothing."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id != "_":
            yield node.id
