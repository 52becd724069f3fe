"""The statements: SQL read from the ``.sql`` files, addressed by name, bound to one schema.

In the files the tables are written as ``strandline.…``; another schema name is substituted when a process
starts.  That name is checked by the settings, and never comes from a request.

Text that several statements share is in ``sql/fragments``, and replaces ``@name(arguments)``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

_SQL = resources.files("strandline.schemas") / "sql"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# Comments that ``tools.queries`` reads above each statement: nothing that Postgres has to know.
_TYPES = re.compile(
    r"^-- (?:(?:params|row|seals|opens|owner): .*\n(?:--    .*\n)*|repeatable\n)", re.MULTILINE
)
_FRAGMENT = re.compile(r"^-- fragment: (\w+)\(([\w, ]*)\)$", re.MULTILINE)
_USE = re.compile(r"@(\w+)\(")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_QUALIFIER = re.compile(r"\bstrandline\.")


@cache
def statements(schema: str) -> Mapping[str, str]:
    """All statements by name, for tables that live in ``schema``."""
    statements_by_name: dict[str, str] = {}
    for file in _files():
        pieces = _NAME.split(file.read_text(encoding="utf-8"))[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            if name in statements_by_name:
                raise ValueError(f"statement {name!r} is defined twice")
            statements_by_name[name] = in_schema(with_fragments(_TYPES.sub("", body.strip())), schema)
    return MappingProxyType(statements_by_name)


@cache
def compile_statements(schema: str) -> Mapping[str, bytes]:
    """All statements by name as Postgres reads them: ``$1``, ``$2``, … for parameters, as they come first.

    Otherwise psycopg parses statements of over 4,096 characters at each call, which takes a tenth of a
    millisecond for the longest.
    """
    return MappingProxyType({name: _compile(sql) for name, sql in statements(schema).items()})


def _compile(sql: str) -> bytes:
    places: dict[str, int] = {}
    numbered = _PARAMETER.sub(lambda match: f"${places.setdefault(match[1], len(places) + 1)}", sql)
    return numbered.encode()


def function_source(name: str, schema: str) -> str:
    """The ``CREATE FUNCTION`` text of a stored function; its name ends in its version."""
    return in_schema(with_fragments((_SQL / f"functions/{name}.sql").read_text(encoding="utf-8")), schema)


def differing_functions(names: Iterable[str], stored: Collection[tuple[str, str]], schema: str) -> list[str]:
    """The ``names`` that ``stored`` (names with digests) lacks, or has with another body than here."""
    return [name for name in names if (name, _digest(name, schema)) not in stored]


def _digest(name: str, schema: str) -> str:
    body = function_source(name, schema).partition("$function$")[2].partition("$function$")[0]
    return hashlib.sha256(body.encode()).hexdigest()


def with_fragments(sql: str) -> str:
    """``sql`` with the text of each fragment that it uses in its place."""
    while used := _USE.search(sql):
        arguments, end = _arguments(sql, used.end())
        sql = sql[: used.start()] + _filled(used[1], arguments) + sql[end:]
    return sql


def _filled(name: str, arguments: list[str]) -> str:
    parameters, text = _fragments()[name]
    for parameter, argument in zip(parameters, arguments, strict=True):
        text = text.replace(f"{{{parameter}}}", argument)
    return text


def _arguments(sql: str, start: int) -> tuple[list[str], int]:
    """The arguments after the parenthesis that ends at ``start``, and where the closing one ends."""
    arguments, depth, begin, quoted = [], 0, start, False
    for place in range(start, len(sql)):
        letter = sql[place]
        quoted ^= letter == "'"
        if quoted:
            continue
        if depth == 0 and letter in ",)":
            arguments.append(sql[begin:place].strip())
            begin = place + 1
            if letter == ")":
                return [argument for argument in arguments if argument], begin
        depth += (letter in "([") - (letter in ")]")
    raise ValueError(f"a fragment's parenthesis is not closed: {sql[start : start + 40]!r}")


@cache
def _fragments() -> Mapping[str, tuple[tuple[str, ...], str]]:
    fragments = {}
    for file in _files("fragments"):
        pieces = _FRAGMENT.split(file.read_text(encoding="utf-8"))[1:]
        for name, parameters, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            fragments[name] = (tuple(re.findall(r"\w+", parameters)), _COMMENT.sub("", text).strip())
    return MappingProxyType(fragments)


def in_schema(sql: str, schema: str) -> str:
    """``sql`` with its tables and functions qualified by ``schema``."""
    return _QUALIFIER.sub(f"{schema}.", sql)


def function_names() -> list[str]:
    """The stored functions, each in a file of its name, in the order of their names."""
    return [file.name.removesuffix(".sql") for file in _files("functions")]


def _files(folder: str = "") -> list[Traversable]:
    files = (_SQL / folder).iterdir()
    return sorted((file for file in files if file.name.endswith(".sql")), key=lambda file: file.name)
