"""The documents: what they show runs, what they name exists, and what exists is named."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import click
import psycopg
import pytest

import strandline
from strandline.cli.entry import cli
from strandline.schemas.model_roles import ModelRoles
from strandline.schemas.model_roles import variable as variable_of_role
from strandline.schemas.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / ".github" / "SECURITY.md",
    ROOT / "tests" / "README.md",
    *sorted(DOCS.rglob("*.md")),
)
WRAPPED = (*DOCUMENTS, ROOT / "CHANGELOG.md")
PROSE_WIDTH = 120
WORDS_A_MINUTE = 200

# A comment before the fence says how an example is tried, so that nothing of it is in what people copy.
BLOCK = re.compile(
    r"(?:^<!-- example: (?P<tried>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
INLINE_CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:STRANDLINE|OPENAI)_[A-Z][A-Z_]*[A-Z]\b")
COMMAND = re.compile(r"(?:\S*/)?strandline ([a-z].*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
TEST_NAME = re.compile(r"`(tests/(?:\w+/)*test_\w+\.py)::(test_\w+)`")
ADAPTER = re.compile(r"^from strandline\.adapters\.(\w+) import", re.MULTILINE)
ADAPTED = {
    "agents": "agents",
    "agno": "agno",
    "agno_v1": "agno.memory.v2",
    "langchain": "langchain_core",
    "langgraph": "langgraph",
    "llamaindex": "llama_index.core",
    "pydantic_ai": "pydantic_ai",
    "tframex": "tframex",
}
FEATURE_ROWS = [
    f"{part}{n}" for part, count in zip("ABCD", (16, 12, 11, 11), strict=True) for n in range(1, count + 1)
]


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text, and how it is tried ("": it is run)."""

    where: str
    language: str
    text: str
    tried: str

    def __str__(self) -> str:
        return self.where


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks_of(*languages: str) -> list[Block]:
    found = []
    for path in DOCUMENTS:
        for match in BLOCK.finditer(text_of(path)):
            line = text_of(path).count("\n", 0, match.start("text"))
            where = f"{name_of(path)}:{line}"
            found.append(Block(where, match["language"], match["text"], match["tried"] or ""))
    return [block for block in found if not languages or block.language in languages]


def examples(tried: str = "") -> list[Block]:
    return [block for block in blocks_of("python") if block.tried == tried]


def code_of(path: Path) -> Iterator[str]:
    """Each line of a block that is not Python, and each piece of inline code."""
    for block in BLOCK.finditer(text_of(path)):
        yield from block["text"].splitlines()
    yield from INLINE_CODE.findall(BLOCK.sub("", text_of(path)))


def without_targets(line: str) -> str:
    """A line as it counts: of a link or picture only its text."""
    return re.sub(r"\]\([^)\s]+\)", "]", line)


def anchors_of(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = HEADING.findall(BLOCK.sub("", text_of(path)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def table_rows(path: Path) -> list[list[str]]:
    lines = [line for line in text_of(path).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_readme_example_works_as_printed(tmp_path: Path) -> None:
    (example,) = examples("the first script")
    code = [line for line in example.text.splitlines() if line.strip()]
    assert len(code) <= 10
    script = tmp_path / "example.py"
    script.write_text(example.text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "STRANDLINE_EMBEDDED"}
    done = subprocess.run(
        [sys.executable, script],
        env={**environment, "STRANDLINE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (shown,) = [
        block.text for block in blocks_of("") if block.where.startswith("README") and "<memory>" in block.text
    ]
    assert DAY.sub("DAY", done.stdout) == DAY.sub("DAY", shown)
    assert "no database is configured, using the embedded PostgreSQL" in done.stderr


@pytest.mark.parametrize("block", examples(), ids=str)
def test_recipes_run(
    block: Block, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for adapter in ADAPTER.findall(block.text):
        pytest.importorskip(ADAPTED[adapter], reason=f"needs the extra {adapter}")
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    script = tmp_path / "recipe.py"
    script.write_text(block.text, encoding="utf-8")
    runpy.run_path(str(script))


def test_the_examples_of_all_adapters_run_one_after_another(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one database, as a reader tries them: no example stands in another's conversation."""
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    for number, block in enumerate(examples()):
        adapters = ADAPTER.findall(block.text)
        if adapters and all(_is_there(ADAPTED[adapter]) for adapter in adapters):
            script = tmp_path / f"example_{number}.py"
            script.write_text(block.text, encoding="utf-8")
            try:
                runpy.run_path(str(script))
            except BaseException as error:
                error.add_note(block.where)
                raise


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("block", blocks_of("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.where, "exec")


def test_examples_that_do_not_run_here_say_where_or_why() -> None:
    marks = {block.tried for block in blocks_of("python") if block.tried}
    assert {mark for mark in marks if not mark.startswith(("compiled only", "tutorial: "))} == {
        "the first script",
        "with a worker: mention_counter.py",
        "with a worker: chat.py",
        "keyring of vault",
        "keyring of a cloud",
    }


@pytest.mark.parametrize("block", blocks_of("sql"), ids=str)
def test_queries_run(block: Block, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(block.text.encode())


@pytest.mark.parametrize("path", WRAPPED, ids=name_of)
def test_prose_is_wrapped(path: Path) -> None:
    """So that a diff shows the sentences that changed; what Markdown cannot break may be longer."""
    prose = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text_of(path))
    lines = enumerate(prose.splitlines(), 1)
    free = ("|", "#")
    long = [n for n, line in lines if not line.startswith(free) and len(without_targets(line)) > PROSE_WIDTH]
    assert long == [], f"lines of more than {PROSE_WIDTH} characters"


def test_the_readme_is_a_front_door() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 900


def test_the_overview_is_read_in_ten_minutes() -> None:
    assert len(text_of(DOCS / "architecture.md").split()) <= 10 * WORDS_A_MINUTE


@pytest.mark.parametrize(
    ("index", "folder"),
    [(DOCS / "architecture.md", "architecture"), (DOCS / "decisions" / "README.md", "decisions")],
    ids=["concepts", "decisions"],
)
def test_every_page_is_in_its_index(index: Path, folder: str) -> None:
    pages = {path for path in (DOCS / folder).glob("*.md") if path != index}
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(text_of(index))}
    assert pages <= linked


@pytest.mark.parametrize("path", sorted((DOCS / "architecture").glob("*.md")), ids=name_of)
def test_a_concept_begins_with_a_paragraph_about_it(path: Path) -> None:
    assert re.match(r"# .+\n\n(?:[A-Z*`].+\n)(?:.+\n)+\n", text_of(path))


@pytest.mark.parametrize("path", sorted((DOCS / "decisions").glob("0*.md")), ids=name_of)
def test_a_decision_is_a_dated_record(path: Path) -> None:
    text = text_of(path)
    assert re.search(r"^Date: 20\d\d-\d\d(?:-\d\d)?$", text, re.MULTILINE)
    title, *parts = HEADING.findall(text)
    assert parts == ["Context", "Decision", "Consequences"]
    (row,) = [row for row in table_rows(DOCS / "decisions" / "README.md") if f"]({path.name})" in row[1]]
    assert row[:2] == [path.name[:4], f"[{title}]({path.name})"]
    assert f"Date: {row[2]}\n" in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(text_of(path)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        assert not anchor or anchor in anchors_of(found), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_and_options_exist(path: Path) -> None:
    for line in code_of(path):
        if shown := COMMAND.match(line.partition("#")[0].strip()):
            command = command_named(shown[1].split())
            assert command is not None, line
            known = {
                option
                for parameter in command.params
                for option in (*parameter.opts, *parameter.secondary_opts)
            }
            assert set(OPTION.findall(shown[1])) <= known | {"--help", "--debug"}, line


def test_every_command_is_named_in_the_documents() -> None:
    shown = "\n".join(text_of(path) for path in DOCUMENTS)
    missing = [name for name in cli.list_commands(click.Context(cli)) if f"strandline {name}" not in shown]
    assert not missing or missing == ["demo"]
    assert "make demo" in shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in code_of(path):
        if named := re.match(r"make ([a-z-]+)\b", line):
            assert named[1] in targets, line


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_variables_exist(path: Path) -> None:
    sources = ("conftest.py", "support/servers/databases.py", "pipelines/models/openai/test_real_server.py")
    texts = [(ROOT / "tests" / each).read_text(encoding="utf-8") for each in sources]
    of_the_tests = {name for text in texts for name in VARIABLE.findall(text)}
    of_roles = {
        variable_of_role(role, field)
        for role, info in ModelRoles.model_fields.items()
        for field in type(info.default).model_fields
    }
    assert set(VARIABLE.findall(text_of(path))) <= {*variables(), *of_roles} | of_the_tests


def test_every_setting_is_described_with_its_default() -> None:
    rows = {row[0].strip("`"): row[1] for row in table_rows(DOCS / "operations.md") if len(row) == 3}
    for variable, field in variables().items():
        if field == "models":
            continue  # docs/models.md describes the roles
        assert variable in rows, f"{variable} is not described"
        default = Settings.model_fields[field].get_default()
        if isinstance(default, bool):
            assert rows[variable] == f"`{str(default).lower()}`", variable
        elif isinstance(default, (int, float)):
            assert float(rows[variable].strip("`")) == default, variable
        elif isinstance(default, str) and default:
            assert rows[variable] == f"`{default}`"


def test_every_error_is_explained() -> None:
    text = text_of(DOCS / "operations.md")
    errors = [name for name in strandline.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in text] == []


def test_every_feature_has_a_row_with_its_status_and_proof() -> None:
    rows = {row[0]: row for row in table_rows(DOCS / "features.md") if row[0] in FEATURE_ROWS}
    assert list(rows) == FEATURE_ROWS
    for number, row in rows.items():
        _, _, status, proof = row
        assert status in {"works", "partly", "not yet"}, number
        assert (status == "not yet") == (not TEST_NAME.findall(proof)), number


@pytest.mark.parametrize("page", [path for path in DOCUMENTS if TEST_NAME.search(text_of(path))], ids=name_of)
def test_every_proof_is_a_test(page: Path) -> None:
    for file, name in TEST_NAME.findall(text_of(page)):
        source = ROOT / file
        assert source.exists(), file
        assert re.search(rf"^(?:async )?def {name}\(", text_of(source), re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_pictures_say_what_they_show(path: Path) -> None:
    names = {child.tag.rpartition("}")[2] for child in ElementTree.parse(path).getroot()}  # noqa: S314  # our own
    assert {"title", "desc"} <= names


def variables() -> dict[str, str]:
    """Environment variables by the field that each one sets."""
    return {
        str(info.validation_alias or f"STRANDLINE_{name.upper()}"): name
        for name, info in Settings.model_fields.items()
    }


def command_named(words: list[str]) -> click.Command | None:
    """The command that the words begin with, a subcommand included; None if they begin with no command."""
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    if isinstance(command, click.Group) and len(words) > 1:
        return command.get_command(context, words[1])
    return command
