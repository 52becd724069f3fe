"""The files of an embedded Postgres cluster: made once and whole, configured before each start."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from strandline.deploy.embedded.server_account import ServerAccount
from strandline.deploy.embedded.shared_use import SharedUse
from strandline.deploy.embedded.wheel_binaries import POSTGRES_MAJOR
from strandline.schemas.errors import ConfigurationError, DatabaseUnavailableError, EmbeddedUnavailableError
from strandline.schemas.private_files import write_private

SUPERUSER = "postgres"
PORT = 5432  # no TCP port: only part of the socket's file name
_SETTINGS_FILE = "strandline.conf"
_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
COPIES = Path("/var/lib/strandline")


def server_environment(data_dir: Path) -> dict[str, str]:
    """The environment of the server programs: without ``PG…`` variables and secrets of the caller."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return kept | {"PGDATA": str(data_dir), "LC_ALL": "C"}


def make_cluster(data_dir: Path, *, programs: Path, account: ServerAccount) -> None:
    """Make the cluster if it does not exist.

    ``initdb`` writes into a neighbouring directory that is renamed when complete, so an interrupted first
    start leaves no apparent cluster.

    Raises:
        ConfigurationError: the directory holds something else, or a cluster of another version.
        DatabaseUnavailableError: ``initdb`` failed.
    """
    if (data_dir / "PG_VERSION").exists():
        _check_version(data_dir)
        return
    if data_dir.exists() and any(data_dir.iterdir()):
        raise ConfigurationError(f"{data_dir} is not empty and holds no database; choose another directory.")
    unfinished = data_dir.with_name(data_dir.name + ".unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    _run_initdb(unfinished, programs=programs, account=account)
    with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"\ninclude_if_exists = '{_SETTINGS_FILE}'\n")
    unfinished.rename(data_dir)


def configure(data_dir: Path, *, account: ServerAccount) -> None:
    """Write the settings of the next start; settings of the user's own go into ``postgresql.auto.conf``."""
    socket_dir = socket_directory(data_dir, account=account)
    if socket_dir != data_dir:
        _make_socket_directory(socket_dir, account=account)
    settings = {
        "listen_addresses": "''",
        "port": str(PORT),
        "unix_socket_directories": _quoted_directory(
            account.name_of(data_dir) if socket_dir == data_dir else socket_dir
        ),
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "fsync": "on",
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        "log_checkpoints": "off",
    }
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    write_private(data_dir / _SETTINGS_FILE, text, owner=(account.uid, account.gid))


def socket_directory(data_dir: Path, *, account: ServerAccount) -> Path:
    """The data directory itself, or one in the temporary directory where its path cannot hold a socket.

    Raises:
        ConfigurationError: the temporary directory cannot either.
    """
    # The directory's identity, not its name alone: the name may be used again by another directory.
    digest = hashlib.sha256(f"{data_dir}:{data_dir.stat().st_ino}".encode()).hexdigest()[:12]
    name = f"strandline-{account.uid}-{digest}"
    for candidate in (data_dir, Path(tempfile.gettempdir()) / name, Path("/tmp") / name):  # noqa: S108
        fits = len(os.fsencode(candidate / f".s.PGSQL.{PORT}")) <= _SOCKET_PATH_BYTES
        reached = candidate == data_dir or account.may_pass(candidate)
        # To libpq a comma separates hosts, with no way to escape it.
        if fits and reached and "," not in str(candidate):
            return candidate
    raise ConfigurationError(f"No directory can hold the socket of {data_dir}; set TMPDIR to a short path.")


def _check_version(data_dir: Path) -> None:
    version = (data_dir / "PG_VERSION").read_text().strip()
    if version != POSTGRES_MAJOR:
        raise ConfigurationError(
            f"{data_dir} was made by PostgreSQL {version}, but {POSTGRES_MAJOR} is installed. "
            "Choose another STRANDLINE_HOME, or move the data with pg_dump."
        )


def _run_initdb(directory: Path, *, programs: Path, account: ServerAccount) -> None:
    # The built-in locale is the same on every machine; that of the environment may not even exist.
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
    options += ["--builtin-locale=C.UTF-8", f"--username={SUPERUSER}"]
    with tempfile.TemporaryFile() as output:
        argv = [str(programs / "initdb"), *options]
        env = server_environment(account.name_of(directory))
        finished = account.run(argv, directory=directory, env=env, output=output)
        output.seek(0)
        complaint = output.read().decode(errors="replace").strip()
    if finished.returncode != 0:
        shutil.rmtree(directory, ignore_errors=True)
        raise DatabaseUnavailableError(
            f"The embedded Postgres could not be set up in {directory}; fix the cause, or set"
            f" STRANDLINE_DATABASE_URL. Its initdb said: {complaint[-500:]}"
        )


def _make_socket_directory(path: Path, *, account: ServerAccount) -> None:
    """Make ``path`` for the account alone: whoever can open the socket is the database's superuser."""
    try:
        path.mkdir(mode=0o700)
        account.own(path)
    except FileExistsError:
        pass
    status = path.lstat()
    if path.is_symlink() or status.st_uid != account.uid or status.st_mode & 0o077:
        raise ConfigurationError(
            f"{path} belongs to another account or is open to others; remove it, or set TMPDIR."
        )


def _quoted_directory(path: Path) -> str:
    # A list of directories inside a string: each layer has its own quotes.
    inner = '"' + str(path).replace('"', '""') + '"'
    return "'" + inner.replace("\\", "\\\\").replace("'", "''") + "'"


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
