"""Custom blocks: memory derived by the application's own code.

The code is three functions: ``initial()`` returns the first state of a session (or of an owner),
``fold(state, messages)`` makes the next state in a worker, and ``render(state)`` shows a state in a
read.  The state is kept in Postgres; the object itself holds none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from strandline.pipelines.own_code.places import check_version, make_object
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.lanes import OVERFLOW, PIPELINES, STAGES, Scope
from strandline.schemas.values.message import Message

MAX_NAME_CHARACTERS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

# Names that queues of ours have already.
_TAKEN = frozenset({*PIPELINES, *STAGES, OVERFLOW, "default"})


@dataclass(frozen=True, slots=True)
class BlockReading:
    """A read's data for a custom block that renders for it.

    Attributes:
        query: the text or message that the read searches for; None: the messages.
        messages: the pinned head and the window.
        arguments: the ``block_arguments`` of the read.
    """

    session_id: str
    query: str | Message | None
    messages: tuple[Message, ...]
    arguments: Mapping[str, Any]


class CustomBlock(Protocol):
    """The interface of a custom block.

    Optional attributes: ``scope`` (``"session"``, the default, or ``"owner"``: one state for all sessions of
    a user), ``priority`` (default 0: always kept), and ``truncate(content, tokens)``, which gives ``content``
    shortened by that many tokens, or None to be left out entirely (the default).

    A block with ``render_for(state, reading)`` is rendered by it, and sees the read (``BlockReading``).

    Attributes:
        name: the name of the block, its pipeline, its queue and its section in the prompt.
        version: change it whenever the meaning of the state changes.
    """

    name: str
    version: str

    def initial(self) -> Any:
        """The state before the first message; any JSON value but null."""
        ...

    def fold(self, state: Any, messages: Sequence[Message]) -> Any:
        """The state after the messages of one flush, all of one session, in order.

        Runs in a worker, once per flush.  An error that it raises makes the flush a dead letter of this
        block.
        """
        ...

    def render(self, state: Any) -> str | Sequence[Mapping[str, Any]] | None:
        """Render a state for the prompt: text, content parts, or None for nothing; escaped afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class BlockDefinition:
    """A checked custom block: its code and its attributes."""

    name: str
    version: str
    scope: Scope
    priority: int
    code: CustomBlock

    @classmethod
    def check(cls, source: Any, *, where: str) -> BlockDefinition:
        """Read a block from an object, or from a class that is made without arguments.

        Raises:
            ConfigurationError: something is missing or of the wrong kind; ``where`` names the object.
        """
        code = make_object(source, "memory block", where) if isinstance(source, type) else source
        for method in ("initial", "fold", "render"):
            if not callable(getattr(code, method, None)):
                raise ConfigurationError(f"{where} is not a memory block: it has no method {method}().")
        name = getattr(code, "name", None)
        check_block_name(name)
        if name in _TAKEN:
            raise ConfigurationError(f"{where} is called {quote(name)}, a name that Strandline reserves.")
        scope: Scope = getattr(code, "scope", "session")
        if scope not in get_args(Scope):
            raise ConfigurationError(f"{where}.scope is {quote(scope)}; it must be 'session' or 'owner'.")
        version = check_version(getattr(code, "version", None), where)
        return cls(str(name), version, scope, getattr(code, "priority", 0), code)


def check_block_name(name: object) -> str:
    """Return ``name`` if it can be a tag in the prompt; raise ConfigurationError if not."""
    text = plain_text(name) if isinstance(name, str) else ""
    if len(text) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(text):
        raise ConfigurationError(
            f"{quote(name)} cannot name a memory block: use at most {MAX_NAME_CHARACTERS} letters, digits,"
            " '_', '-' or '.', beginning with a letter or '_'."
        )
    return text
