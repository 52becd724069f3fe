"""The account that Postgres runs under: our own, or ``pgserver`` for root, whom Postgres refuses."""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from strandline.schemas.errors import ConfigurationError, EmbeddedUnavailableError

logger = logging.getLogger(__name__)

ROOT_STAND_IN = "pgserver"
WORKING_DIRECTORY = Path("/proc/self/cwd")
# In a folder that root alone writes in.
LOCK = Path("/run/strandline-account.lock")


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """An account by its numbers; ``switched`` says that it is not the one we run as."""

    uid: int
    gid: int
    switched: bool

    def own(self, path: Path) -> None:
        """Give ``path`` to the account."""
        if self.switched:
            os.chown(path, self.uid, self.gid)

    def may_run(self, program: Path) -> bool:
        """Whether the account may pass the directories above ``program``, read it and execute it."""
        return not self.switched or (
            all(self._may(0o1, directory) for directory in program.parents) and self._may(0o5, program)
        )

    def may_pass(self, path: Path) -> bool:
        """Whether the account may pass the directories above ``path``."""
        return not self.switched or all(self._may(0o1, directory) for directory in path.parents)

    def name_of(self, directory: Path) -> Path:
        """The name under which a program that ``run`` starts in ``directory`` reaches it.

        Where a directory above it is closed to the account, that is the working directory, which the
        program was given before its rights were dropped: nothing above it is opened, nor passed.

        Raises:
            ConfigurationError: a directory above it is closed, and this system has no ``/proc``.
        """
        if self.may_pass(directory):
            return directory
        if not WORKING_DIRECTORY.exists():
            raise ConfigurationError(
                f"Postgres does not run as root, and a directory above {directory} is closed to the account"
                " that it runs under. Run as another user, or set STRANDLINE_HOME to a directory below one"
                " that is open to others."
            )
        return WORKING_DIRECTORY

    def _may(self, rights: int, path: Path) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return status.st_mode >> shift & rights == rights

    def run(
        self, argv: Sequence[str], *, directory: Path, env: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``argv`` in ``directory``, in its own session so that Ctrl-C does not reach it."""
        return subprocess.run(
            list(argv),
            env=dict(env),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.uid if self.switched else None,
            group=self.gid if self.switched else None,
            extra_groups=[] if self.switched else None,
            check=False,
        )


def server_account() -> ServerAccount:
    """The current account; for root the account ``pgserver``, made by ``useradd`` if it does not exist.

    Raises:
        EmbeddedUnavailableError: root, and the account cannot be made.
    """
    if os.geteuid() != 0:
        return ServerAccount(os.geteuid(), os.getegid(), switched=False)
    try:
        entry = pwd.getpwnam(ROOT_STAND_IN)
    except KeyError:
        entry = _make_account()
    return ServerAccount(entry.pw_uid, entry.pw_gid, switched=True)


def _make_account() -> pwd.struct_passwd:
    useradd = shutil.which("useradd") or "/usr/sbin/useradd"
    argv = [useradd, "--system", "--user-group", "--no-create-home", "--shell", "/bin/false", ROOT_STAND_IN]
    try:
        with _one_at_a_time():
            if ROOT_STAND_IN not in {entry.pw_name for entry in pwd.getpwall()}:
                subprocess.run(argv, check=True, capture_output=True)
                logger.warning("account made for Postgres", extra={"account": ROOT_STAND_IN})
        return pwd.getpwnam(ROOT_STAND_IN)
    except (OSError, subprocess.CalledProcessError, KeyError):
        raise EmbeddedUnavailableError(
            f"Postgres does not run as root, and the account {ROOT_STAND_IN!r} could not be made. "
            "Run as another user, make that account, or set STRANDLINE_DATABASE_URL."
        ) from None


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait until no other process makes the account.

    ``useradd`` looks for the name before it waits for its own lock: of two that begin together, the second
    gives the account another number, which the first one's Postgres then does not have.
    """
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(LOCK, flags, mode=0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
