"""Blocks' contributions to the memory of a read: rendered by the blocks, counted as in the prompt."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from strandline.pipelines.own_code.bounded_calls import BoundedCalls, NoPlaceError, TimeLimitError
from strandline.producers.blocks.base import BaseMemoryBlock, CountText, CustomMemoryBlock, Material, Rendered
from strandline.producers.blocks.render import SEPARATOR, Renderer, Section, render_memory
from strandline.producers.reading.context import Omission
from strandline.producers.tokens import INLINE_CHARACTERS, PART_TOKENS, count_default, count_parts, is_loaded
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import renew_in_child
from strandline.schemas.postgres.operations import Operation, Run

T = TypeVar("T")

MAX_KEPT_COUNTS = 10_000

# Where the default tokenizer restarts: after the end of a line, unless white space or a slash follows.
_BETWEEN_LINES = re.compile(r"(?<=\n)(?=[^\s/])")


class RecentCounts:
    """Remembers the last ``kept`` counts by tokenizer and a hash of the text, never the text itself."""

    def __init__(self, kept: int = MAX_KEPT_COUNTS) -> None:
        self._kept = kept
        self.forget()

    def forget(self) -> None:
        """Start empty, with a new lock: in a forked child, a thread of the parent may hold the old one."""
        self._lock = threading.Lock()
        self._counts: dict[tuple[CountText, int], int] = {}

    def count(self, count_text: CountText, text: str) -> int:
        """The tokens of ``text`` by ``count_text``, counted now or cached.

        The default tokenizer counts a text as the sum of its lines, so only those are counted that are new.
        """
        counted = self._counts.get((count_text, hash(text)))
        if counted is not None:
            return counted
        if count_text is not count_default:
            return self._count(count_text, text)
        total = 0
        for line in _BETWEEN_LINES.split(text):
            counted = self._counts.get((count_text, hash(line)))
            total += self._count(count_text, line) if counted is None else counted
        self._remember(count_text, text, total)
        return total

    def _count(self, count_text: CountText, text: str) -> int:
        counted = count_text(text)
        self._remember(count_text, text, counted)
        return counted

    def _remember(self, count_text: CountText, text: str, counted: int) -> None:
        with self._lock:
            while len(self._counts) >= self._kept:
                del self._counts[next(iter(self._counts))]
            self._counts[count_text, hash(text)] = counted


recent_counts = RecentCounts()
renew_in_child(recent_counts.forget)


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
    """The failure of a call that had ``seconds`` to return; never the error's own words."""
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

    A block may be foreign code, whose failure must not fail the read. So this catches every error; its
    message is not logged, because it may contain content.
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


# Lines and markup stay as they are, for templates that look at these.
_ANY_CHARACTER = re.compile(r"[^\s<>&;]")
_OTHER_CHARACTER = "\u2588"


@dataclass(frozen=True, slots=True)
class Contribution:
    """The output of one block: its text, escaped, and its content parts."""

    block: BaseMemoryBlock
    text: str
    parts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """How the memory is rendered and counted; ``part_tokens``: tokens of content parts that are not text,
    by type.
    """

    count_text: CountText
    render: Renderer
    part_tokens: Mapping[str, int] = field(default_factory=lambda: PART_TOKENS)

    def render_all(self, contributions: Iterable[Contribution]) -> str:
        return self.render([Section(c.block.name, c.text) for c in contributions if c.text])

    def find_unrendered(self, contributions: Sequence[Contribution]) -> list[Contribution]:
        """The contributions whose text the caller's template does not show at all."""
        if self.render is render_memory:
            return []
        return [c for c in contributions if c.text and not self._shows(c, contributions)]

    def _shows(self, one: Contribution, contributions: Sequence[Contribution]) -> bool:
        # A template may lay text out as it likes, so what counts is that another text gives another memory.
        other = replace(one, text=_ANY_CHARACTER.sub(_OTHER_CHARACTER, one.text))
        try:
            changed = self.render_all([other if c is one else c for c in contributions])
        except ConfigurationError:
            return True  # it stumbles over this text, so it looks at it
        return changed != self.render_all(contributions)

    def cost(self, contributions: Sequence[Contribution]) -> int:
        """Tokens of the memory as inserted, and of the content parts by their estimates."""
        text = self.render_all(contributions)
        parts = [part for c in contributions for part in c.parts]
        estimates = count_parts(parts, self.count_text, self.part_tokens)
        return estimates + (recent_counts.count(self.count_text, text + SEPARATOR) if text else 0)


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
    """Whether these, and so many further characters, are counted too quickly to leave the event loop."""
    if any(is_foreign(c.block) for c in contributions):
        return False
    characters = sum(len(c.text) for c in contributions) + more_characters
    return not characters or (is_loaded() and characters <= INLINE_CHARACTERS)
