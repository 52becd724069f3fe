"""The statements: SQL read from the ``.sql`` files, addressed by name, bound to one schema.

In the files the tables stand as ``strandline.…``; another schema name is put in its place when a
process starts.  That name is checked by the settings, and never comes from a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

_FILES = (
    "messages.sql",
    "sessions.sql",
    "flush.sql",
    "read.sql",
    "search.sql",
    "facts_merge.sql",
    "facts_edit.sql",
    "lanes.sql",
    "states.sql",
    "workers.sql",
    "limits.sql",
    "dead_letters.sql",
    "generations.sql",
    "replay.sql",
    "sharing.sql",
    "verify.sql",
    "explain.sql",
    "status.sql",
)
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# What ``tools.queries`` reads above each statement: nothing that Postgres has to know.
_TYPES = re.compile(r"^-- (?:(?:params|row): .*\n(?:--    .*\n)*|repeatable\n)", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_QUALIFIER = re.compile(r"\bstrandline\.")
# In an order in which each finds what it calls.
FUNCTIONS = (
    # The table of chunks is made with these two.
    "search_code_v1",
    "search_terms_v1",
    "window_v1",
    "put_v1",
    "serving_v1",
    "fed_v1",
    "set_policy_v1",
    "missing_v1",
    "uncovered_v1",
    "flush_v1",
    "unfold_v1",
    "remove_facts_v1",
    "stand_alone_v1",
    "take_apart_v1",
    "give_back_v1",
    "uncondense_v1",
    "forget_facts_v1",
    "reset_v1",
    "pop_v1",
    "search_v1",
    "due_in_lane_v1",
    "begin_batch_v1",
    "may_start_v1",
    "may_derive_v1",
    "take_slice_v1",
    "claim_lane_v1",
    "next_lane_v1",
    "take_turn_v1",
    "forget_shared_v1",
)


@cache
def statements(schema: str) -> Mapping[str, str]:
    """All statements by name, for tables that live in ``schema``."""
    found: dict[str, str] = {}
    for file in _FILES:
        pieces = _NAME.split(_read(file))[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            if name in found:
                raise ValueError(f"statement {name!r} is defined twice")
            found[name] = in_schema(_TYPES.sub("", body.strip()), schema)
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as Postgres reads it: ``$1``, ``$2``, … for the parameters named in ``names``.

    psycopg reads statements of over 4,096 characters anew at each call otherwise, which takes a tenth of
    a millisecond for the longest.
    """

    sql: bytes
    names: tuple[str, ...]

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        """The parameters in order."""
        return [params[name] for name in self.names]


@cache
def compiled(schema: str) -> Mapping[str, Statement]:
    """All statements by name, ready to be sent."""
    return MappingProxyType({name: _compile(sql) for name, sql in statements(schema).items()})


def _compile(sql: str) -> Statement:
    places: dict[str, int] = {}
    numbered = _PARAMETER.sub(lambda found: f"${places.setdefault(found[1], len(places) + 1)}", sql)
    return Statement(numbered.encode(), tuple(places))


def function_source(name: str, schema: str) -> str:
    """The ``CREATE FUNCTION`` text of a stored function; its name ends in its version."""
    return in_schema(_read(f"functions/{name}.sql"), schema)


def in_schema(sql: str, schema: str) -> str:
    """``sql`` with its tables and functions qualified by ``schema``."""
    return _QUALIFIER.sub(f"{schema}.", sql)


def _read(path: str) -> str:
    return (resources.files("strandline.schemas") / "sql" / path).read_text(encoding="utf-8")
