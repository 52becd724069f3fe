"""Hints on the wire: calls of a task in Celery's protocol, with a lane and the time of ringing as arguments.

A worker does not trust messages from the broker.  It reads the body, a small JSON array, which is
bounded and checked value by value, and nothing else of a message: no header, no property, no encoding.  The
headers (protocol version 2) are for workers with Celery's own consumer (``Settings.public_apis_only``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container
from dataclasses import dataclass
from uuid import UUID, uuid4

from strandline.schemas.values.lanes import Lane, queue_name

# A body takes about 120 bytes; the name of a custom block's stage is the only part without a fixed length.
MAX_HINT_BYTES = 1_000

# Hints older than this are worth nothing: the sweep has rung again long before.
EXPIRY_SECONDS = 300

_MAX_GENERATION = 2**31 - 1
_UUID_CHARACTERS = 36


@dataclass(frozen=True, slots=True)
class Hint:
    """A lane that has work; ``rung_at`` is the ringer's Unix time, in whole seconds."""

    lane: Lane
    rung_at: int

    def is_stale(self, now: float) -> bool:
        """Whether it lay for so long that the sweep has rung again."""
        return now - self.rung_at > EXPIRY_SECONDS


class UnreadableHintError(ValueError):
    """A message from the broker is not a hint; the sentence says why and quotes nothing."""


def write_hint(hint: Hint) -> bytes:
    """The hint as the body of a message: a task's positional arguments, no named ones, nothing embedded."""
    return json.dumps([[*hint.lane.to_args(), hint.rung_at], {}, {}], separators=(",", ":")).encode()


def task_headers(lane: Lane) -> dict[str, str]:
    """The headers by which Celery knows which task a message calls; the id is also its correlation id."""
    return {"lang": "py", "task": queue_name(lane.stage), "id": uuid4().hex}


def read_hint(body: object, stages: Container[str]) -> Hint:
    """Read the body of a message; ``stages`` are served here.

    Raises:
        UnreadableHintError: it is too large or not a hint, or names another stage.
    """
    if not isinstance(body, bytes) or len(body) > MAX_HINT_BYTES:
        raise UnreadableHintError("it is too large, or has no body")
    try:
        arguments, named, embedded = json.loads(body.decode("ascii"))
    except (ValueError, TypeError, RecursionError):
        raise UnreadableHintError("it is not a JSON array of three values") from None
    if not isinstance(arguments, list) or named != {} or embedded != {}:
        raise UnreadableHintError("it is not a call with positional arguments alone")
    return check_hint(arguments, stages)


def check_hint(arguments: Collection[object], stages: Container[str]) -> Hint:
    """Read a task's positional arguments; ``stages`` are served here.

    Raises:
        UnreadableHintError: they do not form a hint, or name another stage.
    """
    try:
        shard_key, scope_key, generation_id, stage, rung_at = arguments
    except ValueError:
        raise UnreadableHintError("it does not have five arguments") from None
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
