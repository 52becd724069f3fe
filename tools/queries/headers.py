"""Headers: the name, meaning, parameters and row that stand above each statement in ``schemas/sql/*.sql``.

::

    -- name: claim_session
    -- Write the directory entry of a new session, or find whose it is already.
    -- params: session_id text
    -- row: user_id text?, owner_key uuid
    -- repeatable

``params`` has the types of parameters that ``params.txt`` does not give by their names.  A statement that
only reads is repeatable without saying so.

``text?`` may be NULL, ``text?[]`` is an array whose items may be.  ``text!`` is NULL only where the last
column before it with ``?`` is, as the columns of an outer join are; whoever reads it looks at that one first.
A list goes on in lines that begin with ``--`` and four spaces.

Where content may be sealed, lines say how (``schemas/sealing/marks.py``): the column or parameter, the form,
the kind of content, and the column or parameter that it belongs to::

    -- seals: envelope, expected digest
    -- opens: envelope, metadata, topic name topic
    -- owner: shard_key

A name alone is sealed as ``schemas/tables`` declares all columns of this name.  ``owner`` is a parameter or a
column; by default it is the parameter ``shard_key``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from strandline.schemas import tables
from strandline.schemas.postgres.statements import with_fragments
from strandline.schemas.sealing.marks import Form, Mark, Marks
from strandline.schemas.tables.base import SEALED

SQL = Path(__file__).resolve().parent.parent.parent / "schemas" / "sql"

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FIELD = re.compile(r"(\w+) (\w+)(\??)(\[\])?([?!]?)")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_COMMENT = re.compile(r"--.*")
# Our functions may write.
_WRITES = re.compile(
    r"\b(?:INSERT|UPDATE|DELETE|FOR (?:NO )?(?:KEY )?(?:UPDATE|SHARE)|set_config|pg_advisory\w*)\b|_v\d+\("
)
_LISTS = ("params", "row", "seals", "opens", "owner")
_FORMS = get_args(Form)


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a column of a row.

    Attributes:
        may_be_null: by itself.
        follows: the column that is NULL wherever this one is (``!``).
    """

    name: str
    type: str
    is_array: bool
    items_may_be_null: bool
    may_be_null: bool
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """The lines above one statement; ``sql`` is the statement itself.

    Attributes:
        params: as they come first in the statement, which is how it numbers them.
        row_name: of a row that other statements have too; None: of this one alone.
    """

    name: str
    meaning: str
    params: tuple[Field, ...]
    row: tuple[Field, ...]
    is_repeatable: bool
    sql: str
    seals: tuple[tuple[str, ...], ...] = ()
    opens: tuple[tuple[str, ...], ...] = ()
    owner: str = "shard_key"
    row_name: str | None = None

    @property
    def marks(self) -> Marks | None:
        """What of it may be sealed, by places; None if nothing may."""
        if not (self.seals or self.opens):
            return None
        params = [field.name for field in self.params]
        columns = [field.name for field in self.row]
        if self.owner not in params and self.owner not in columns:
            raise ValueError(f"{self.name}: its owner, {self.owner!r}, is neither a parameter nor a column")
        return Marks(
            params.index(self.owner) if self.owner in params else None,
            None if self.owner in params else columns.index(self.owner),
            tuple(_mark(self.name, words, params) for words in self.seals),
            tuple(_mark(self.name, words, columns) for words in self.opens),
        )


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def read_headers(path: Path) -> list[Header]:
    """The headers of a file, in its order."""
    pieces = _NAME.split(path.read_text(encoding="utf-8"))[1:]
    return [_read(name, body.strip("\n")) for name, body in zip(pieces[::2], pieces[1::2], strict=True)]


def read_all() -> dict[str, Header]:
    """The headers of all files, by the statement's name."""
    return {header.name: header for path in sorted(SQL.glob("*.sql")) for header in read_headers(path)}


@cache
def named_rows() -> dict[str, tuple[Field, ...]]:
    """The rows that ``rows.txt`` names, by name."""
    rows = {}
    for paragraph in (SQL / "rows.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        name, _, columns = paragraph.partition(":")
        rows[name] = tuple(_fields(name, columns.split("\n")))
    return rows


@cache
def named_types() -> dict[str, Field]:
    """The parameters whose types ``params.txt`` gives by their names."""
    types: dict[str, Field] = {}
    for line in (SQL / "params.txt").read_text(encoding="utf-8").replace("\n    ", " ").splitlines():
        kind, _, names = line.partition(":")
        types |= {field.name: field for name in names.split() for field in _fields(name, [f"{name} {kind}"])}
    return types


def params_line(params: Mapping[str, str]) -> Iterator[str]:
    """The line with the types of a statement's parameters, as far as their names do not give them."""
    said = [f"{name} {kind}" for name, kind in params.items()]
    said = [text for text in said if next(_fields(text, [text])) not in named_types().values()]
    if said:
        yield f"-- params: {', '.join(said)}"


def row_named(columns: str) -> str:
    """The name of the row with these columns, if it has one; else the columns."""
    fields = tuple(_fields("", [columns]))
    return next((name for name, row in named_rows().items() if row == fields), columns)


def _row(name: str, lines: list[str]) -> tuple[str | None, tuple[Field, ...]]:
    """A row's name if it is shared, and its columns; a single column is the name of its row."""
    if len(lines) == 1 and lines[0] in named_rows():
        return lines[0], named_rows()[lines[0]]
    fields = tuple(_fields(name, lines))
    return (fields[0].name if len(fields) == 1 else None), fields


def _read(name: str, body: str) -> Header:
    lines = body.split("\n")
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    said: dict[str, list[str]] = {"meaning": []}
    place = "meaning"
    for line in lines[:end]:
        text = line.removeprefix("--")
        key, colon, rest = text.strip().partition(":")
        if text.strip() == "repeatable":
            place = "repeatable"
            said[place] = []
        elif colon and key in _LISTS:
            place = key
            said[place] = [rest.strip()]
        elif place in _LISTS and not text.startswith("    "):
            raise ValueError(f"{name}: {line!r} continues nothing")
        else:
            said[place].append(text.strip())
    row_name, row = _row(name, said.get("row", []))
    sql = "\n".join(lines[end:])
    return Header(
        name,
        " ".join(said["meaning"]),
        tuple(_params(name, said.get("params", []), sql)),
        row,
        "repeatable" in said or _only_reads(sql),
        sql,
        tuple(_marks(said.get("seals", []))),
        tuple(_marks(said.get("opens", []))),
        said.get("owner", ["shard_key"])[0],
        row_name,
    )


def _params(name: str, lines: list[str], sql: str) -> Iterator[Field]:
    used = dict.fromkeys(_PARAMETER.findall(with_fragments(sql)))
    said = {field.name: field for field in _fields(name, lines)}
    types = named_types() | said
    if wrong := (said.keys() - used) | (used.keys() - types):
        raise ValueError(
            f"{name}: in the statement or in its header, and not in both: {', '.join(sorted(wrong))}"
        )
    return (types[name] for name in used)


def _only_reads(sql: str) -> bool:
    plain = with_fragments(_COMMENT.sub("", sql)).strip()
    return plain.startswith(("SELECT", "WITH")) and not _WRITES.search(plain)


def _marks(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """The words of each mark; a name alone has those that the tables declare."""
    for text in filter(None, " ".join(lines).split(",")):
        name, *words = text.split()
        yield name, *(words or _declared_forms().get(name, ()))


@cache
def _declared_forms() -> dict[str, tuple[str, ...]]:
    """How the columns of each name are sealed, if all are in the same way."""
    forms: dict[str, set[str]] = {}
    for table in tables.metadata.tables.values():
        for column in table.columns:
            if column.info.get(SEALED):
                forms.setdefault(column.name, set()).add(column.info[SEALED])
    return {name: tuple(found.pop().split()) for name, found in forms.items() if len(found) == 1}


def _mark(statement: str, words: tuple[str, ...], names: list[str]) -> Mark:
    """A mark: the name of a column or parameter, its form, its kind, and the name that it is bound to."""
    name, form, kind, bound = (*words, "", "", "")[:4]
    kind = "" if kind == "-" else kind
    if name not in names or form not in _FORMS or (bound and bound not in names):
        raise ValueError(f"{statement}: {' '.join(words)!r} is not 'name form [kind [bound to]]'")
    return Mark(names.index(name), form, kind, names.index(bound) if bound else None)  # type: ignore[arg-type]


def _fields(name: str, lines: list[str]) -> Iterator[Field]:
    anchor = None
    for text in filter(None, " ".join(lines).split(",")):
        parts = _FIELD.fullmatch(text.strip())
        if parts is None:
            raise ValueError(f"{name}: {text.strip()!r} is not 'name type'")
        column, kind, inner, brackets, mark = parts.groups(default="")
        is_array = bool(brackets)
        may_be_null = mark == "?" or (inner == "?" and not is_array)
        yield Field(
            column, kind, is_array, is_array and inner == "?", may_be_null, anchor if mark == "!" else None
        )
        anchor = column if may_be_null else anchor
