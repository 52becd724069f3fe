"""Forks: detects them, holds them off during critical sections, and renews resources in the child.

A child made by ``fork`` has its parent's memory, and only the forking thread.  There, a lock
that another thread held stays held for good, and the data it was changing stays half-changed.
"""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Callable

ProcessKey = tuple[int, int]

# Names of hosts are encoded by it. A fork while a thread loads it, as with its first connection, leaves a
# child in which it is unknown for good, and which finds no broker and no database.
codecs.lookup("idna")

# Some servers fork in C, and tell Python nothing; then the process id alone has to do.
_CAN_TELL = hasattr(os, "register_at_fork")

_ancestors: list[int] = []

undivided = threading.RLock()
"""Held while something is done that a fork must not cut in two; a fork waits until it is free."""


def this_process() -> ProcessKey:
    """A key that differs from that of the parent of a fork, even if a process id is reused."""
    return os.getpid(), len(_ancestors)


def renew_in_child(renew: Callable[[], object]) -> None:
    """Have ``renew`` called in each child that is forked from now on, before anything else runs there."""
    if _CAN_TELL:
        os.register_at_fork(after_in_child=renew)


if _CAN_TELL:
    os.register_at_fork(
        before=undivided.acquire, after_in_parent=undivided.release, after_in_child=undivided.release
    )
renew_in_child(lambda: _ancestors.append(os.getppid()))
