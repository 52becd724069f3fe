"""SQL as trees, by the parser of Postgres itself (pglast): statements, and those inside stored functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pglast

from strandline.schemas.postgres.statements import compile_statements, function_names, function_source

SCHEMA = "strandline"
Tree = dict[str, Any]
_ROW_TYPE = re.compile(r"\bstrandline\.\w+%ROWTYPE")
_ASSIGNMENT = re.compile(r"\s*[\w.]+\s*:?=\s*")


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One statement: where it stands, its tree, and the names of a function's variables, which are values."""

    origin: str
    tree: Tree
    variables: frozenset[str] = frozenset()


def file_statements() -> list[ParsedStatement]:
    """The statements of the files, by their names."""
    return [
        ParsedStatement(name, _only_tree(statement.decode().replace("%%", "%")))
        for name, statement in compile_statements(SCHEMA).items()
    ]


def function_statements() -> list[ParsedStatement]:
    """The contents of the stored functions' bodies: statements, conditions and assigned expressions."""
    return [statement for name in function_names() for statement in _body(function_source(name, SCHEMA))]


def parsed(sql: str) -> list[ParsedStatement]:
    """The statements of some text: a plain statement, or those of the function that it creates."""
    if sql.lstrip().startswith("CREATE FUNCTION"):
        return _body(sql)
    return [ParsedStatement("text", _only_tree(sql))]


def function_header(sql: str) -> Tree:
    """The tree of a ``CREATE FUNCTION``."""
    return _only_tree(sql)


def option(function: Tree, name: str) -> Any:
    """One option of a ``CREATE FUNCTION`` (language, volatility, as, set); None if it has none."""
    for given in function.get("options", ()):
        if given["defname"] == name:
            return given["arg"]
    return None


def nodes(tree: object) -> Iterator[Tree]:
    """Every node of a tree, the outer ones first."""
    if isinstance(tree, dict):
        if "@" in tree:
            yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from nodes(value)


def names(fields: object) -> tuple[str, ...]:
    """The parts of a qualified name."""
    parts = fields if isinstance(fields, list | tuple) else ()
    return tuple(part["sval"] for part in parts if part.get("@") == "String")


def tables(tree: Tree) -> list[str]:
    """The tables of the schema that a statement names, also in its sub-selects."""
    return [
        node["relname"]
        for node in nodes(tree)
        if node["@"] == "RangeVar" and node.get("schemaname") == SCHEMA
    ]


def calls(tree: Tree) -> list[tuple[str, ...]]:
    """The functions that a statement calls, by their names as they are written."""
    return [names(node["funcname"]) for node in nodes(tree) if node["@"] == "FuncCall"]


def _body(source: str) -> list[ParsedStatement]:
    header = function_header(source)
    name = names(header["funcname"])[-1]
    parameters = [each.get("name") for each in header.get("parameters", ())]
    variables = frozenset(each for each in parameters if each)
    if "sql_body" in header:
        return [ParsedStatement(name, header["sql_body"], variables)]
    body = option(header, "as")[0]["sval"]
    if option(header, "language")["sval"] == "sql":
        return [ParsedStatement(name, tree, variables) for tree in _trees(body)]
    return _plpgsql(name, source)


def _plpgsql(name: str, source: str) -> list[ParsedStatement]:
    # The parser knows no tables, so a row of one is a record to it.
    (function,) = pglast.parse_plpgsql(_ROW_TYPE.sub("record", source))
    variables = frozenset(
        datum["refname"]
        for each in function["PLpgSQL_function"]["datums"]
        for datum in each.values()
        if "refname" in datum
    )
    return [ParsedStatement(name, tree, variables) for tree in _expressions(function)]


def _expressions(node: object) -> Iterator[Tree]:
    if isinstance(node, list):
        for each in node:
            yield from _expressions(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "PLpgSQL_expr":
                yield _expression(value["query"], value["parseMode"])
            else:
                yield from _expressions(value)


def _expression(query: str, mode: int) -> Tree:
    # As RawParseMode says: 0 is a statement, 2 an expression, 3 to 5 an assignment.
    if mode == 0:
        return _only_tree(query)
    return _only_tree("SELECT " + (query if mode == 2 else _ASSIGNMENT.sub("", query, count=1)))


def _only_tree(sql: str) -> Tree:
    (tree,) = _trees(sql)
    return tree


def _trees(sql: str) -> list[Tree]:
    parsed: Any = pglast.parse_sql(sql)
    return [statement.stmt(skip_none=True) for statement in parsed]
