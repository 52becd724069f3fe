"""The application's code in a read: bounded in time, so that it can neither fail the read nor hold it up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from strandline.pipelines.own_code.bounded_calls import BoundedCalls, NoPlaceError, TimeLimitError
from strandline.producers.blocks.base import BaseMemoryBlock, Rendered
from strandline.producers.blocks.custom import CustomMemoryBlock
from strandline.producers.reading.context import Omission

__all__ = ["NoPlaceError", "TimeLimitError", "attempt", "call_within", "is_foreign", "problem_of"]

T = TypeVar("T")

logger = logging.getLogger("strandline.producers")

# As long as the embedding of a query may take by default.
MAX_BLOCK_SECONDS = 0.5

# Calls that never come back are left to themselves; so many of them at most.
_calls = BoundedCalls(32)


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of ``call``, or raise its error, within ``seconds``.

    Raises:
        TimeLimitError: it did not return in time.
        NoPlaceError: it was not called, because too many earlier calls have not returned.
    """
    return _calls.within(seconds, call)


def problem_of(error: Exception, seconds: float) -> str:
    """What went wrong with a call that had ``seconds`` to return; never the error's own words."""
    if isinstance(error, TimeLimitError):
        return f"took longer than {seconds} s"
    if isinstance(error, NoPlaceError):
        return "was not called, because too many earlier calls have not returned"
    return f"raised {type(error).__name__}"


def is_foreign(block: BaseMemoryBlock) -> bool:
    """Whether rendering the block runs code that is not Strandline's."""
    return isinstance(block, CustomMemoryBlock) or not type(block).__module__.startswith("strandline.")


def attempt(
    what: str, block: BaseMemoryBlock, call: Callable[[], object]
) -> tuple[str | Rendered | None, Omission | None]:
    """Call a block's own code; returns its result, or None with the problem.

    A block may be foreign code, and one that fails must not fail the read. So this is the one place that
    catches everything; the error's message is not logged, because it may contain content.
    """
    try:
        result = call_within(MAX_BLOCK_SECONDS, call) if is_foreign(block) else call()
    except Exception as error:  # noqa: BLE001  # the edge to foreign code, see above
        problem = problem_of(error, MAX_BLOCK_SECONDS)
    else:
        if result is None or isinstance(result, (str, Rendered)):
            return result, None
        problem = f"returned {type(result).__name__} instead of text"
    logger.warning(
        "memory block failed",
        extra={"action": "block_failed", "block": block.name, "reason": f"{what} {problem}"},
    )
    return None, Omission("block_failed", block.name, f"Its {what}() {problem}; the block is left out.")
