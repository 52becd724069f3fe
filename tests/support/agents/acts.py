"""Whether a call of an adapter is the acts that the library's own call is: rows, and what the hook sees."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from strandline import ActRefusedError, AttemptedAct, Audit, Facts, Memory
from strandline.producers.namespace_facts import NamespaceFacts
from tests.conftest import rows_of

# Of reads there may be more: an adapter looks before it changes something.
CHANGES = """
SELECT act, actor, origin, seq, count, detail::text, flags, session IS NOT NULL FROM strandline.audit_entry
WHERE namespace = %s AND act NOT IN ('audit.level', 'history', 'read', 'search')
    AND act !~ '[.](read|search)$'
ORDER BY created_at, act
"""
FACTS = "SELECT text, feedback, live FROM strandline.fact ORDER BY text"
MESSAGES = "SELECT role, seq FROM strandline.message ORDER BY session_key, seq"
HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "Ahoy."}

asked: list[AttemptedAct] = []
is_refusing = False


def hook(act: AttemptedAct) -> None:
    if is_refusing and not is_read(act):
        raise ActRefusedError("Nothing is to be changed.")
    asked.append(act)


@dataclass(frozen=True, slots=True)
class Library:
    """The library's own faces, of ben, who has a fact and messages as ann has, who uses an adapter."""

    url: str
    namespace: str
    memory: Memory
    facts: Facts
    users: NamespaceFacts
    fact_id: str

    @property
    def options(self) -> dict[str, Any]:
        return {"namespace": self.namespace, "database_url": self.url}

    def changes(self) -> list[tuple[Any, ...]]:
        return rows_of(self.url, CHANGES, self.namespace)

    def contents(self) -> list[list[tuple[Any, ...]]]:
        return [rows_of(self.url, FACTS), rows_of(self.url, MESSAGES)]


@contextmanager
def library_beside(url: str) -> Iterator[Library]:
    """The library beside an adapter, in a namespace of their own; the hook is asked about both."""
    namespace = uuid4().hex
    options: dict[str, Any] = {"namespace": namespace, "database_url": url}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANDLINE_COMPLIANCE", f"{__name__}:{hook.__name__}")
        Audit.of_namespace(namespace, database_url=url).set_level("all")
        facts = Facts.for_owner(user_id="ben", **options)
        memory = Memory.from_defaults("bens", user_id="ben", memory_blocks=[], **options)
        memory.put_messages([HELLO, ANSWER])
        fact_id = str(facts.add("Ben likes tea.").fact_id)
        users = Facts.of_namespace(namespace, database_url=url)
        yield Library(url, namespace, memory, facts, users, fact_id)
        memory.close()


Call = Callable[[Any], object]
LibraryCall = Callable[[Library], object]


def check(adapter: object, call: Call, library: Library, library_call: LibraryCall) -> None:
    """The call is the acts that the library's own call is; refused, it does nothing."""
    before = library.changes()
    attempts = attempts_at(library_call, library)
    rows = library.changes()[len(before) :]
    assert len(attempts) >= len(rows)
    contents = library.contents()
    if attempts:
        assert_refused(call, adapter)
    assert library.contents() == contents
    assert attempts_at(call, adapter) == attempts
    assert library.changes()[len(before) + len(rows) :] == rows


def attempts_at(call: Callable[[Any], object], of: object) -> list[str]:
    """The kinds of the changes that the hook was asked about."""
    asked.clear()
    wait_for(call(of))
    return [act.kind for act in asked if not is_read(act)]


def assert_refused(call: Call, of: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.is_refusing", True)
        with pytest.raises(ActRefusedError):
            wait_for(call(of))


def is_read(act: AttemptedAct) -> bool:
    return act.kind.endswith(("history", "read", "search"))


def wait_for(outcome: object) -> None:
    if inspect.isawaitable(outcome):

        async def wait(awaitable: Awaitable[object]) -> None:
            await awaitable

        asyncio.run(wait(outcome))
