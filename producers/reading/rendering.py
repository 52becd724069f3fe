"""What each block contributes: rendered by the block itself; one that fails leaves out its section alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.producers.blocks.base import BaseMemoryBlock, Material, Rendered
from strandline.producers.reading.budget.contributions import Contribution
from strandline.producers.reading.context import Omission
from strandline.producers.reading.foreign_code import attempt, is_foreign
from strandline.producers.tokens import INLINE_CHARACTERS, is_loaded
from strandline.schemas.postgres.operations import Operation, Run


def render_blocks(
    blocks: Sequence[BaseMemoryBlock], material: Material
) -> Operation[tuple[list[Contribution], list[Omission]]]:
    """The contributions of the blocks; made off the event loop if one runs code that is not ours."""
    render = partial(contributions_of, blocks, material)
    if not any(is_foreign(block) for block in blocks):
        return render()
    rendered: tuple[list[Contribution], list[Omission]] = yield Run(render)
    return rendered


def contributions_of(
    blocks: Sequence[BaseMemoryBlock], material: Material
) -> tuple[list[Contribution], list[Omission]]:
    contributions: list[Contribution] = []
    failures: list[Omission] = []
    for block in blocks:
        shown, failure = attempt("render", block, partial(block.render, material))
        if failure is not None:
            failures.append(failure)
        elif isinstance(shown, Rendered):
            contributions.append(Contribution(block, shown.text, shown.parts))
        elif shown:
            contributions.append(Contribution(block, shown))
    return contributions, failures


def is_quick(contributions: Sequence[Contribution], more_characters: int = 0) -> bool:
    """Whether these, and so many characters beside them, are counted too quickly to leave the event loop."""
    if any(is_foreign(c.block) for c in contributions):
        return False
    characters = sum(len(c.text) for c in contributions) + more_characters
    return not characters or (is_loaded() and characters <= INLINE_CHARACTERS)
