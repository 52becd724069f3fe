"""Resolves the blocks of a memory: names and objects given by a caller, turned into memory blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from strandline.pipelines.custom.contract import BlockDefinition, CustomBlock
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    CustomMemoryBlock,
    FactExtractionMemoryBlock,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS

BlockSource = BaseMemoryBlock | CustomBlock | str
Known = Callable[[], Mapping[str, BlockDefinition]]

_OWN: Mapping[str, Callable[..., BaseMemoryBlock]] = {
    FACTS: FactExtractionMemoryBlock,
    SUMMARY: SummaryMemoryBlock,
    VECTORS: VectorMemoryBlock,
}


@cache
def default_blocks() -> tuple[BaseMemoryBlock, ...]:
    """The blocks of a ``Memory`` that names none: facts, the summary, and search; always the same objects."""
    return FactExtractionMemoryBlock(), SummaryMemoryBlock(), VectorMemoryBlock()


def declare_blocks(sources: Sequence[BlockSource] | None, known: Known = dict) -> tuple[BaseMemoryBlock, ...]:
    """``memory_blocks`` as given by a caller: None means the default ones, a string a pipeline by name.

    Args:
        sources: memory blocks, custom blocks, or the names of either.
        known: returns the custom blocks that this process can load; called only for a name that is not one of
            Strandline's own pipelines.

    Raises:
        ConfigurationError: an element is something else, or two blocks have the same name.
    """
    if sources is None:
        return default_blocks()
    if isinstance(sources, (str, BaseMemoryBlock)) or not isinstance(sources, Sequence):
        raise ConfigurationError("memory_blocks must be a list of memory blocks or names of pipelines.")
    try:
        elements = list(sources)
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise ConfigurationError("memory_blocks cannot be read as a list.") from error
    blocks = tuple(_block(source, known) for source in elements)
    names = [block.name for block in blocks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"Two memory blocks are called {', '.join(map(repr, twice))}; give each its own name=."
        )
    return blocks


def stored_blocks(pipelines: Sequence[str], max_facts: int | None) -> list[BlockSource]:
    """The blocks that a memory has by default, of the pipelines that a session stores; others by name."""
    own: dict[str, BlockSource] = {block.pipeline or "": block for block in default_blocks()}
    if max_facts is not None:
        own[FACTS] = FactExtractionMemoryBlock(max_facts=max_facts)
    return [own.get(pipeline, pipeline) for pipeline in pipelines]


def owner_wide(blocks: Sequence[BlockSource]) -> tuple[BlockSource, ...]:
    """The same blocks, with a search over all sessions of the owner."""
    return tuple(
        VectorMemoryBlock(scope="owner") if isinstance(block, VectorMemoryBlock) else block
        for block in blocks
    )


def pipelines_of(blocks: Sequence[BaseMemoryBlock]) -> tuple[str, ...]:
    """The pipelines that feed ``blocks``, sorted, each once."""
    return tuple(sorted({block.pipeline for block in blocks if block.pipeline is not None}))


def max_facts_of(blocks: Sequence[BaseMemoryBlock]) -> int | None:
    """The largest number of facts that a block shows; workers condense an owner's facts above it.

    None: no block has a number, so that only ``STRANDLINE_MAX_FACTS`` bounds them.
    """
    shown = [block.max_facts for block in blocks if isinstance(block, FactExtractionMemoryBlock)]
    return None if None in shown else max((most for most in shown if most is not None), default=None)


def _block(source: object, known: Known) -> BaseMemoryBlock:
    if isinstance(source, BaseMemoryBlock):
        return source
    if isinstance(source, str):
        return _named_block(source, known)
    if not isinstance(source, type) and callable(getattr(source, "fold", None)):
        return CustomMemoryBlock(BlockDefinition.check(source, where=type(source).__qualname__))
    raise ConfigurationError(
        f"memory_blocks holds {quote(source)}; each must be a memory block (an instance, not its class) or"
        " the name of a registered pipeline."
    )


def _named_block(name: str, known: Known) -> BaseMemoryBlock:
    """The block for a pipeline's name; one whose code is not in this process shows its state's ``text``."""
    if name in _OWN:
        return _OWN[name](name=name)
    definition = known().get(name)
    return BaseMemoryBlock(name=name) if definition is None else CustomMemoryBlock(definition)
