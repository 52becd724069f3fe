"""The Python of ``schemas/queries``, from the headers of ``schemas/sql``."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from strandline.schemas.sealing.marks import Mark, Marks
from tools.queries.headers import SQL, Field, Header, read_headers

QUERIES = SQL.parent / "queries"
# Which files of SQL go to which folder: a folder has at most thirteen modules.
ROOMS = {
    "work": ("lanes", "limits", "dead_letters", "overflow", "workers", "states"),
    "conversation": ("messages", "sessions", "flush", "read", "runs", "search", "sharing", "retention"),
    "application": ("items", "sealing", "resealing", "service"),
    "audit": ("audit",),
    "derived": ("facts_merge", "facts_edit", "capture", "generations", "replay"),
    "inspection": ("verify", "explain", "status"),
    "upkeep": ("erasures", "export"),
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
    for room, files in ROOMS.items():
        written[QUERIES / room / "__init__.py"] = (
            f'"""Statements about {room}; written by `make queries`."""\n'
        )
        for file in files:
            headers = read_headers(SQL / f"{file}.sql")
            written[QUERIES / room / f"{file}.py"] = _format("\n".join(_module(file, headers)))
    return written


def _module(file: str, headers: Iterable[Header]) -> Iterator[str]:
    classes = "\n".join(line for header in headers for line in _statement(header))
    yield f'"""The statements of ``schemas/sql/{file}.sql``.  Written by `make queries`."""'
    yield "from __future__ import annotations"
    yield ""
    names = [name for name in _FROM if re.search(rf"\b{name}\b", classes)]
    for package in sorted({_FROM[name] for name in names}):
        yield f"from {package} import {', '.join(name for name in names if _FROM[name] == package)}"
    yield ""
    yield "from strandline.schemas.postgres.query import Query"
    if "Marks(" in classes:
        needed = "Mark, Marks" if "Mark(" in classes else "Marks"
        yield f"from strandline.schemas.sealing.marks import {needed}"
    yield classes


def _statement(header: Header) -> Iterator[str]:
    title = class_name(header.name)
    if header.row:
        yield f"\nclass {title}Row(NamedTuple):"
        yield from (f"    {field.name}: {_python(field)}" for field in header.row)
    yield f"\nclass {title}(Query[{title + 'Row' if header.row else 'Never'}]):"
    yield from _docstring(header.meaning)
    yield "\n    __slots__ = ()"
    yield f'    name = "{header.name}"'
    if header.is_repeatable:
        yield "    repeatable = True"
    if header.row:
        yield f"    row = {title}Row"
    if (marks := header.marks) is not None:
        yield from _marks(marks)
    if header.params:
        yield from _init(header.params_in_order)


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


def _init(params: list[Field]) -> Iterator[str]:
    named = ", ".join(f"{field.name}: {_python(field, given=True)}" for field in params)
    yield f"\n    def __init__(self, *, {named}) -> None:"
    comma = "," if len(params) == 1 else ""
    yield f"        self.values = ({', '.join(field.name for field in params)}{comma})"


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


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
