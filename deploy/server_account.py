"""The account that Postgres runs under: our own, or ``pgserver`` for root, whom Postgres refuses."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from strandline.schemas.errors import EmbeddedUnavailableError

logger = logging.getLogger(__name__)

ROOT_STAND_IN = "pgserver"


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

    def reach(self, path: Path) -> None:
        """Let the account pass through the directories above ``path``.

        Only for root, and only the right to pass (``o+x``), not to list: a home directory that was
        closed stays unreadable.  Each change is logged.
        """
        if not self.switched:
            return
        for directory in path.parents:
            mode = stat.S_IMODE(directory.stat().st_mode)
            if not mode & stat.S_IXOTH:
                directory.chmod(mode | stat.S_IXOTH)
                logger.info("directory opened for passing", extra={"directory": str(directory)})

    def run(
        self, argv: Sequence[str], *, directory: Path, env: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``argv`` in ``directory``, in a session of its own so that Ctrl-C does not reach it."""
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
    """Our own account; for root that of ``pgserver``, made by ``useradd`` when there is none.

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
        subprocess.run(argv, check=True, capture_output=True)
        logger.warning("account made for Postgres", extra={"account": ROOT_STAND_IN})
        return pwd.getpwnam(ROOT_STAND_IN)
    except (OSError, subprocess.CalledProcessError, KeyError):
        raise EmbeddedUnavailableError(
            f"Postgres does not run as root, and the account {ROOT_STAND_IN!r} could not be made. "
            "Run as another user, make that account, or set STRANDLINE_DATABASE_URL."
        ) from None
