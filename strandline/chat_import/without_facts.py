"""Putting messages whose facts are imported as well, so that none are derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.memory import Memory
from strandline.producers.blocks.resolve import default_blocks
from strandline.schemas.errors import NotFoundError
from strandline.schemas.values.lanes import FACTS

ALL_BLOCKS = default_blocks()
WITHOUT_FACTS = [block for block in ALL_BLOCKS if block.pipeline != FACTS]


class WithoutFacts:
    """Puts into one session after another, each of which feeds no facts until the messages are delivered.

    An interrupted import finds the session so, and resumes.
    """

    def __init__(self) -> None:
        self._session: str | None = None
        self._known: set[str | None] = set()

    def put(self, memory: Memory, ids: Iterable[str | None], put: Callable[[], None]) -> None:
        """Put and deliver; messages that are all known in a session with facts change nothing.

        ``memory`` has the blocks ``WITHOUT_FACTS``, with which it begins its session.
        """
        if memory.session_id != self._session:
            self._session, self._known = memory.session_id, {one.id for one in memory.iterate()}
        try:
            feeds_facts = FACTS in memory.set_policy().pipelines
        except NotFoundError:
            feeds_facts = False
        if feeds_facts and self._known.issuperset(ids):
            put()
            return
        if feeds_facts:
            memory.set_policy(memory_blocks=WITHOUT_FACTS)
        put()
        memory.deliver()
        memory.set_policy(memory_blocks=ALL_BLOCKS)
