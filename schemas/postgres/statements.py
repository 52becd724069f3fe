"""The statements: SQL read from the ``.sql`` files, addressed by name, bound to one schema.

In the files the tables are written as ``strandline.…``; another schema name is substituted when a process
starts.  That name is checked by the settings, and never comes from a request.

Text that several statements share is in ``sql/fragments``, and replaces ``@name(arguments)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

_FILES = (
    "messages.sql",
    "sessions.sql",
    "flush.sql",
    "read.sql",
    "search.sql",
    "facts_merge.sql",
    "facts_edit.sql",
    "capture.sql",
    "erasures.sql",
    "export.sql",
    "lanes.sql",
    "states.sql",
    "workers.sql",
    "limits.sql",
    "overflow.sql",
    "dead_letters.sql",
    "generations.sql",
    "replay.sql",
    "runs.sql",
    "sharing.sql",
    "items.sql",
    "service.sql",
    "retention.sql",
    "sealing.sql",
    "resealing.sql",
    "audit.sql",
    "verify.sql",
    "explain.sql",
    "status.sql",
)
_FRAGMENT_FILES = (
    "fragments/audit.sql",
    "fragments/bm25.sql",
    "fragments/derivations.sql",
    "fragments/erasures.sql",
    "fragments/facts.sql",
    "fragments/items.sql",
    "fragments/lanes.sql",
    "fragments/messages.sql",
    "fragments/retention.sql",
    "fragments/search.sql",
)
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# What ``tools.queries`` reads above each statement: nothing that Postgres has to know.
_TYPES = re.compile(
    r"^-- (?:(?:params|row|seals|opens|owner): .*\n(?:--    .*\n)*|repeatable\n)", re.MULTILINE
)
_FRAGMENT = re.compile(r"^-- fragment: (\w+)\(([\w, ]*)\)$", re.MULTILINE)
_USE = re.compile(r"@(\w+)\(")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_QUALIFIER = re.compile(r"\bstrandline\.")
# In an order in which each finds what it calls.
FUNCTIONS = (
    # The tables of chunks and messages are made with these three.
    "search_code_v1",
    "search_terms_v1",
    "role_key_v1",
    "check_session_v1",
    "append_act_v1",
    # Erasures; the functions after them look at fences.
    "look_at_fence_v1",
    "erase_rows_v1",
    "erase_shared_v1",
    "move_calls_v1",
    "move_entries_v1",
    "erase_directory_v1",
    "erase_names_v1",
    "erase_items_v1",
    "erase_kept_items_v1",
    "erased_rows_v1",
    "owner_rows_v1",
    "look_at_bounds_v1",
    "claim_session_v1",
    "open_fact_lanes_v1",
    "record_call_v1",
    "add_data_key_v1",
    "window_v1",
    "expire_v1",
    "put_v1",
    "set_policy_v1",
    "flush_v1",
    "unfold_v1",
    "refold_v1",
    "remove_facts_v1",
    "stand_alone_v1",
    "take_apart_v1",
    "revive_facts_v1",
    "uncondense_v1",
    "read_event_words_v1",
    "find_condensed_quotes_v1",
    "replace_quotes_v1",
    "drop_unsourced_v1",
    "restate_facts_v1",
    "refresh_facts_v1",
    "forget_facts_v1",
    "forget_traces_v1",
    "take_lanes_v1",
    "reset_v1",
    "pop_v1",
    "find_window_v1",
    "derive_again_v1",
    "release_forks_v1",
    "rederive_v1",
    "correct_v1",
    "fork_v1",
    "search_small_v1",
    "search_big_v1",
    "search_v1",
    "index_part_v1",
    "search_hits_v1",
    "begin_batch_v1",
    "store_answer_v1",
    "may_start_v1",
    "may_derive_v1",
    "take_slice_v1",
    "admit_call_v1",
    "claim_lane_v1",
    "next_lane_v1",
    "take_turn_v1",
    "ring_due_v1",
    "bring_rings_forward_v1",
    "renew_lane_v1",
    "forget_shared_v1",
    "clear_shared_v1",
    "lock_shared_session_v1",
    "fits_condition_v1",
    "deliver_expired_v1",
    "give_up_step_v1",
    "plan_removal_v1",
    "remove_messages_v1",
    "part_removed_v1",
    "carry_facts_v1",
    "carry_base_v1",
    "restore_session_v1",
    "fence_v1",
    "session_rows_v1",
    "erase_session_v1",
    "readmit_v1",
)


@cache
def statements(schema: str) -> Mapping[str, str]:
    """All statements by name, for tables that live in ``schema``."""
    statements_by_name: dict[str, str] = {}
    for file in _FILES:
        pieces = _NAME.split(_read(file))[1:]
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
    return in_schema(with_fragments(_read(f"functions/{name}.sql")), schema)


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
    """The parameters and the text of each fragment."""
    fragments = {}
    for file in _FRAGMENT_FILES:
        pieces = _FRAGMENT.split(_read(file))[1:]
        for name, parameters, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            fragments[name] = (tuple(re.findall(r"\w+", parameters)), _COMMENT.sub("", text).strip())
    return MappingProxyType(fragments)


def in_schema(sql: str, schema: str) -> str:
    """``sql`` with its tables and functions qualified by ``schema``."""
    return _QUALIFIER.sub(f"{schema}.", sql)


def _read(path: str) -> str:
    return (resources.files("strandline.schemas") / "sql" / path).read_text(encoding="utf-8")
