"""Chooses the model family that the settings ask for, and loads only that one.

``openai`` takes half a second to import, and the local embedder's libraries belong to an extra, so a process
imports only the one that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from strandline.pipelines.models.contract import Embedder, TaskName, TextModel, TextPurpose
from strandline.pipelines.models.installed import load_embedder, load_text_model
from strandline.pipelines.models.local.text_model import LocalTextModel, is_local_embedder
from strandline.pipelines.models.prefixes import Prefixes
from strandline.pipelines.models.provided.breaker import Breaker
from strandline.pipelines.models.provided.guarded import GuardedEmbedder, GuardedTextModel
from strandline.pipelines.models.redacting import RedactingEmbedder, RedactingTextModel
from strandline.pipelines.own_code.bounded_calls import worker_calls
from strandline.pipelines.redaction.hook import Redaction
from strandline.pipelines.redaction.loading import load_redaction
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import undivided
from strandline.schemas.settings import Settings

REDACTION_SETTING = "STRANDLINE_REDACT_BEFORE_MODELS"
# Under which a recipe's config records them.
REDACTION_KEYS = ("redactor", "redactor_version")

if TYPE_CHECKING:
    from strandline.pipelines.models.openai.embedder import OpenAIEmbedder
    from strandline.pipelines.models.openai.models import OpenAITextModel


def build_text_model(
    settings: Settings,
    *,
    purpose: TextPurpose,
    prompts: Mapping[TaskName, str] | None = None,
) -> TextModel:
    """The text model for facts (extract and merge) or summaries: a server's, an installed one, or the local
    stand-in.

    ``prompts`` holds instructions that replace the shipped ones, by task.

    Raises:
        ConfigurationError: a server is chosen, and key or base URL are missing or unusable; or an installed
            one, and there is none of that name.
    """
    model = _text_model(settings, purpose, prompts)
    redaction = _redaction(settings)
    return model if redaction is None else RedactingTextModel(model, redaction)


def _text_model(
    settings: Settings, purpose: TextPurpose, prompts: Mapping[TaskName, str] | None
) -> TextModel:
    if settings.text_model_kind == "local":
        return LocalTextModel()
    if settings.text_model_kind == "installed":
        name = settings.facts_model if purpose == "facts" else settings.summary_model
        return load_text_model(name, settings.model_timeout_seconds, prompts)
    model = _text_model_of_server(settings, purpose, prompts)
    return GuardedTextModel(model, _breaker(settings, model.model, model.probe))


def probe_text_model(settings: Settings, *, purpose: TextPurpose) -> None:
    """Ask the configured text model for one word; what runs in this process needs no asking.

    Raises:
        ModelError: it does not answer; the sentence says why, and which setting to look at.
        ConfigurationError: as for ``build_text_model``.
    """
    if settings.text_model_kind == "local":
        return
    if settings.text_model_kind == "installed":
        _text_model(settings, purpose, None)
        return
    model = _text_model_of_server(settings, purpose)
    try:
        model.probe()
    finally:
        model.close()


def build_embedder(settings: Settings) -> Embedder:
    """The embedder of a worker: a server's, or the local one of 256 dimensions.

    Raises:
        ConfigurationError: a server is chosen, and key or base URL are missing or unusable; or the local
            one is chosen, and the ``embedded`` extra is not installed.
    """
    return _embedder(settings, is_probed=True)


def build_query_embedder(settings: Settings) -> Embedder:
    """The embedder of reads: as above, but no read waits for a probe of a provider that is down.

    Raises:
        ConfigurationError: as for ``build_embedder``.
    """
    return _embedder(settings, is_probed=False)


def _embedder(settings: Settings, *, is_probed: bool) -> Embedder:
    embedder = _plain_embedder(settings, is_probed)
    redaction = _redaction(settings)
    return embedder if redaction is None else RedactingEmbedder(embedder, redaction)


def _plain_embedder(settings: Settings, is_probed: bool) -> Embedder:
    if settings.embedder_kind == "local":
        return _local_embedder()
    if settings.embedder_kind == "installed":
        return load_embedder(settings.embedding_model)
    embedder = _embedder_of_server(settings)
    return GuardedEmbedder(
        embedder, _breaker(settings, embedder.model, embedder.probe if is_probed else None)
    )


def _redaction(settings: Settings) -> Redaction | None:
    """What everything goes through before a model sees it, if a hook is named for that."""
    if not settings.redact_before_models:
        return None
    return load_redaction(
        settings.redact_before_models, REDACTION_SETTING, settings.redact_timeout_seconds, worker_calls
    )


def recorded_redaction(settings: Settings) -> dict[str, str]:
    """What a recipe records of the hooks before models, with their versions; nothing if there are none."""
    redaction = _redaction(settings)
    if redaction is None:
        return {}
    return {"redactor": settings.redact_before_models, "redactor_version": redaction.version}


def with_recorded_redaction(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """The settings, with the hooks that a recipe's ``config`` records if they name none themselves.

    So a process that lacks the setting sends nothing that the recipe wants redacted, and one that has it
    sends nothing unredacted, whatever the recipe says.
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
    return with_recorded_redaction(settings.model_copy(update=update), config)


def _local_embedder() -> Embedder:
    try:
        return _wordllama_embedder()
    except ImportError:
        problem = (
            "The local embedding model is not installed; run `pip install 'strandline[embedded]'`,"
            " or set OPENAI_API_KEY to use a model server."
        )
    raise ConfigurationError(problem)


def _breaker(settings: Settings, name: str, probe: Callable[[], None] | None) -> Breaker:
    return Breaker(
        name,
        probe,
        first_wait_seconds=min(settings.retry_base_seconds, settings.provider_probe_seconds),
        longest_wait_seconds=settings.provider_probe_seconds,
        longest_pause_seconds=settings.retry_max_seconds,
        server=_server_digest(settings),
    )


def _server_digest(settings: Settings) -> str:
    """What names a server and a key among workers, and tells neither."""
    key = "" if settings.openai_api_key is None else settings.openai_api_key.get_secret_value()
    return sha256(f"{settings.openai_base_url or ''}\n{key}".encode()).hexdigest()[:32]


# The modules of a family are loaded here, at run time: each imports what only it needs.


def _text_model_of_server(
    settings: Settings, purpose: TextPurpose, prompts: Mapping[TaskName, str] | None = None
) -> OpenAITextModel:
    with undivided:
        from strandline.pipelines.models.openai.models import text_model_from
    return text_model_from(settings, purpose=purpose, prompts=prompts)


def _embedder_of_server(settings: Settings) -> OpenAIEmbedder:
    with undivided:
        from strandline.pipelines.models.openai.embedder import embedder_from
    return embedder_from(settings)


def _wordllama_embedder() -> Embedder:
    with undivided:
        from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
    return WordLlamaEmbedder()
