"""The migrations: files of SQL in ``schemas/sql/migrations``, each a sequence of steps.

The first makes an empty schema's tables and functions.  Each later step has one of ``FORMS``: it can be run
again, and lets puts pass: it holds its lock for a moment, or its lock does not conflict with theirs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from strandline.schemas.postgres.statements import function_source

FOLDER: Traversable = resources.files("strandline.schemas") / "sql" / "migrations"

FIRST = "0001"
# Ends a table of the first migration that can be divided by owner.
DIVIDED = "-- divided"
# A step that is the function of this name.
FUNCTION = "-- function: "
_STEP = re.compile(r"^-- step: (.+)\n", re.MULTILINE)

# Bytes of a table that an index is assumed to be built from in a second.
INDEXED_PER_SECOND = 20_000_000


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of statement that a step may have.

    Attributes:
        lock: its lock on the existing table that ``pattern`` names; empty: none.
        concurrent: it reads the whole table outside of a transaction, while puts continue.
    """

    pattern: re.Pattern[str]
    lock: str = ""
    concurrent: bool = False


def _form(pattern: str, lock: str = "", *, concurrent: bool = False) -> Form:
    return Form(re.compile(pattern, re.DOTALL), lock, concurrent)


_TABLE = r"strandline\.(?P<table>\w+)"
# A type that checks its values, a computed default, or a generated column would look at each row.
_TYPE = (
    r"(?i:text|boolean|smallint|integer|bigint|numeric|double precision|uuid|date|timestamptz"
    r"|timestamp with time zone|jsonb?|bytea|halfvec)(\[\])?"
)
_COLUMN = rf"\w+ {_TYPE}( DEFAULT (''|\d+|true|false)( NOT NULL)?)?"
# A form is that of the whole statement, in which each text and comment is ``''``, and without _COLLATION.
_LITERAL = re.compile(r"'(?:[^'\\]|'')*'|--[^\n]*|\$function\$.*?\$function\$", re.DOTALL)
_COLLATION = ' COLLATE "C"'
# Why no form lets a statement through that has this outside of its texts.
_REFUSED = {
    r";|/\*|[$\"\\]": "it has to be one statement, without quoted names",
    r"\b(REFERENCES|PARTITION\s+OF|INHERITS)\b": "it would lock a second table, which a put may wait for",
    r"\b\w*SERIAL\d?\b": "a serial column would be written to each row of a table",
}
FORMS = (
    _form(r"CREATE TABLE IF NOT EXISTS strandline\.\w+ \((?!.*\)\s*AS\s+\w).*\)"),
    _form(r"CREATE OR REPLACE FUNCTION strandline\.\w+\(.*"),
    _form(r"DROP FUNCTION IF EXISTS strandline\.\w+(\([^()]*\))?"),
    _form(rf"COMMENT ON TABLE {_TABLE} IS ''", "SHARE UPDATE EXCLUSIVE"),
    _form(rf"CREATE OR REPLACE TRIGGER \w+ .+? ON {_TABLE} .+", "SHARE ROW EXCLUSIVE"),
    _form(rf"ALTER TABLE {_TABLE} ADD COLUMN IF NOT EXISTS {_COLUMN}", "ACCESS EXCLUSIVE"),
    _form(rf"ALTER TABLE {_TABLE} ALTER COLUMN \w+ SET STATISTICS -?\d+", "SHARE UPDATE EXCLUSIVE"),
    _form(
        rf"CREATE (UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (?P<index>\w+) ON {_TABLE} .+",
        "SHARE UPDATE EXCLUSIVE",
        concurrent=True,
    ),
)
# Of a divided table, once each partition has it: it is built from theirs.
_JOINED = _form(rf"CREATE (UNIQUE )?INDEX IF NOT EXISTS (?P<index>\w+) ON {_TABLE} .+", "SHARE")
_OF_TABLE = re.compile(r"(?:CREATE|ALTER) TABLE (?:IF NOT EXISTS )?strandline\.(\w+)")
_OF_COLUMN = re.compile(r"(?:^\t|ADD COLUMN IF NOT EXISTS )([a-z]\w*) ", re.MULTILINE)
_OF_FUNCTION = re.compile(r"(CREATE|DROP) (?:OR REPLACE )?FUNCTION (?:IF EXISTS )?strandline\.(\w+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a migration; ``joins``: it makes a divided table's index from those of its parts."""

    revision: str
    text: str
    sql: str
    joins: bool = False

    @property
    def form(self) -> tuple[Form, Mapping[str, str]]:
        """The form, with the names of its ``table`` and ``index``.

        Raises:
            ValueError: it has none of ``FORMS``, or something that they would let through.
        """
        words = _LITERAL.sub("''", self.sql).replace(_COLLATION, "").removesuffix(";")
        reasons = [why for word, why in _REFUSED.items() if re.search(word, words, re.IGNORECASE)]
        for form in () if reasons else (_JOINED,) if self.joins else FORMS:
            if match := form.pattern.fullmatch(words):
                return form, match.groupdict()
        reason = next(iter(reasons), "it has none of the forms that may be run")
        raise ValueError(f"migration {self.revision}: {self.text}: the step is refused: {reason}")

    def spread(self, partitions: Sequence[str]) -> Iterator[Step]:
        """The steps for a table with ``partitions``: an index is built on each, one by one."""
        form, names = self.form
        if form.concurrent and partitions:
            for part in partitions:
                sql = self.sql.replace(
                    f" {names['index']} ON strandline.{names['table']} ",
                    f" {part}_{names['index']} ON strandline.{part} ",
                )
                yield replace(self, text=f"{self.text}, of {part}", sql=sql)
            yield replace(self, sql=self.sql.replace(" CONCURRENTLY", "", 1), joins=True)
        else:
            yield self


@cache
def revisions() -> tuple[str, ...]:
    """The revisions of this release, the oldest first."""
    return tuple(sorted(_files()))


def steps_after(revision: str) -> list[Step]:
    """The steps that bring tables at ``revision`` to this release."""
    later = revisions()[revisions().index(revision) + 1 :]
    return [Step(each, text, or_replace(sql)) for each in later for text, sql in _read(each)]


def or_replace(source: str) -> str:
    """``source`` of a function, for a schema that may have it."""
    return source.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def functions_at(revision: str) -> list[str]:
    """The stored functions that tables at ``revision`` have, in the order of their names."""
    names: set[str] = set()
    for each in revisions()[: revisions().index(revision) + 1]:
        for _text, sql in _read(each):
            if match := _OF_FUNCTION.match(sql):
                (names.add if match[1] == "CREATE" else names.discard)(match[2])
    return sorted(names)


def is_newer(revision: str) -> bool:
    """Whether a later release numbers its tables so: it adds to them, so this release runs on them."""
    return re.fullmatch(r"\d{4}", revision) is not None and revision > revisions()[-1]


def columns_at(revision: str) -> set[str]:
    """The columns that tables at ``revision`` have, as ``table.column``."""
    columns: set[str] = set()
    for each in revisions():
        for _text, sql in _read(each) if each <= revision else ():
            if match := _OF_TABLE.match(sql):
                columns |= {f"{match[1]}.{name}" for name in _OF_COLUMN.findall(sql)}
    return columns


def first_statements(partitions: int) -> Iterator[str]:
    """All statements of the first migration, with ``DIVIDED`` tables in so many partitions; 0: whole."""
    for _text, sql in _read(FIRST):
        if not partitions or not sql.endswith(DIVIDED):
            yield sql
            continue
        yield f"{sql.removesuffix(DIVIDED)}PARTITION BY HASH (shard_key)"
        table = sql.split()[2]
        for number in range(partitions):
            yield (
                f"CREATE TABLE {table}_p{number} PARTITION OF {table}"
                f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            )


def digest(revision: str) -> str:
    """Of everything that a migration executes."""
    executed = [sql for _text, sql in _read(revision)]
    if revision == FIRST:
        executed = [*first_statements(0), *first_statements(2)]
    return hashlib.sha256("\n".join(executed).encode()).hexdigest()


def _read(revision: str) -> Iterator[tuple[str, str]]:
    pieces = _STEP.split(_files()[revision].read_text(encoding="utf-8"))[1:]
    for text, sql in zip(pieces[::2], pieces[1::2], strict=True):
        statement = sql.strip()
        if statement.startswith(FUNCTION):
            source = function_source(statement.removeprefix(FUNCTION), "strandline")
            statement = source[source.index("CREATE FUNCTION") :].strip()
        yield text, statement


def _files() -> dict[str, Traversable]:
    return {file.name[:4]: file for file in FOLDER.iterdir() if file.name.endswith(".sql")}


HEAD_REVISION = revisions()[-1]
