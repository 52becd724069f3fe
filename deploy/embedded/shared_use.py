"""Counts the users of a server by kernel locks, so that a killed process never counts.

Each user holds a shared ``flock`` on one file for as long as it lives; the kernel releases it however the
process ends.  No process ids are recorded, so none can go stale or be reused.  A second file is the mutex
under which a server is started, joined and stopped.

A process made by ``fork`` inherits neither: it becomes a user when it joins itself, and its parent's use
and mutex end with its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Holding = Literal["free", "shared", "exclusive"]


class SharedUse:
    """The users of the server whose data lies at ``path``, in two files next to it."""

    def __init__(self, path: Path) -> None:
        self.users_path = path.with_name(path.name + ".users")
        self._mutex_path = path.with_name(path.name + ".lock")
        self._users: int | None = None

    @property
    def is_joined(self) -> bool:
        """True between ``join`` and ``leave``."""
        return self._users is not None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the mutex; waits for a process that is starting or stopping the server."""
        descriptor = _open(self._mutex_path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            _let_go(descriptor)

    def join(self) -> None:
        """Become a user, until ``leave`` or the end of the process; waits for a server that is ending."""
        if self._users is not None:
            return
        descriptor = _open(self.users_path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(descriptor)
            raise
        self._users = descriptor
        _joined.add(self)

    def leave(self) -> None:
        """Stop being a user; does nothing if this process is not one."""
        descriptor, self._users = self._users, None
        if descriptor is not None:
            _joined.discard(self)
            _let_go(descriptor)

    def leave_the_parents(self) -> None:
        """In a forked child: stop sharing the parent's use, which stays."""
        descriptor, self._users = self._users, None
        if descriptor is not None:
            os.close(descriptor)

    def current_holding(self) -> Holding:
        """How the users' file is locked, by this object or any other process."""
        descriptor = _open(self.users_path)
        try:
            for mode, meaning in _PROBES:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
                    return meaning
            return "exclusive"
        finally:
            _let_go(descriptor)


_PROBES: tuple[tuple[int, Holding], ...] = ((fcntl.LOCK_EX, "free"), (fcntl.LOCK_SH, "shared"))


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _let_go(descriptor: int) -> None:
    # Closing would not do: a concurrently forked child has it open as well.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


_joined: set[SharedUse] = set()


def _leave_the_parents() -> None:
    for use in tuple(_joined):
        use.leave_the_parents()
    _joined.clear()


os.register_at_fork(after_in_child=_leave_the_parents)
