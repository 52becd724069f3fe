"""LlamaIndex blocks with code of their own, as custom blocks: workers fold, and reads render."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.memory import BaseMemoryBlock as TheirBlock
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from strandline.adapters.llamaindex.content_blocks import part_of
from strandline.adapters.llamaindex.messages import chat_message_of, chat_messages_of
from strandline.pipelines.custom.contract import BlockReading
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.lanes import Scope
from strandline.schemas.values.message import Message

# Fields that every block has, and no message changes.
_OF_ALL_BLOCKS = frozenset(TheirBlock.model_fields)


class LlamaIndexBlock:
    """A subclass of LlamaIndex's ``BaseMemoryBlock`` as a custom block.

    Its own fields are the state, as JSON: ``_aput`` folds messages into them in a worker, ``_aget`` renders
    them in a read, and ``atruncate`` shortens the result.  Workers load it by ``STRANDLINE_BLOCKS``,
    which names such an object.

    Args:
        block: the fields of this object are the first state of each session.
        version: change it whenever the meaning of the fields changes.
        scope: ``"session"``, or ``"owner"``: one state for all sessions of a user.

    Raises:
        ConfigurationError: a field is not JSON; declare it with ``exclude=True`` if it is not state.
    """

    def __init__(self, block: TheirBlock[Any], *, version: str = "1", scope: Scope = "session") -> None:
        self.name = block.name
        self.priority = block.priority
        self.version = version
        self.scope = scope
        self._block = block
        self._fields: dict[str, TypeAdapter[Any]] = {
            name: TypeAdapter(cast("Any", field.annotation))
            for name, field in type(block).model_fields.items()
            if name not in _OF_ALL_BLOCKS and not field.exclude
        }
        self._restore(self.initial())

    def initial(self) -> dict[str, Any]:
        """The fields as they were when the block was made."""
        return self._state_of(self._block)

    def fold(self, state: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
        """The fields after ``aput`` of the messages."""
        block = self._restore(state)
        asyncio.run(block.aput(chat_messages_of(messages), from_short_term_memory=True))
        return self._state_of(block)

    def render(self, state: Mapping[str, Any]) -> str | list[dict[str, Any]] | None:
        """The block's ``aget`` without messages."""
        return _content_of(asyncio.run(self._restore(state).aget(None)))

    def render_for(
        self, state: Mapping[str, Any], reading: BlockReading
    ) -> str | list[dict[str, Any]] | None:
        """The block's ``aget`` for the messages and the query of a read, and its caller's arguments."""
        messages = chat_messages_of(reading.messages)
        if isinstance(reading.query, str):
            messages.append(ChatMessage(role="user", content=reading.query))
        elif reading.query is not None:
            messages.append(chat_message_of(reading.query))
        block = self._restore(state)
        shown = asyncio.run(block.aget(messages, session_id=reading.session_id, **reading.arguments))
        return _content_of(shown)

    def truncate(self, content: str, tokens: int) -> str | None:
        """The text after the block's ``atruncate``."""
        shorter = asyncio.run(self._block.atruncate(content, tokens))
        return shorter if isinstance(shorter, str) else None

    def _state_of(self, block: TheirBlock[Any]) -> dict[str, Any]:
        return {name: self._as_json(name, getattr(block, name)) for name in self._fields}

    def _as_json(self, name: str, value: object) -> Any:
        try:
            return to_jsonable_python(value, fallback=None, bytes_mode="base64")
        except (PydanticSerializationError, ValueError) as error:
            raise self._not_json(name) from error

    def _restore(self, state: Mapping[str, Any]) -> TheirBlock[Any]:
        """A copy of the block with the fields of ``state``; others stay."""
        values = {name: self._read(name, state[name]) for name in self._fields if name in state}
        return self._block.model_copy(update=values)

    def _read(self, name: str, value: object) -> Any:
        try:
            return self._fields[name].validate_python(value)
        except ValidationError as error:
            raise self._not_json(name) from error

    def _not_json(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"The field {name!r} of the memory block {quote(self.name)} ({type(self._block).__name__}) cannot"
            " be kept as JSON. Declare it with Field(exclude=True) if it is not state."
        )


def _content_of(shown: Any) -> str | list[dict[str, Any]] | None:
    if not shown or isinstance(shown, str):
        return shown or None
    if all(isinstance(one, ChatMessage) for one in shown):
        return "\n".join(f"{one.role.value}: {one.content or ''}" for one in shown)
    return [part_of(one) for one in shown]
