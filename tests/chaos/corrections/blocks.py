"""Custom blocks whose states do not depend on how messages were grouped, so that sessions can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from strandline import Memory, Message
from strandline.schemas.values.identity import identify_session
from tests.conftest import rows_of

SHOWN = 3


class Lines:
    """What was said in a session, in order."""

    name = "lines"
    version = "1"
    priority = 2

    def initial(self) -> list[str]:
        return []

    def fold(self, state: list[str], messages: Sequence[Message]) -> list[str]:
        return [*state, *texts_of(messages)]

    def render(self, state: list[str]) -> str | None:
        return "\n".join(state[-SHOWN:]) or None


class Sayings(Lines):
    """What was said in any session of a user, each text once."""

    name = "sayings"
    scope = "owner"

    def fold(self, state: list[str], messages: Sequence[Message]) -> list[str]:
        return sorted({*state, *texts_of(messages)})


BLOCKS = (Lines, Sayings)
NAMES = tuple(block.name for block in BLOCKS)
SETTING = ",".join(f"{__name__}:{block.__name__}" for block in BLOCKS)

STATES = """
SELECT DISTINCT ON (g.pipeline) g.pipeline, b.state FROM strandline.block_state b
JOIN strandline.generation g USING (generation_id)
WHERE g.state = 'serving' AND b.shard_key = %s
    AND b.scope_key = CASE g.entry_scope WHEN 'owner' THEN %s ELSE %s END AND g.pipeline = ANY (%s)
ORDER BY g.pipeline, b.ordinal DESC
"""


def texts_of(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages if message.text]


def states_of(url: str, memory: Memory) -> dict[str, Any]:
    """The newest state of each block for a session; where nothing was folded yet, its first one."""
    keys = identify_session(memory.namespace, memory.session_id, memory.user_id)
    found = rows_of(url, STATES, keys.shard_key, keys.shard_key, keys.session_key, list(NAMES))
    return {block.name: block().initial() for block in BLOCKS} | dict(found)
