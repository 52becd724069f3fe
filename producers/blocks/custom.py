"""The read side of a custom block: its state, shown by the application's own code."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import ClassVar

from strandline.pipelines.custom.contract import BlockDefinition
from strandline.producers.blocks.base import BaseMemoryBlock, CountText, Material, Rendered, split_content
from strandline.producers.blocks.render import escaped


@dataclass(frozen=True, init=False)
class CustomMemoryBlock(BaseMemoryBlock):
    """The read side of a custom block: shows its state with the block's own ``render``."""

    definition: BlockDefinition

    _keywords: ClassVar[tuple[str, ...]] = ("definition",)

    def __init__(self, definition: BlockDefinition) -> None:
        super().__init__(name=definition.name, priority=definition.priority)
        self._set(definition=definition)

    def render(self, material: Material) -> str | Rendered | None:
        code = self.definition.code
        state = material.states.get(self.definition.name)
        shown = code.render(code.initial() if state is None else state)
        return None if shown is None else split_content(shown, f"render() of block {self.name!r}")

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` shortened by the block's own ``truncate``, which receives it unescaped."""
        shorten = getattr(self.definition.code, "truncate", None)
        shorter = None if shorten is None else shorten(html.unescape(content), tokens_to_cut)
        return escaped(shorter) if shorter else None
