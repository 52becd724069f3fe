"""The read side of a custom block: its state, shown by the application's own code."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.pipelines.custom.contract import BlockDefinition
from strandline.producers.blocks.base import BaseMemoryBlock, CountText, Material, Rendered, split_content
from strandline.producers.blocks.render import escaped
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError


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
        """Whether its code is told what a read is about."""
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
    """The arguments that a read hands to custom blocks.

    Raises:
        ConfigurationError: they are no mapping with names, or no block takes any.
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
