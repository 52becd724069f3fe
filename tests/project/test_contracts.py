"""Rules of the source that no linter covers: checked on the syntax trees, without importing anything.

Which folder may import which, and who may know Celery or openai, is checked by import-linter
(``make check``; the contracts are in pyproject.toml).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.syntax_trees import tree_of

pytestmark = pytest.mark.usefixtures("without_collection")

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("deploy", "pipelines", "producers", "schemas", "workers")
MODULE_LINES = 600
FUNCTION_LINES = 80

# What only SQL says. Prose may say it as well ("select one from the list"), but neither first nor shouted.
STATEMENT = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b|\bMERGE\s+INTO\b"
    r"|\b(TRUNCATE|LOCK|DROP|CREATE|ALTER)\s+((TEMP|TEMPORARY|UNLOGGED)\s+)?TABLE\b",
    re.IGNORECASE | re.DOTALL,
)
# Before the first word of a statement: comments, an opening bracket, EXPLAIN with its options.
BEGINNING = r"(?:^|;)(?:\s|\(|--[^\n]*\n|/\*.*?\*/|EXPLAIN\b(?:\s+(?:ANALYZE|VERBOSE)\b)*(?:\s*\([^)]*\))?)*"
VERBS = (
    "ALTER|ANALYZE|CALL|CLUSTER|COMMENT|COPY|CREATE|DEALLOCATE|DECLARE|DELETE|DISCARD|DO|DROP|EXECUTE|FETCH|GRANT"
    "|INSERT|LISTEN|LOCK|MERGE|MOVE|NOTIFY|PREPARE|REASSIGN|REFRESH|REINDEX|RESET|REVOKE|SELECT|SET|SHOW|TABLE"
    "|TRUNCATE|UNLISTEN|UPDATE|VACUUM|VALUES|WITH"
)
FIRST_WORD = re.compile(
    BEGINNING + r"(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|TRUNCATE|LOCK|DROP|CREATE|ALTER)\b",
    re.IGNORECASE | re.DOTALL,
)
SHOUTED = re.compile(
    r"\b(SELECT|UPDATE|(INSERT|MERGE)\s+INTO|DELETE\s+FROM"
    r"|(TRUNCATE|LOCK|DROP|CREATE|ALTER)\s+((TEMP|TEMPORARY|UNLOGGED)\s+)?TABLE)\b"
)
# A sentence begins with a verb too, but not with one in capitals.
# A route begins with a verb as well: `DELETE /v1/…`.
SHOUTED_FIRST = re.compile(BEGINNING + rf"({VERBS})\s*[\s(]\s*(?!/v1/)[^\s;]", re.DOTALL)
# In any case: a function that is called, a table with its schema, a copy to or from the client.
UNMISTAKABLE = re.compile(
    BEGINNING + r"(?:SELECT\s+[\w.…\"]+\((?!s\))"
    r"|(?:TRUNCATE|TABLE|LOCK|VACUUM|ANALYZE|REINDEX)\s+(?:ONLY\s+)?[\w…\"]+\.[\w…\"]+"
    r"|COPY\b.+\b(?:TO|FROM)\s+(?:STDIN|STDOUT|PROGRAM|'))",
    re.IGNORECASE | re.DOTALL,
)

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


LAYERED = modules_of(*FOLDERS)
# It imports the one family of models that the settings ask for: the other may not be installed.
LOADS_AT_RUN_TIME = {"pipelines/models/factory.py", "schemas/sealing/ciphers.py"}
ALL = [*LAYERED, *modules_of("strandline")]
# Code that is not packaged, and imports the product by the names that it is packaged under.
BESIDE = modules_of("tests", "bench", "tools")
# What makes the tables, what reads other libraries' tables, and the question that no table is needed for
# (docs/architecture/rooms.md).
SQL_ELSEWHERE = (
    "schemas/postgres/migrate.py",
    "schemas/postgres/migrations.py",
    "schemas/postgres/pools/beginnings.py",
    "strandline/chat_import/tables",
)
WITHOUT_SQL = [path for path in ALL if not name_of(path).startswith(SQL_ELSEWHERE)]
# By `make queries`.
WRITTEN_ONCE = ("schemas/queries/",)
MAINTAINED = [path for path in ALL if not name_of(path).startswith(WRITTEN_ONCE)]


def test_there_are_modules_to_check() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in ALL} == {*FOLDERS, "strandline"}
    assert {"strandline/memory.py", "strandline/cli/entry.py", "schemas/tables/work.py"} <= set(
        map(name_of, ALL)
    )
    assert not any(name_of(path).startswith("strandline/schemas/") for path in ALL)


def test_own_code_is_imported_at_the_top() -> None:
    late = offenders([path for path in LAYERED if name_of(path) not in LOADS_AT_RUN_TIME], late_imports)
    assert not late, f"a late import of our own code hides a cycle; only strandline/ may be lazy:\n{late}"


def test_folders_do_not_import_the_public_face() -> None:
    upward = offenders(LAYERED, upward_imports)
    assert not upward, f"the folders are wired together in strandline/, and know nothing of it:\n{upward}"


def test_only_what_is_packaged_is_imported() -> None:
    outside = imports_from(names_at(ROOT), ALL)
    assert not outside, "a wheel has strandline alone: a room is strandline.schemas, and tools are not there"


def test_rooms_are_imported_by_their_packaged_names() -> None:
    bare = imports_from(set(FOLDERS), BESIDE)
    assert not bare, "each class would be there twice, and no `except` knows the other"


def test_imports_of_own_modules_run_one_way() -> None:
    modules = {module_name(path): path for path in ALL}
    imports = {name: own_imports(tree_of(path), set(modules)) - {name} for name, path in modules.items()}
    assert cycle_in(imports) == [], "each of these modules needs the next one first"


def test_sql_stands_in_files() -> None:
    astray = offenders(WITHOUT_SQL, statements_in)
    assert not astray, f"SQL has one home, with a name, schemas/sql:\n{astray}"


@pytest.mark.parametrize("place", SQL_ELSEWHERE)
def test_sql_stands_elsewhere_where_the_documents_say_so(place: str) -> None:
    assert any(statements_in(tree_of(path)) for path in ALL if name_of(path).startswith(place))
    assert f"`{place}`" in (ROOT / "docs/architecture/rooms.md").read_text(encoding="utf-8")


def test_modules_are_short() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MAINTAINED}
    long = [f"{name}: {count} lines" for name, count in lines.items() if count > MODULE_LINES]
    assert not long, f"a module this long is two modules: {long}"


def test_functions_are_short() -> None:
    long = offenders(MAINTAINED, long_functions)
    assert not long, f"functions of more than {FUNCTION_LINES} lines:\n{long}"


def test_statements_are_recognised() -> None:
    for text in (
        *("  update session\n  set tokens = 0", "with due as (select 1) delete from due", "TRUNCATE message"),
        *("EXPLAIN (ANALYZE, BUFFERS) SELECT 1", "begin; DROP INDEX message_pkey", "lock table message"),
        *("merge into due using found on true when matched then delete", "copy (select 1) to stdout"),
        *("table strandline.message", "-- a comment\nselect put_v1(1)", "/* a hint */ SELECT 1"),
        *("(SELECT 1)", "VALUES (1)", "SET LOCAL jit = off", "NOTIFY lanes"),
    ):
        assert looks_like_sql(text), text


def test_prose_is_no_statement() -> None:
    for text in (
        *("Choose one: select it from the list.", "SELECT", "Select model(s) to call.", "Truncate the log."),
        *("The worker deletes what it took from the queue.", "Set the limits of a namespace.", "table"),
        *("Copy the messages from a file to a session.", "Show the traceback of an error."),
        "let an administrator run CREATE EXTENSION vector in this database",
    ):
        assert not looks_like_sql(text), text


def test_statements_are_found_in_source() -> None:
    for source in (
        *('run(b"TRUNCATE message")', 'run(f"TRUNCATE {schema}.message")', 'def read(sql="TABLE m"): ...'),
        *('run("SELECT " + columns + " FROM message")', 'QUESTION = (b"SELECT " b"strandline.put_v1(1)")'),
    ):
        assert statements_in(ast.parse(source)), source


def test_documentation_is_not_searched_for_statements() -> None:
    assert not statements_in(ast.parse('def read():\n    """SELECT seq FROM message"""'))


def test_an_import_of_what_is_not_packaged_is_recognised(tmp_path: Path) -> None:
    for folder in ("tools", "bench", "tests", "schemas", "strandline"):
        (tmp_path / folder).mkdir()
    (tmp_path / "setup_helper.py").touch()
    for source in (
        *(
            "from tools import queries",
            "import bench.environment",
            "def late():\n    import schemas.errors as e",
        ),
        *("from schemas import errors", "import setup_helper"),
    ):
        assert imports_of(names_at(tmp_path), ast.parse(source)), source
    assert not imports_of(names_at(tmp_path), ast.parse("import json\nfrom strandline.schemas import errors"))


def test_a_cycle_is_recognised() -> None:
    one, two = "strandline.a.one", "strandline.a.two"
    modules = {"strandline.a", one, two}
    back = {two: {one}}
    for source in (
        "import strandline.a.two",
        "from strandline.a import two",
        "from strandline.a.two import Name",
    ):
        forward = own_imports(ast.parse(source), modules)
        assert "strandline.a.two" in forward
        assert set(cycle_in({"strandline.a.one": forward, **back})) == {
            "strandline.a.one",
            "strandline.a.two",
        }
        assert cycle_in({"strandline.a.one": forward}) == []


def offenders(paths: Iterable[Path], look: Callable[[ast.Module], Iterable[object]]) -> str:
    """A line for each module in which ``look`` finds something, with what it finds."""
    findings = ((name_of(path), [*look(tree_of(path))]) for path in paths)
    return "\n".join(f"{name}: {found}" for name, found in findings if found)


def late_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    return (found for function in functions for found in imports_in(function) if is_own(found[1]))


def upward_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    below = tuple(f"strandline.{folder}" for folder in FOLDERS)
    return (found for found in imports_in(tree) if is_own(found[1]) and not found[1].startswith(below))


def long_functions(tree: ast.AST) -> Iterator[str]:
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    lengths = ((node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions)
    return (f"{name}: {lines} lines" for name, lines in lengths if lines > FUNCTION_LINES)


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


def names_at(root: Path) -> set[str]:
    """What can be imported from a checkout's root, and from no wheel."""
    modules = {path.stem for path in root.iterdir() if path.is_dir() or path.suffix == ".py"}
    return modules - {"strandline"}


def imports_of(names: set[str], tree: ast.AST) -> list[tuple[int, str]]:
    return [found for found in imports_in(tree) if found[1].partition(".")[0] in names]


def imports_from(names: set[str], paths: list[Path]) -> list[str]:
    return [
        f"{name_of(path)}:{line}: {name}" for path in paths for line, name in imports_of(names, tree_of(path))
    ]


def module_name(path: Path) -> str:
    dotted = name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.startswith("strandline") else f"strandline.{dotted}"


def own_imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules that are imported, by whichever form; a name in a module stands for its module."""
    names = {name for _, name in imports_in(tree) if is_own(name)}
    return modules & {name if name in modules else name.rpartition(".")[0] for name in names}


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def statements_in(tree: ast.AST) -> list[str]:
    return [f"line {line}: {text.strip()[:60]}" for line, text in texts_of(tree) if looks_like_sql(text)]


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring; of an f-string or a sum, its parts joined."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            yield node.lineno, text_of(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            yield node.lineno, text_of(node)


# How a sentence quotes a value: by ``quote``, as another error's sentence, or from a list of given names.
QUOTING = re.compile(r"quote\((?!message\.role)|error\}|str\(error\)|unknown\)|named\}")


def test_a_problem_that_quotes_a_value_has_another_sentence_for_clients() -> None:
    raised = [
        call
        for path in ALL
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "InvalidMessageError"
    ]
    quoting = [call for call in raised if QUOTING.search(ast.unparse(call.args[1]))]
    assert len(raised) > 80 and len(quoting) > 8
    for call in quoting:
        assert "for_clients" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)


def text_of(node: ast.expr) -> str:
    """The text of an expression, with … for what only a run could tell."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(octets)):
            return octets.decode("latin-1")
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return "…"


def looks_like_sql(text: str) -> bool:
    if SHOUTED_FIRST.search(text) or UNMISTAKABLE.search(text):
        return True
    return bool(STATEMENT.search(text) and (FIRST_WORD.search(text) or SHOUTED.search(text)))
