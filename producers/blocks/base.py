"""Memory blocks declare how a session's long-term memory contributes to the prompt.

A block holds no model, no connection and no state: it names the pipeline whose memory it shows, and knows
how to render and shorten it.  So it can be pickled, and any number of sessions can share one block without
anything leaking between them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from strandline.pipelines.custom.contract import BlockDefinition, BlockReading, check_block_name
from strandline.producers.blocks.render import escaped, fact_line
from strandline.producers.search.hits import Hit
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, StrandlineError
from strandline.schemas.values.content_parts import is_part
from strandline.schemas.values.foreign_values import plain_int
from strandline.schemas.values.lanes import FACTS, SUMMARY
from strandline.schemas.values.nesting import check_nesting
from strandline.schemas.values.stored_text import check_texts_within

CountText = Callable[[str], int]

# Escaped text holds no "<", so this mark is found between pieces and never inside one.
_BETWEEN_FACTS = re.compile(r"\n(?=<fact>)")
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")

# As LlamaIndex's documents have it.
DOCUMENTED_MAX_FACTS = 50

# Keywords of other libraries' blocks that stand for an object which lives in one process.
_LIVE_KEYWORDS = frozenset({"llm", "embed_model", "vector_store", "node_postprocessors", "engine", "client"})
_PLAIN = (str, int, float, bool, bytes, type(None), list, tuple, dict)


class InsertMethod(StrEnum):
    """Where the memory is inserted: into the system message, or the latest user message."""

    SYSTEM = "system"
    USER = "user"


def check_insert_method(value: object) -> InsertMethod:
    """The place that ``value`` names; raises ConfigurationError if it is not one."""
    # Compared, since an enumeration writes out any unknown value, however deep.
    if not isinstance(value, str) or value not in tuple(InsertMethod):
        raise ConfigurationError(f"insert_method is {quote(value)}; it must be 'system' or 'user'")
    return InsertMethod(value)


@dataclass(frozen=True, slots=True)
class Material:
    """The data that blocks render, all from one snapshot.

    Attributes:
        facts: the owner's facts, oldest first.
        states: the JSON state by pipeline, for pipelines that fold one (the summary, custom ones).
        hits: by block name, the hits of its search, best first.
        reading: the read's query, for custom blocks.
    """

    facts: Sequence[str] = ()
    states: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hits: Mapping[str, Sequence[Hit]] = field(default_factory=lambda: MappingProxyType({}))
    reading: BlockReading | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """The output of a block: the text of its section, escaped, and content parts (images) to go with it."""

    text: str
    parts: tuple[Mapping[str, Any], ...] = ()


class _SameAsName:
    """Marks that a block is fed by the pipeline with the block's name."""


_SAME_AS_NAME = _SameAsName()


@dataclass(frozen=True, init=False)
class BaseMemoryBlock:
    """A block that shows the state of the pipeline with its name; the base of all others.

    Attributes:
        name: the section's tag in the prompt; unique within a ``Memory``.
        priority: 0 is always kept; of the others, the larger number is shortened or left out first.
        pipeline: the registered pipeline that feeds it (default: the one with its name), or None.

    Raises:
        ConfigurationError: the name cannot be a tag, the priority is below 0, or a keyword is unknown.
    """

    name: str
    priority: int
    pipeline: str | None

    _keywords: ClassVar[tuple[str, ...]] = ("name", "priority", "pipeline")

    def __init__(
        self,
        *,
        name: str,
        priority: int = 0,
        pipeline: str | _SameAsName | None = _SAME_AS_NAME,
        **unknown: Any,
    ) -> None:
        self._refuse(unknown)
        name = check_block_name(name)
        priority = checked_count(f"priority of block {quote(name)}", priority, least=0)
        fed_by = name if isinstance(pipeline, _SameAsName) else pipeline
        if fed_by is not None:
            fed_by = check_block_name(fed_by)
        self._set(name=name, priority=priority, pipeline=fed_by)

    def render(self, material: Material) -> str | Rendered | None:
        """The text inside the block's section, escaped; None if there is nothing to show."""
        state = None if self.pipeline is None else material.states.get(self.pipeline)
        text = state.get("text") if isinstance(state, Mapping) else None
        return escaped(text) if text and isinstance(text, str) else None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` shortened by at least ``tokens_to_cut`` tokens; None leaves the whole block out."""
        return None

    @property
    def is_filler(self) -> bool:
        """Whether it takes part in filling the room by what fits the query, and does not render itself."""
        return False

    def declaration(self) -> dict[str, Any]:
        """The keywords that make an equal block; a block without a priority fills the room."""
        left_out = ("priority",) if self.is_filler else ()
        return {name: getattr(self, name) for name in self._keywords if name not in left_out}

    def _set(self, **values: object) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @classmethod
    def _refuse(cls, unknown: Mapping[str, Any]) -> None:
        for keyword, value in unknown.items():
            if keyword in _LIVE_KEYWORDS or not isinstance(value, _PLAIN):
                raise ConfigurationError(
                    f"{cls.__name__} takes no {keyword}=: models run in the workers, where a live object"
                    " cannot follow. Set STRANDLINE_FACTS_MODEL or STRANDLINE_EMBEDDING_MODEL there; vectors"
                    " are kept in Postgres; VectorMemoryBlock filters hits by similarity_cutoff=, and by the"
                    " functions in postprocessors= and rerank=."
                )
            raise ConfigurationError(
                f"{cls.__name__} does not know {keyword}=; it takes {', '.join(cls._keywords)}."
            )


@dataclass(frozen=True, init=False)
class StaticMemoryBlock(BaseMemoryBlock):
    """The same content in every prompt: text, or content parts (their text goes into the section)."""

    static_content: str | tuple[Mapping[str, Any], ...]

    _keywords: ClassVar[tuple[str, ...]] = ("static_content", "name", "priority")

    def __init__(
        self,
        *,
        static_content: str | Sequence[Mapping[str, Any]],
        name: str = "static_memory",
        priority: int = 0,
        **unknown: Any,
    ) -> None:
        self._refuse(unknown)
        super().__init__(name=name, priority=priority, pipeline=None)
        self._set(static_content=_checked_content(static_content, "static_content"))

    def render(self, material: Material) -> str | Rendered | None:
        return split_content(self.static_content, f"static_content of block {self.name!r}")


@dataclass(frozen=True, init=False)
class FactExtractionMemoryBlock(BaseMemoryBlock):
    """Facts of the session's owner, in order, the oldest first.

    Without ``max_facts`` and ``priority``: the matches of the query, and some of the newest, as room allows.
    With one of them: the newest ``max_facts``, for any query.

    Attributes:
        max_facts: how many are shown; None: as many as there is room for, 50 if a priority is given. If an
            owner has more live facts than this, workers condense them while they merge facts of a session
            that was begun with this block. If one batch covers sessions with different values, the smallest
            applies, and never more than ``STRANDLINE_MAX_FACTS``.
    """

    max_facts: int | None

    _keywords: ClassVar[tuple[str, ...]] = ("name", "max_facts", "priority")

    def __init__(
        self,
        *,
        name: str = "fact_extraction_memory",
        max_facts: int | None = None,
        priority: int | None = None,
        **unknown: Any,
    ) -> None:
        self._refuse(unknown)
        super().__init__(name=name, priority=1 if priority is None else priority, pipeline=FACTS)
        # A subclass renders and shortens in its own way, and so by a number.
        if max_facts is None and (priority is not None or type(self) is not FactExtractionMemoryBlock):
            max_facts = DOCUMENTED_MAX_FACTS
        self._set(max_facts=None if max_facts is None else checked_count("max_facts", max_facts, least=1))

    @property
    def is_filler(self) -> bool:
        return self.max_facts is None

    def render(self, material: Material) -> str | None:
        newest = material.facts[-(self.max_facts or DOCUMENTED_MAX_FACTS) :]
        return "\n".join(fact_line(fact) for fact in newest) or None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """Without the oldest facts."""
        facts = _BETWEEN_FACTS.split(content)
        return "\n".join(facts[pieces_to_cut(facts, tokens_to_cut, count) :]) or None


@dataclass(frozen=True, init=False)
class SummaryMemoryBlock(BaseMemoryBlock):
    """The rolling summary of the session's flushed messages.

    Without ``priority`` it has a small share of the room where facts or messages match the query.

    Attributes:
        has_own_priority: whether a priority was given.
    """

    has_own_priority: bool

    _keywords: ClassVar[tuple[str, ...]] = ("name", "priority")

    def __init__(self, *, name: str = "summary", priority: int | None = None, **unknown: Any) -> None:
        self._refuse(unknown)
        super().__init__(name=name, priority=2 if priority is None else priority, pipeline=SUMMARY)
        self._set(has_own_priority=priority is not None)

    @property
    def is_filler(self) -> bool:
        return not self.has_own_priority and type(self) is SummaryMemoryBlock

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` without its last lines, and of a single line without its last sentences."""
        pieces, between = self.pieces_of(content)
        last_first = pieces[::-1]
        return between.join(pieces[: len(pieces) - pieces_to_cut(last_first, tokens_to_cut, count)]) or None

    @staticmethod
    def pieces_of(content: str) -> tuple[list[str], str]:
        """The lines of a summary, or its sentences if it is one line; and what stands between them."""
        if "\n" in content:
            return content.split("\n"), "\n"
        return _BETWEEN_SENTENCES.split(content), " "


def split_content(content: object, what: str) -> str | Rendered | None:
    """Text or content parts as a block shows them: texts joined and escaped, other parts separate.

    Raises:
        ConfigurationError: it is neither; ``what`` names it.
    """
    checked = _checked_content(content, what)
    if isinstance(checked, str):
        return escaped(checked) or None
    text = escaped("\n".join(part["text"] for part in checked if part["type"] == "text"))
    others = tuple(part for part in checked if part["type"] != "text")
    return Rendered(text, others) if others else text or None


def pieces_to_cut(pieces: Sequence[str], tokens_to_cut: int, count: CountText) -> int:
    """How many pieces, from the first, make up ``tokens_to_cut``; all of them if even that is too few."""
    cut = 0
    for index, piece in enumerate(pieces, start=1):
        cut += count(piece)
        if cut >= tokens_to_cut:
            return index
    return len(pieces)


def _checked_content(content: object, what: str) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(content, str):
        _check_sendable(content, what)
        return content
    try:
        parts = tuple(content) if isinstance(content, (list, tuple)) else None
        if parts is not None and all(map(is_part, parts)):
            _check_sendable(parts, what)
            return parts
    except StrandlineError:
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise ConfigurationError(f"{what} cannot be read.") from error
    raise ConfigurationError(
        f"{what} must be text, or a list of content parts such as {{'type': 'text', 'text': '…'}}."
    )


def _check_sendable(content: object, what: str) -> None:
    """Raise ConfigurationError unless a prompt with this content can be sent to a model."""
    try:
        check_nesting(what, content)
        check_texts_within(what, content)
        json.dumps(content, allow_nan=False, default=dict)
    except InvalidMessageError as error:
        raise ConfigurationError(str(error)) from None
    except (TypeError, ValueError):
        raise ConfigurationError(f"{what} holds something that is not JSON.") from None


def checked_count(what: str, value: object, *, least: int) -> int:
    """Return ``value`` if it is a whole number of at least ``least``; else raise a ConfigurationError that
    names ``what``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or plain_int(value) < least:
        raise ConfigurationError(f"{what} is {quote(value)}; it must be a whole number, {least} or above.")
    return plain_int(value)


@dataclass(frozen=True, init=False)
class CustomMemoryBlock(BaseMemoryBlock):
    """The read side of a custom block: shows its state with the block's own ``render``."""

    definition: BlockDefinition

    _keywords: ClassVar[tuple[str, ...]] = ("definition",)

    def __init__(self, definition: BlockDefinition) -> None:
        super().__init__(name=definition.name, priority=definition.priority)
        self._set(definition=definition)

    @property
    def has_reading(self) -> bool:
        """Whether its code takes the read's query."""
        return callable(getattr(self.definition.code, "render_for", None))

    def render(self, material: Material) -> str | Rendered | None:
        code = self.definition.code
        state = material.states.get(self.definition.name)
        state = code.initial() if state is None else state
        if self.has_reading and material.reading is not None:
            shown = code.render_for(state, material.reading)  # type: ignore[attr-defined]
        else:
            shown = code.render(state)
        return None if shown is None else split_content(shown, f"render() of block {self.name!r}")

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` shortened by the block's own ``truncate``, which receives it unescaped."""
        shorten = getattr(self.definition.code, "truncate", None)
        shorter = None if shorten is None else shorten(html.unescape(content), tokens_to_cut)
        return escaped(shorter) if shorter else None


def check_block_arguments(blocks: Sequence[BaseMemoryBlock], arguments: object) -> Mapping[str, Any]:
    """A read's arguments for custom blocks.

    Raises:
        ConfigurationError: they are not a mapping with names, or no block takes any.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise ConfigurationError(f"block_arguments is {quote(arguments)}; it must be a mapping of names.")
    takes_any = any(isinstance(block, CustomMemoryBlock) and block.has_reading for block in blocks)
    if arguments and not takes_any:
        raise ConfigurationError(
            f"No memory block takes {', '.join(map(quote, arguments))}: only a custom block with render_for()"
            " does. Leave the argument out, or add such a block to memory_blocks.",
            for_clients="No block of this session takes `block_arguments`: leave them out.",
        )
    return dict(arguments)
