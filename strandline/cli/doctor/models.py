"""Checks of models, by doctor and ``strandline models check``: each role gets a real request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from strandline.cli.doctor.checks import CheckReport, ok, problem, warn
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TranscriptLine,
)
from strandline.pipelines.models.factory import build_embedder, build_text_model, try_embedder, try_text_model
from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS
from strandline.pipelines.models.local.text_model import MODEL as LOCAL_MODEL
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.model_roles import EMBEDDING_ROLES, TEXT_ROLES, RoleName
from strandline.schemas.settings import Settings

# Harmless text: a server's answer to it may be shown.
_MOMENT = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
_LINES = (TranscriptLine(1, "user", None, "My cat is called Mio, and I live in Bern.", _MOMENT),)
_FACT = NumberedFact(1, "The user lives in Bern.", _MOMENT)
_TASKS: Mapping[RoleName, Task] = {
    "facts": ExtractTask(_LINES),
    "merge": MergeTask((_FACT,), (NumberedFact(1, "The user's cat is called Mio.", _MOMENT),)),
    "summary": SummaryTask("", _LINES, 100),
}


def check_models(settings: Settings, *, call: bool) -> Iterator[CheckReport]:
    """A report for each model that the roles have, asked if it may be; the local ones cost nothing."""
    for kind, roles in (("text model", TEXT_ROLES), ("embedding model", EMBEDDING_ROLES)):
        groups: dict[object, list[RoleName]] = {}
        for role in roles:
            groups.setdefault((settings.backend(role), settings.role(role).of), []).append(role)
        for group in groups.values():
            name = kind if len(groups) == 1 else f"{kind} of {' and '.join(group)}"
            yield check_role(settings, group[-1] if kind != "text model" else group[0], name, call=call)


def check_role(settings: Settings, role: RoleName, name: str, *, call: bool) -> CheckReport:
    """Whether the model of a role can be used, or with ``call`` whether it answers."""
    kind, where = settings.backend(role), describe_model(settings, role)
    if kind == "none":
        return ok(name, "none is chosen: searches compare words alone")
    if kind == "local" and role in TEXT_ROLES:
        return warn(name, where, "set OPENAI_API_KEY or OPENAI_BASE_URL for a real model")
    try:
        if call or kind in LOCAL_EMBEDDERS:
            return _ask(settings, role, name, where)
        _build(settings, role)
    except ConfigurationError as error:
        return problem(name, str(error))
    except StrandlineError as error:
        # The sentence says what to do.
        return problem(name, f"{where}: {error}")
    return ok(name, f"{where}, not called")


def describe_model(settings: Settings, role: RoleName) -> str:
    kind, chosen = settings.backend(role), settings.role(role)
    if kind in LOCAL_EMBEDDERS:
        return f"{LOCAL_MODEL} (local stand-in)" if role in TEXT_ROLES else LOCAL_EMBEDDERS[kind][0]
    return f"{chosen.of.model} at {chosen.server}" if kind == "openai" else f"{chosen.of.model} ({kind})"


def _ask(settings: Settings, role: RoleName, name: str, where: str) -> CheckReport:
    match role:
        case "embedding" | "query_embedding":
            dimensions, seconds = try_embedder(settings, role, "word")
        case _:
            began = time.monotonic()
            try_text_model(settings, role, _TASKS[role])
            return ok(name, f"{where}, answered in {(time.monotonic() - began) * 1000:.0f} ms")
    answered = f"answered in {seconds * 1000:.0f} ms"
    if not dimensions:
        return problem(name, f"{where}, gave no vector for a word")
    is_for_queries = role == "query_embedding" and settings.backend(role) not in LOCAL_EMBEDDERS
    if is_for_queries and seconds > settings.query_embedding_timeout_seconds:
        return warn(
            name,
            f"{where}, {answered}, so queries are found by words alone",
            "raise STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS, or use a faster server",
        )
    return ok(name, f"{where}, {dimensions} dimensions, {answered}")


def _build(settings: Settings, role: RoleName) -> None:
    match role:
        case "facts" | "merge" | "summary":
            build_text_model(settings, purpose=role)
        case _:
            build_embedder(settings, role)
