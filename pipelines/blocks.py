"""Memory blocks: what a session's long-term memory contributes to the prompt, as declarations.

A block holds no model, no connection and no state: it names the pipeline whose work it shows, and knows
how to render that and how to shorten it.  So it can be pickled, and one block may be shared by any number
of sessions without anything leaking between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

from strandline.pipelines.rendering import escaped, fact_line, message_line
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.lanes import FACTS, SUMMARY, VECTORS, Scope
from strandline.schemas.messages import Message

CountText = Callable[[str], int]

MAX_NAME_CHARACTERS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# Escaped text holds no "<", so these marks are found between pieces and never inside one.
_BETWEEN_FACTS = re.compile(r"\n(?=<fact>)")
_BETWEEN_HITS = re.compile(r"\n\n(?=<message )")

# Keywords of other libraries' blocks that stand for an object which lives in one process.
_LIVE_KEYWORDS = frozenset({"llm", "embed_model", "vector_store", "node_postprocessors", "engine", "client"})
_PLAIN = (str, int, float, bool, bytes, type(None), list, tuple, dict)


class InsertMethod(StrEnum):
    """Where the memory is inserted: into the system message, or the latest user message."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Hit:
    """A piece of conversation that a search found: consecutive messages of one session, and the score."""

    score: float
    session_key: UUID
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What blocks render from, all of one snapshot.

    Attributes:
        facts: the owner's facts, oldest first.
        states: by pipeline, the JSON state of those that fold one (the summary, custom ones).
        hits: by block name, what its search found, best first.
    """

    facts: Sequence[str] = ()
    states: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hits: Mapping[str, Sequence[Hit]] = field(default_factory=lambda: MappingProxyType({}))


class _SameAsName:
    """Marks that a block is fed by the pipeline of its own name."""


_SAME_AS_NAME = _SameAsName()


@dataclass(frozen=True, init=False)
class BaseMemoryBlock:
    """A block that shows what the pipeline of its name keeps as its state; the base of all others.

    Attributes:
        name: the section's tag in the prompt; unique within a ``Memory``.
        priority: 0 is always kept; of the others, the larger number is shortened or left out first.
        pipeline: the registered pipeline that feeds it (default: the one of its name), or None.

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
        check_block_name(name)
        _check_count(f"priority of block {name!r}", priority, least=0)
        fed_by = name if isinstance(pipeline, _SameAsName) else pipeline
        if fed_by is not None:
            check_block_name(fed_by)
        self._set(name=name, priority=priority, pipeline=fed_by)

    def render(self, material: Material) -> str | None:
        """The text inside the block's section, escaped; None when there is nothing to show."""
        state = None if self.pipeline is None else material.states.get(self.pipeline)
        text = _state_text(state)
        return escaped(text) if text else None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` made at least ``tokens_to_cut`` tokens shorter; None leaves the block out whole."""
        return None

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
                    " are kept in Postgres, and VectorMemoryBlock(similarity_cutoff=…) filters them."
                )
            raise ConfigurationError(
                f"{cls.__name__} does not know {keyword}=; it takes {', '.join(cls._keywords)}."
            )


@dataclass(frozen=True, init=False)
class StaticMemoryBlock(BaseMemoryBlock):
    """The same content in every prompt: text, or OpenAI content parts (their text goes into the section)."""

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
        super().__init__(name=name, priority=priority, pipeline=None, **unknown)
        self._set(static_content=_checked_content(static_content))

    def render(self, material: Material) -> str | None:
        if isinstance(self.static_content, str):
            return escaped(self.static_content) or None
        texts = [part["text"] for part in self.static_content if part["type"] == "text"]
        return escaped("\n".join(texts)) or None

    def parts(self) -> tuple[Mapping[str, Any], ...]:
        """The content parts that are no text (images and the like), to stand beside the section."""
        if isinstance(self.static_content, str):
            return ()
        return tuple(part for part in self.static_content if part["type"] != "text")


@dataclass(frozen=True, init=False)
class FactExtractionMemoryBlock(BaseMemoryBlock):
    """The newest ``max_facts`` facts of the session's owner, oldest of them first."""

    max_facts: int

    _keywords: ClassVar[tuple[str, ...]] = ("name", "max_facts", "priority")

    def __init__(
        self, *, name: str = "fact_extraction_memory", max_facts: int = 50, priority: int = 1, **unknown: Any
    ) -> None:
        super().__init__(name=name, priority=priority, pipeline=FACTS, **unknown)
        _check_count("max_facts", max_facts, least=1)
        self._set(max_facts=max_facts)

    def render(self, material: Material) -> str | None:
        return "\n".join(fact_line(fact) for fact in material.facts[-self.max_facts :]) or None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """Without the oldest facts."""
        facts = _BETWEEN_FACTS.split(content)
        return "\n".join(facts[_pieces_to_cut(facts, tokens_to_cut, count) :]) or None


@dataclass(frozen=True, init=False)
class SummaryMemoryBlock(BaseMemoryBlock):
    """The rolling summary of what the session has flushed."""

    _keywords: ClassVar[tuple[str, ...]] = ("name", "priority")

    def __init__(self, *, name: str = "summary", priority: int = 2, **unknown: Any) -> None:
        super().__init__(name=name, priority=priority, pipeline=SUMMARY, **unknown)


@dataclass(frozen=True, init=False)
class VectorMemoryBlock(BaseMemoryBlock):
    """Pieces of flushed conversation that fit what is being asked, best first.

    Attributes:
        similarity_top_k: how many pieces.
        retrieval_context_window: how many of the latest messages form the query when none is given.
        similarity_cutoff: the least cosine similarity, 0 to 1; not applied where only text is compared.
        scope: search this ``session``, or all sessions of its ``owner``.
    """

    similarity_top_k: int
    retrieval_context_window: int
    similarity_cutoff: float
    scope: Scope

    _keywords: ClassVar[tuple[str, ...]] = (
        "name",
        "similarity_top_k",
        "retrieval_context_window",
        "similarity_cutoff",
        "scope",
        "priority",
    )

    def __init__(
        self,
        *,
        name: str = "vector_memory",
        similarity_top_k: int = 2,
        retrieval_context_window: int = 5,
        similarity_cutoff: float = 0.0,
        scope: Scope = "session",
        priority: int = 3,
        **unknown: Any,
    ) -> None:
        super().__init__(name=name, priority=priority, pipeline=VECTORS, **unknown)
        _check_count("similarity_top_k", similarity_top_k, least=1)
        _check_count("retrieval_context_window", retrieval_context_window, least=1)
        if not _is_number(similarity_cutoff) or not 0 <= similarity_cutoff <= 1:
            raise ConfigurationError(f"similarity_cutoff is {similarity_cutoff!r}; it must be from 0 to 1.")
        if scope not in ("session", "owner"):
            raise ConfigurationError(f"scope is {scope!r}; it must be 'session' or 'owner'.")
        self._set(
            similarity_top_k=similarity_top_k,
            retrieval_context_window=retrieval_context_window,
            similarity_cutoff=float(similarity_cutoff),
            scope=scope,
        )

    def render(self, material: Material) -> str | None:
        """One line per message that has text; a blank line parts one piece of conversation from the next."""
        pieces = (
            "\n".join(message_line(message) for message in hit.messages if message.text)
            for hit in material.hits.get(self.name, ())
        )
        return "\n\n".join(piece for piece in pieces if piece) or None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """Without the pieces that scored lowest."""
        hits = _BETWEEN_HITS.split(content)
        worst_first = hits[::-1]
        return "\n\n".join(hits[: len(hits) - _pieces_to_cut(worst_first, tokens_to_cut, count)]) or None


def default_blocks() -> tuple[BaseMemoryBlock, ...]:
    """The blocks of a ``Memory`` that names none: facts, the summary, and search."""
    return FactExtractionMemoryBlock(), SummaryMemoryBlock(), VectorMemoryBlock()


def declare_blocks(sources: Sequence[BaseMemoryBlock | str] | None) -> tuple[BaseMemoryBlock, ...]:
    """``memory_blocks`` as given by a caller: None means the default ones, a string a pipeline by name.

    Raises:
        ConfigurationError: something else stands among them, or two have one name.
    """
    if sources is None:
        return default_blocks()
    if isinstance(sources, (str, BaseMemoryBlock)) or not isinstance(sources, Sequence):
        raise ConfigurationError("memory_blocks must be a list of memory blocks or names of pipelines.")
    blocks = tuple(_block(source) for source in sources)
    names = [block.name for block in blocks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"Two memory blocks are called {', '.join(map(repr, twice))}; give each a name= of its own."
        )
    return blocks


def pipelines_of(blocks: Sequence[BaseMemoryBlock]) -> tuple[str, ...]:
    """The pipelines that feed ``blocks``, sorted, each once."""
    return tuple(sorted({block.pipeline for block in blocks if block.pipeline is not None}))


def check_block_name(name: object) -> None:
    """Raise ConfigurationError unless ``name`` can be a tag in the prompt."""
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name a memory block: use at most {MAX_NAME_CHARACTERS} letters, digits, '_',"
            " '-' or '.', beginning with a letter or '_'."
        )


def _block(source: object) -> BaseMemoryBlock:
    if isinstance(source, BaseMemoryBlock):
        return source
    if isinstance(source, str):
        return BaseMemoryBlock(name=source)
    raise ConfigurationError(
        f"memory_blocks holds {source!r}; each must be a memory block (an instance, not its class) or the"
        " name of a registered pipeline."
    )


def _pieces_to_cut(pieces: Sequence[str], tokens_to_cut: int, count: CountText) -> int:
    """How many of the first pieces together make up ``tokens_to_cut``; all, if they do not."""
    cut = 0
    for index, piece in enumerate(pieces, start=1):
        cut += count(piece)
        if cut >= tokens_to_cut:
            return index
    return len(pieces)


def _state_text(state: object) -> str | None:
    text = state.get("text") if isinstance(state, Mapping) else None
    return text if isinstance(text, str) else None


def _checked_content(content: object) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)) and all(_is_part(part) for part in content):
        return tuple(content)
    raise ConfigurationError(
        "static_content must be text, or a list of content parts such as {'type': 'text', 'text': '…'}."
    )


def _is_part(part: object) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    return part["type"] != "text" or isinstance(part.get("text"), str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_count(what: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what} is {value!r}; it must be a whole number, {least} or above.")
