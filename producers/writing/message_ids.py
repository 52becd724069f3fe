"""Ids for messages that come without one: 32 hexadecimal digits of the system's randomness."""

from __future__ import annotations

import os
from collections import deque

# Asking the system takes as long as all else about an id, so it is asked for many at once.
_MANY = 128
_BYTES = 16

_ready: deque[str] = deque()
if hasattr(os, "register_at_fork"):
    # A forked child must not give out its parent's ids.
    os.register_at_fork(after_in_child=_ready.clear)


def random_id() -> str:
    """A new random id; safe for all threads."""
    try:
        return _ready.popleft()
    except IndexError:
        digits = os.urandom(_BYTES * _MANY).hex()
        ids = [digits[at : at + 2 * _BYTES] for at in range(0, len(digits), 2 * _BYTES)]
        _ready.extend(ids[1:])
        return ids[0]
