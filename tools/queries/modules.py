"""The Python of ``schemas/queries``, from the headers of ``schemas/sql``."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from strandline.schemas.sealing.marks import Mark, Marks
from tools.queries.erasing import write_plan
from tools.queries.exporting import write_lines
from tools.queries.headers import SQL, Field, Header, class_name, read_headers
from tools.queries.resealing import write_list

QUERIES = SQL.parent / "queries"
# Which files of SQL go to which folder: a folder has at most thirteen modules.
ROOMS = {
    "work": ("lanes", "limits", "dead_letters", "overflow", "workers", "states"),
    "conversation": ("messages", "sessions", "flush", "read", "runs", "search", "sharing", "retention"),
    "application": ("items", "sealing", "resealing", "service"),
    "audit": ("audit",),
    "derived": ("facts_merge", "facts_edit", "capture", "generations", "replay"),
    "inspection": ("verify", "explain", "status"),
    "upkeep": ("erasures", "erasing", "export", "exporting"),
}
WIDTH = 110

# As psycopg reads them; JSON goes in and comes out as text.
TYPES = {
    "bigint": "int",
    "boolean": "bool",
    "bytea": "bytes",
    "date": "date",
    "float8": "float",
    "halfvec": "str",
    "integer": "int",
    "json": "str",
    "jsonb": "str",
    "name": "str",
    "numeric": "Decimal",
    "smallint": "int",
    "text": "str",
    "timestamptz": "datetime",
    "uuid": "UUID",
    "varchar": "str",
    "void": "str",
}
_FROM = {
    "date": "datetime",
    "datetime": "datetime",
    "Decimal": "decimal",
    "NamedTuple": "typing",
    "Never": "typing",
    "UUID": "uuid",
}


def write_modules() -> dict[Path, str]:
    """Each module's text by its path."""
    written = {QUERIES / "__init__.py": '"""Statements as typed classes; written by `make queries`."""\n'}
    shared: dict[str, tuple[Field, ...]] = {}
    for room, files in ROOMS.items():
        written[QUERIES / room / "__init__.py"] = (
            f'"""Statements about {room}; written by `make queries`."""\n'
        )
        for file in files:
            headers = read_headers(SQL / f"{file}.sql")
            written[QUERIES / room / f"{file}.py"] = _format("\n".join(_module(file, headers)))
            for header in headers:
                _share_row(header, shared)
    written[QUERIES / "resealed.py"] = _format("\n".join(write_list()))
    written[QUERIES / "erased.py"] = _format("\n".join(write_plan()))
    written[QUERIES / "exported.py"] = _format("\n".join(write_lines()))
    written[QUERIES / "rows.py"] = _format("\n".join(_shared_rows(shared)))
    return written


def _share_row(header: Header, shared: dict[str, tuple[Field, ...]]) -> None:
    """Note a row that is not the statement's own.

    Raises:
        ValueError: another statement has a row of this name, with other types.
    """
    if header.row_name is not None:
        known = shared.setdefault(header.row_name, header.row)
        if [_python(field) for field in known] != [_python(field) for field in header.row]:
            raise ValueError(f"{header.name}: a row {header.row_name!r} with other types is there already")


def _shared_rows(rows: Mapping[str, tuple[Field, ...]]) -> Iterator[str]:
    classes = "\n".join(line for name in sorted(rows) for line in _row(class_name(name) + "Row", rows[name]))
    yield '"""Rows that several statements may have.  Written by `make queries`."""'
    yield from _imports(classes)
    yield classes


def _module(file: str, headers: Iterable[Header]) -> Iterator[str]:
    headers = list(headers)
    classes = "\n".join(line for header in headers for line in _statement(header))
    yield f'"""The statements of ``schemas/sql/{file}.sql``.  Written by `make queries`."""'
    yield from _imports(classes)
    yield "from strandline.schemas.postgres.query import Query"
    if shared := sorted({row_class(header) for header in headers if header.row_name}):
        yield f"from strandline.schemas.queries.rows import {', '.join(shared)}"
    if "Marks(" in classes:
        needed = "Mark, Marks" if "Mark(" in classes else "Marks"
        yield f"from strandline.schemas.sealing.marks import {needed}"
    yield classes


def _imports(classes: str) -> Iterator[str]:
    yield "from __future__ import annotations"
    yield ""
    names = [name for name in _FROM if re.search(rf"\b{name}\b", classes)]
    if "builtins." in classes:
        yield "import builtins"
    for package in sorted({_FROM[name] for name in names}):
        yield f"from {package} import {', '.join(name for name in names if _FROM[name] == package)}"
    yield ""


def _statement(header: Header) -> Iterator[str]:
    if header.row and header.row_name is None:
        yield from _row(row_class(header), header.row)
    row = row_class(header) if header.row else "Never"
    options = ", repeatable=True" if header.is_repeatable else ""
    options += ", lone=True" if header.sql.startswith("VACUUM") else ""
    yield f'\nclass {class_name(header.name)}(Query[{row}], name="{header.name}"{options}):'
    yield from _docstring(header.meaning)
    yield ""
    if (marks := header.marks) is not None:
        yield from _marks(marks)
    hidden = any(field.name == "bytes" for field in header.params)
    for field in header.params:
        kind = _python(field, given=True)
        yield f"    {field.name}: {kind.replace('bytes', 'builtins.bytes') if hidden else kind}"


def _row(name: str, columns: Iterable[Field]) -> Iterator[str]:
    yield f"\nclass {name}(NamedTuple):"
    yield from (f"    {field.name}: {_python(field)}" for field in columns)


def _marks(marks: Marks) -> Iterator[str]:
    """The marks, as they are written; fields that have their defaults are left out."""
    fields = [f"owner={marks.owner}"]
    if marks.owner_column is not None:
        fields.append(f"owner_column={marks.owner_column}")
    for name in ("seals", "opens"):
        if listed := getattr(marks, name):
            fields.append(f"{name}=({', '.join(map(_mark, listed))},)")
    yield f"    marks = Marks({', '.join(fields)})"


def _mark(mark: Mark) -> str:
    arguments = [str(mark.place), repr(mark.form)]
    if mark.kind or mark.bound is not None:
        arguments.append(repr(mark.kind))
    if mark.bound is not None:
        arguments.append(str(mark.bound))
    return f"Mark({', '.join(arguments)})"


def row_class(header: Header) -> str:
    """The class of a statement's row."""
    return class_name(header.row_name or header.name) + "Row"


def _python(field: Field, *, given: bool = False) -> str:
    # A number with a fraction is given to Postgres as either; it comes as what it is there.
    kind = "Decimal | float" if given and field.type == "numeric" else TYPES[field.type]
    if field.is_array:
        kind = f"list[{kind} | None]" if field.items_may_be_null else f"list[{kind}]"
    return f"{kind} | None" if field.may_be_null else kind


def _docstring(meaning: str) -> Iterator[str]:
    lines = textwrap.wrap(meaning, WIDTH - 4 - 3)
    if len(lines) == 1 and len(lines[0]) <= WIDTH - 4 - 6:
        yield f'    """{lines[0]}"""'
        return
    yield f'    """{lines[0]}'
    yield from (f"    {line}" for line in lines[1:])
    yield '    """'


def _format(text: str) -> str:
    """As ruff formats it, with the settings of the project."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(QUERIES / "module.py"), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=SQL)
    return done.stdout
