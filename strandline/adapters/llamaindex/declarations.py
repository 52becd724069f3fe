"""Turns LlamaIndex's memory blocks into ours, and ours into declarations that a context can carry.

LlamaIndex's blocks hold live objects (a model, a vector store).  Here models run in the workers, so these
objects are ignored; the content, size and priority of a block are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.memory import FactExtractionMemoryBlock as TheirFacts
from llama_index.core.memory import StaticMemoryBlock as TheirStatic
from llama_index.core.memory import VectorMemoryBlock as TheirVectors
from llama_index.core.memory.memory import BaseMemoryBlock as TheirBlock
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

from strandline.adapters.llamaindex.content_blocks import part_of
from strandline.adapters.llamaindex.own_blocks import LlamaIndexBlock
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    StaticMemoryBlock,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.search.hits import Hit, Reranker
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

# Blocks that say nothing but names and numbers.
_CARRIED: Mapping[str, type[BaseMemoryBlock]] = {
    "block": BaseMemoryBlock,
    "facts": FactExtractionMemoryBlock,
    "summary": SummaryMemoryBlock,
    "vectors": VectorMemoryBlock,
}
_JSON = (str, int, float, bool, type(None))


def own_block(block: object) -> Any:
    """The Strandline block that corresponds to one of LlamaIndex's; anything else is returned as it is.

    Raises:
        ConfigurationError: the block has code of its own, and a field that cannot be kept as JSON.
    """
    if not isinstance(block, TheirBlock):
        return block
    if isinstance(block, TheirStatic):
        return StaticMemoryBlock(name=block.name, priority=block.priority, static_content=_static(block))
    if isinstance(block, TheirFacts):
        return FactExtractionMemoryBlock(name=block.name, priority=block.priority, max_facts=block.max_facts)
    if isinstance(block, TheirVectors):
        return VectorMemoryBlock(
            name=block.name,
            priority=block.priority,
            similarity_top_k=block.similarity_top_k,
            retrieval_context_window=block.retrieval_context_window,
            similarity_cutoff=_cutoff(block),
            postprocessors=[
                _as_ours(one)
                for one in block.node_postprocessors
                if not isinstance(one, SimilarityPostprocessor)
            ],
        )
    return LlamaIndexBlock(block)


def carried_blocks(blocks: Sequence[BaseMemoryBlock]) -> list[dict[str, Any]] | None:
    """The declarations of ``blocks`` as JSON; None if one holds content or code, which no context carries."""
    carried = []
    for block in blocks:
        kind = next((name for name, one in _CARRIED.items() if one is type(block)), None)
        declared = {name: _listed(value) for name, value in block.declaration().items()}
        if kind is None or not all(_is_plain(value) for value in declared.values()):
            return None
        carried.append({"kind": kind, **declared})
    return carried


def restored_blocks(carried: Sequence[Mapping[str, Any]]) -> list[BaseMemoryBlock]:
    """The blocks that ``carried_blocks`` declared.

    Raises:
        ConfigurationError: a declaration does not name one of Strandline's blocks, or does not fit it.
    """
    blocks = []
    for one in carried:
        declared = dict(one)
        kind = declared.pop("kind", None)
        if kind not in _CARRIED:
            raise ConfigurationError(
                f"The context names a memory block of kind {quote(kind)}, which does not exist."
            )
        blocks.append(_CARRIED[kind](**declared))
    return blocks


def _is_plain(value: object) -> bool:
    return isinstance(value, _JSON) or (isinstance(value, list) and all(map(_is_plain, value)))


def _listed(value: object) -> object:
    """The value after a round trip through JSON, which a context's value must equal."""
    return list(value) if isinstance(value, tuple) else value


def _static(block: TheirStatic) -> Any:
    content = block.static_content
    if isinstance(content, str):
        return content
    if all(isinstance(one, TextBlock) for one in content):
        return "\n".join(one.text for one in content if isinstance(one, TextBlock))
    return [part_of(one) for one in content]


def _cutoff(block: TheirVectors) -> float:
    """The cut-off of ``SimilarityPostprocessor``, which the search applies before any other postprocessor."""
    return max(
        (
            one.similarity_cutoff or 0.0
            for one in block.node_postprocessors
            if isinstance(one, SimilarityPostprocessor)
        ),
        default=0.0,
    )


def _as_ours(postprocessor: BaseNodePostprocessor) -> Reranker:
    def process(query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        nodes = [
            NodeWithScore(node=TextNode(id_=str(place), text=_text(hit)), score=hit.similarity)
            for place, hit in enumerate(hits)
        ]
        kept = postprocessor.postprocess_nodes(nodes, query_str=query)
        return [hits[int(one.node.node_id)] for one in kept]

    return process


def _text(hit: Hit) -> str:
    return hit.fact.text if hit.fact is not None else "\n".join(map(str, hit.messages))
