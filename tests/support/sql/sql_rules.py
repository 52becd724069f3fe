"""What an engine that spreads tables over nodes by ``shard_key`` refuses in a statement, or gets wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from strandline.schemas.tables import metadata
from tests.support.sql.sql_trees import SCHEMA, ParsedStatement, Tree, calls, names, nodes, tables

SHARDED = frozenset(table.name for table in metadata.tables.values() if "shard_key" in table.c)


def volatile_calls(statement: ParsedStatement, volatile: frozenset[str]) -> list[str]:
    """The volatile functions that a statement calls which names a table."""
    if not tables(statement.tree):
        return []
    return [call[-1] for call in calls(statement.tree) if call[-1] in volatile and call[0] != SCHEMA]


def conflict_calls(statement: ParsedStatement, mutable: frozenset[str]) -> list[str]:
    """The functions in ``ON CONFLICT`` clauses that give another value at another time."""
    clauses = [node for node in nodes(statement.tree) if node["@"] == "OnConflictClause"]
    return [call[-1] for clause in clauses for call in calls(clause) if call[-1] in mutable]


def calls_beside_tables(statement: ParsedStatement, reading: frozenset[str]) -> list[str]:
    """The functions which use tables that a statement calls which names a table itself."""
    if not tables(statement.tree):
        return []
    return [call[-1] for call in calls(statement.tree) if call[-1] in reading]


def row_addresses(statement: ParsedStatement) -> list[str]:
    """The columns that say where a row lies (``ctid``), which it does on its node alone."""
    return [
        ".".join(names(node["fields"]))
        for node in nodes(statement.tree)
        if node["@"] == "ColumnRef" and names(node["fields"])[-1:] == ("ctid",)
    ]


def unkeyed_tables(statement: ParsedStatement) -> list[str]:
    """The sharded tables, by alias, whose shard key is not given by value.

    In each query level (a statement, a sub-select, a CTE) each sharded table needs ``x.shard_key = value``,
    or equality with another one of the level that has it; on the far side of an outer join, in its
    condition.  A value is a parameter, a constant, or a variable of the function.
    """
    return [
        alias
        for node in nodes(statement.tree)
        if node["@"] in {"SelectStmt", "UpdateStmt", "DeleteStmt"}
        for scope in _scopes(node)
        for alias in scope.unkeyed(statement.variables)
    ]


@dataclass(slots=True)
class _Scope:
    """Tables that are joined inwardly, with the conditions that hold for all of their rows."""

    aliases: dict[str, str] = field(default_factory=dict)
    conditions: list[Tree] = field(default_factory=list)

    def unkeyed(self, variables: frozenset[str]) -> list[str]:
        sharded = [alias for alias, table in self.aliases.items() if table in SHARDED]
        pairs = [pair for each in self.conditions for pair in _equalities(each)]
        keyed = {
            alias
            for pair in pairs
            for key, other in (pair, pair[::-1])
            if (alias := self._alias_of_key(key)) is not None and _is_value(other, variables)
        }
        equal = [{self._alias_of_key(left), self._alias_of_key(right)} - {None} for left, right in pairs]
        for _ in sharded:
            for both in equal:
                if keyed & both and len(both) > 1:
                    keyed |= {alias for alias in both if alias is not None}
        return [alias for alias in sharded if alias not in keyed]

    def _alias_of_key(self, node: Tree) -> str | None:
        path = _column(node)
        if path[-1:] != ("shard_key",):
            return None
        if len(path) > 1:
            return path[-2] if path[-2] in self.aliases else None
        # Without an alias it is of the one table that there is.
        return next(iter(self.aliases)) if len(self.aliases) == 1 else None


def _scopes(node: Tree) -> Iterator[_Scope]:
    here = _Scope()
    entries = [*node.get("fromClause", ()), *node.get("usingClause", ())]
    if "relation" in node:
        entries.insert(0, node["relation"])
    outer = [scope for entry in entries for scope in _enter(entry, here)]
    here.conditions += _conjuncts(node.get("whereClause"))
    yield here
    yield from outer


def _enter(entry: Tree, scope: _Scope) -> Iterator[_Scope]:
    """Add the tables of an entry of FROM to the scope; the side of an outer join is a separate scope."""
    if entry["@"] == "RangeVar":
        alias = entry.get("alias", {}).get("aliasname", entry["relname"])
        scope.aliases[alias] = entry["relname"] if entry.get("schemaname") == SCHEMA else ""
    elif entry["@"] == "JoinExpr":
        kind = entry["jointype"]["name"]
        conditions = _conjuncts(entry.get("quals"))
        sides = [
            (entry["larg"], kind in {"JOIN_INNER", "JOIN_LEFT"}),
            (entry["rarg"], kind in {"JOIN_INNER", "JOIN_RIGHT"}),
        ]
        if kind == "JOIN_INNER":
            scope.conditions += conditions
        for side, is_inner in sides:
            inside = scope if is_inner else _Scope(conditions=list(conditions))
            yield from _enter(side, inside)
            if not is_inner:
                yield inside


def _conjuncts(condition: Tree | None) -> list[Tree]:
    if condition is None:
        return []
    if condition["@"] == "BoolExpr" and condition["boolop"]["name"] == "AND_EXPR":
        return [each for part in condition["args"] for each in _conjuncts(part)]
    return [condition]


def _equalities(condition: Tree) -> Iterable[tuple[Tree, Tree]]:
    if condition["@"] != "A_Expr" or names(condition["name"]) != ("=",):
        return []
    kind = condition["kind"]["name"]
    return [(condition["lexpr"], condition["rexpr"])] if kind == "AEXPR_OP" else []


def _column(node: Any) -> tuple[str, ...]:
    return names(node["fields"]) if isinstance(node, dict) and node.get("@") == "ColumnRef" else ()


def _is_value(node: Any, variables: frozenset[str]) -> bool:
    if not isinstance(node, dict):
        return False
    if node["@"] == "TypeCast":
        return _is_value(node["arg"], variables)
    return node["@"] in {"ParamRef", "A_Const"} or _column(node)[:1] in {(name,) for name in variables}
