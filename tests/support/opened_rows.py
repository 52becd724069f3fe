"""Rows as tests look at them where the suite runs encrypted: from copies of tables with all content opened.

A test's own SQL reads and compares texts, states and words as it does where nothing is sealed.  What it
writes goes to the tables themselves, which hold what a statement of Strandline has sealed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from strandline.pipelines.text.lexemes import lexemes
from strandline.schemas.queries.application.sealing import FindDataKeysRow
from strandline.schemas.sealed.content import unwrap_keys
from strandline.schemas.sealed.values import change_within, open_traces
from strandline.schemas.sealing.keyrings import LocalKeyring, read_keys
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.normal_form import fingerprint
from tests.support.servers.databases import ENCRYPTION, look

PAYLOAD = "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"
# The columns that are sealed, each with its form and kind; of messages beside the id of the row.
MESSAGE = {"envelope": ("text", "message"), "metadata": ("text", "metadata")}
COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "message": MESSAGE,
    "shared_message": MESSAGE,
    "archived_input": MESSAGE,
    "fact": {
        "text": ("text", "fact"),
        "topics": ("names", "topic"),
        "said_by": ("name", "said_by"),
        "input": ("text", "input"),
        "feedback": ("text", "feedback"),
    },
    "fact_revision": {"text": ("text", "fact"), "own_text": ("text", "fact")},
    "fact_candidate": {
        "text": ("text", "fact"),
        "topics": ("names", "topic"),
        "said_by": ("name", "said_by"),
    },
    "fact_event": {"payload": ("within", PAYLOAD), "traces": ("traces", "")},
    "block_state": {"state": ("text", "state")},
    "answer": {"body": ("bytes", "answer")},
    "store_item": {"value": ("text", "item")},
    "kept_response": {"body": ("text", "response")},
}
# What is keyed, made of what: the words of texts, and their fingerprints.
KEYED: Mapping[str, tuple[str, ...]] = {
    "chunk": ("lexemes", "speaker"),
    "fact": ("fingerprint", "lexemes"),
    "fact_revision": ("fingerprint", "lexemes", "own_fingerprint", "own_lexemes"),
    "fact_candidate": ("fingerprint",),
}
_TABLE = re.compile(r"\bstrandline\.(\w+)")
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|ALTER|CREATE|DROP)\b")
_KEYED_WORD = re.compile(r"K[A-Z2-7]{13}")


def clear_only(reason: str) -> pytest.MarkDecorator:
    """Marks a test that says nothing of encrypted namespaces; ``reason`` says what it looks at."""
    return pytest.mark.skipif(ENCRYPTION, reason=f"of what is in clear alone: {reason}")


def stored_rows_of(database_url: str, statement: str, *params: object) -> list[tuple[Any, ...]]:
    """The rows of a test's statement as they are stored, also where the suite runs encrypted."""
    return look(database_url, statement, params)


def rows_in_clear(url: str, statement: str, params: tuple[object, ...], keys: str) -> list[tuple[Any, ...]]:
    """The rows of a test's statement; what it reads is opened with the keys of a keyring."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")  # whatever a test has the database set
        named = {name for name in _TABLE.findall(statement) if name in COLUMNS or name in KEYED}
        if named and not _WRITES.search(statement):
            owners = _owners(connection, LocalKeyring(read_keys(keys, "the test"), "the test"))
            if owners:
                copies = _Copies(connection, owners)
                copies.open(named)
                statement = _TABLE.sub(copies.name_of, statement)
        return connection.execute(statement.encode(), params).fetchall()


def _owners(connection: psycopg.Connection[Any], keyring: LocalKeyring) -> dict[UUID, OwnerKeys]:
    rows = connection.execute(
        "SELECT shard_key, number, namespace, kek_id, wrapped FROM strandline.data_key"
    ).fetchall()
    by_owner: dict[UUID, list[FindDataKeysRow]] = {}
    for shard_key, number, namespace, kek_id, wrapped in rows:
        row = FindDataKeysRow(True, number, namespace, kek_id, wrapped, True, True)
        by_owner.setdefault(shard_key, []).append(row)
    return {owner: unwrap_keys(keyring, owner, wrapped) for owner, wrapped in by_owner.items()}


class _Copies:
    """Temporary copies of tables, by their own names."""

    def __init__(self, connection: psycopg.Connection[Any], owners: Mapping[UUID, OwnerKeys]) -> None:
        self._connection = connection
        self._owners = owners
        self._made: set[str] = set()
        self._texts: dict[UUID, set[str]] = {owner: set() for owner in owners}

    def name_of(self, match: re.Match[str]) -> str:
        return f"pg_temp.{match[1]}" if match[1] in self._made else match[0]

    def open(self, tables: set[str]) -> None:
        """Copy tables; where words are in them, the others as well, since words are known by the texts."""
        for table in set(COLUMNS) if tables & set(KEYED) else tables:
            self._copy(table)
            self._open_content(table)
        for table in tables & set(KEYED):
            self._copy(table)
            self._open_words(table)
        self._made &= tables

    def _copy(self, table: str) -> None:
        if table not in self._made:
            copy = sql.SQL("CREATE TEMP TABLE {0} AS TABLE strandline.{0}").format(sql.Identifier(table))
            self._connection.execute(copy)
            self._made.add(table)

    def _open_content(self, table: str) -> None:
        columns = COLUMNS[table]

        def open_one(keys: OwnerKeys, bound: str, values: Mapping[str, Any]) -> dict[str, Any]:
            opened = {
                name: None if value is None else _opened(keys, *columns[name], value, bound)
                for name, value in values.items()
            }
            self._texts[keys.shard_key].update(_texts_in(opened.values()))
            return opened

        self._change(table, columns, open_one, bound="id" if columns is MESSAGE else None)

    def _open_words(self, table: str) -> None:
        known = {owner: _Words(keys, self._texts[owner]) for owner, keys in self._owners.items()}

        def open_one(keys: OwnerKeys, _bound: str, values: Mapping[str, Any]) -> dict[str, Any]:
            words = known[keys.shard_key]
            return {name: words.opened(value) for name, value in values.items()}

        self._change(table, KEYED[table], open_one)

    def _change(
        self,
        table: str,
        columns: Iterable[str],
        change: Callable[[OwnerKeys, str, Mapping[str, Any]], dict[str, Any]],
        *,
        bound: str | None = None,
    ) -> None:
        names = list(columns)
        stored = self._connection.execute(
            sql.SQL("SELECT ctid, shard_key, {}, {} FROM pg_temp.{}").format(
                sql.SQL("''") if bound is None else sql.Identifier(bound),
                sql.SQL(", ").join(self._as_read(table, name) for name in names),
                sql.Identifier(table),
            )
        ).fetchall()
        assign = sql.SQL("UPDATE pg_temp.{} SET {} WHERE ctid = %s").format(
            sql.Identifier(table),
            sql.SQL(", ").join(self._as_written(table, name) for name in names),
        )
        for place, owner, beside, *values in stored:
            if owner in self._owners:
                changed = change(self._owners[owner], beside, dict(zip(names, values, strict=True)))
                if list(changed.values()) != values:
                    self._connection.execute(assign, (*changed.values(), place))

    def _as_read(self, table: str, name: str) -> sql.Composable:
        column = sql.Identifier(name)
        return column if self._type(table, name) in ("bytea", "ARRAY") else sql.SQL("{}::text").format(column)

    def _as_written(self, table: str, name: str) -> sql.Composable:
        kind = self._type(table, name)
        cast = sql.SQL("text[]" if kind == "ARRAY" else kind)
        return sql.SQL("{} = %s::{}").format(sql.Identifier(name), cast)

    def _type(self, table: str, name: str) -> str:
        row = self._connection.execute(
            "SELECT data_type FROM information_schema.columns"
            " WHERE table_schema = 'strandline' AND table_name = %s AND column_name = %s",
            (table, name),
        ).fetchone()
        assert row is not None, f"{table}.{name}"
        return str(row[0])


class _Words:
    """The words and fingerprints of an owner, by their keyed forms."""

    def __init__(self, keys: OwnerKeys, texts: Iterable[str]) -> None:
        texts = list(texts)
        words = {word for text in texts for word, _place in lexemes(text)}
        self._words = {keys.word(word): word for word in words}
        prints = [fingerprint(text) for text in texts]
        self._fingerprints = {keys.digest(one): one for one in prints}

    def opened(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self._fingerprints.get(value, value)
        if isinstance(value, list):
            return [self._words.get(word, word) for word in value]
        if value is None:
            return None
        return _KEYED_WORD.sub(lambda match: self._words.get(match[0], match[0]), value)


def _opened(keys: OwnerKeys, form: str, kind: str, value: Any, bound: str) -> Any:
    match form:
        case "bytes":
            return keys.open_bytes(value, kind)
        case "name":
            return keys.open_name(value, kind)
        case "names":
            return [keys.open_name(name, kind) for name in value]
        case "traces":
            return open_traces(keys, value)
        case "within":
            return change_within(value, kind, lambda form, kind, inner: _opened(keys, form, kind, inner, ""))
        case _:
            return keys.open(value, kind, bound)


def _texts_in(values: Iterable[Any]) -> Iterable[str]:
    """All texts within opened values, JSON or not."""
    for value in values:
        if isinstance(value, str):
            yield value
            with suppress(json.JSONDecodeError):
                yield from _leaves(json.loads(value))
        elif isinstance(value, list):
            yield from _texts_in(value)


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _leaves(inner)
