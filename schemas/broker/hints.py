"""Hints on the wire: a small JSON array that names a lane, and says when it was rung for.

A worker trusts nothing about what comes from the broker.  It reads this array, which is bounded and checked
value by value, and nothing else of a message: no header, no property, no encoding.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from uuid import UUID

from strandline.schemas.values.lanes import Lane

# A hint takes about 110 bytes; the name of a custom block's stage is the only part without a fixed length.
MAX_HINT_BYTES = 1_000

# Hints older than this are worth nothing: the sweep has rung again long before.
EXPIRY_SECONDS = 300

_MAX_GENERATION = 2**31 - 1
_UUID_CHARACTERS = 36


@dataclass(frozen=True, slots=True)
class Hint:
    """A lane that has work; ``rung_at`` is the Unix time, in whole seconds, of who rang."""

    lane: Lane
    rung_at: int

    def is_stale(self, now: float) -> bool:
        """Whether it lay for so long that the sweep has rung again."""
        return now - self.rung_at > EXPIRY_SECONDS


class UnreadableHintError(ValueError):
    """What came from the broker is not a hint; the sentence names what is wrong and quotes nothing."""


def write_hint(hint: Hint) -> bytes:
    """The hint as the body of a message."""
    return json.dumps([*hint.lane.to_args(), hint.rung_at], separators=(",", ":")).encode()


def read_hint(body: object, stages: Container[str]) -> Hint:
    """Read the body of a message; ``stages`` are those that are served here.

    Raises:
        UnreadableHintError: it is too large or not a hint, or names another stage.
    """
    if not isinstance(body, bytes) or len(body) > MAX_HINT_BYTES:
        raise UnreadableHintError("it is too large, or has no body")
    try:
        shard_key, scope_key, generation_id, stage, rung_at = json.loads(body.decode("ascii"))
    except (ValueError, TypeError, RecursionError):
        raise UnreadableHintError("it is not a JSON array of five values") from None
    if not isinstance(stage, str) or stage not in stages:
        raise UnreadableHintError("it names a stage that is not served here")
    lane = Lane(_key(shard_key), _key(scope_key), _number(generation_id, 1, _MAX_GENERATION), stage)
    return Hint(lane, _number(rung_at, 0, 2**40))


def _key(value: object) -> UUID:
    if isinstance(value, str) and len(value) == _UUID_CHARACTERS:
        try:
            return UUID(value)
        except ValueError:
            pass
    raise UnreadableHintError("a key is not a UUID")


def _number(value: object, lowest: int, highest: int) -> int:
    if type(value) is int and lowest <= value <= highest:
        return value
    raise UnreadableHintError("a number is out of bounds")
