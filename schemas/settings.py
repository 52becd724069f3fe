"""Settings: typed, validated, and read from the environment once, at the edge of a process.

A variable is named ``STRANDLINE_`` plus the field in capitals, with units in the name.  The two settings that
OpenAI's own SDK reads keep their own names.  Nothing below the edge reads the environment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from strandline.schemas.display.refused_values import describe_refusal
from strandline.schemas.display.service_links import without_links
from strandline.schemas.display.url_schemes import check_broker_url, check_database_url, check_model_url
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.model_roles import (
    EMBEDDING_ROLES,
    MAX_SECONDS,
    EmbeddingPurpose,
    EmbeddingRole,
    ModelRoles,
    Positive,
    Prefix,
    R,
    Role,
    RoleName,
    RolesSource,
    ServerRole,
    TextPurpose,
    TextRole,
    check_roles,
    describe_role_refusal,
    resolve_role,
)
from strandline.schemas.prices import ModelPrice, read_prices
from strandline.schemas.private_files import default_home, expanded

LogFormat = Literal["text", "json"]
Backend = Literal["auto", "local", "openai", "installed"]
BackendKind = Literal["local", "local-multilingual", "openai", "installed", "none"]
# Old data keys are deleted after twice that, when no process can seal with them any more.
MAX_KEY_CACHE_SECONDS = 3_600.0
NotNegative = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Folder = Annotated[Path, AfterValidator(expanded)]
# Read here rather than by pydantic-settings, whose message for bad JSON names neither variable nor cause.
Prices = Annotated[tuple[ModelPrice, ...], NoDecode, BeforeValidator(read_prices)]


Roles = Annotated[ModelRoles, NoDecode, BeforeValidator(check_roles)]

_AS_VARIABLES: Mapping[str, str] = MappingProxyType({})
PREFIX = "STRANDLINE_"
# Reserved in Postgres 14 to 18, some of them as names of types and functions alone; a test asks the server.
RESERVED_WORDS = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
    collation column concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user default deferrable desc distinct do else end
    except false fetch for foreign freeze from full grant group having ilike in initially inner intersect into
    is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on
    only or order outer overlaps placing primary references returning right select session_user similar some
    symmetric system_user table tablesample then to trailing true union unique user using variadic verbose
    when where window with
    """.split()
)


class VariablesSource(EnvSettingsSource):
    """The variables of the environment.

    The library takes the types of all fields apart at each reading, which took most of its time; this takes
    the types of those fields only that have a variable.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        names = f"{self.env_prefix}{field_name}".lower(), str(field.validation_alias).lower()
        if self.env_vars.keys().isdisjoint(names):
            return None, field_name, False
        return super().get_field_value(field, field_name)

    def prepare_field_value(self, field_name: str, field: FieldInfo, value: Any, is_complex: bool) -> Any:
        return None if value is None else super().prepare_field_value(field_name, field, value, is_complex)


class Settings(BaseSettings):
    """All settings of producers, workers and the command line.

    Policy (token limits and the like) is not here: it belongs to a session and is stored with it.
    """

    model_config = SettingsConfigDict(
        env_prefix="STRANDLINE_", frozen=True, extra="ignore", populate_by_name=True, env_ignore_empty=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments and the environment: to look for files as well takes as long again."""
        variables = VariablesSource(settings_cls)
        variables.env_vars = without_links(variables.env_vars)
        return init_settings, variables, RolesSource(settings_cls)

    # Where things are.
    database_url: SecretStr | None = Field(None, description="Postgres; unset means the embedded server")
    database_schema: str = Field("strandline", pattern=r"^[a-z_][a-z0-9_]{0,50}$")
    broker_url: SecretStr | None = Field(None, description="Redis or RabbitMQ, as a Celery URL")
    home: Folder = Field(default_factory=default_home)
    embedded: Literal["auto", "never"] = "auto"

    # Connections.
    database_pooler: Literal["none", "transaction"] = "none"
    pool_max_size: int = Field(16, ge=1, le=500)
    # Windows that a producer process has read before and keeps, in bytes of memory, about; 0 keeps none.
    window_cache_bytes: int = Field(64_000_000, ge=0)
    # The same for the indexes of scopes that it searches again and again.
    index_cache_bytes: int = Field(64_000_000, ge=0)
    pool_timeout_seconds: Positive = 10.0
    connect_timeout_seconds: Positive = 5.0
    statement_timeout_seconds: Positive = 30.0

    # Encryption at rest: where the keys are that wrap the keys of owners; one of the three.
    keyring_file: Folder | None = Field(None, description="a line for each key: its id, 32 bytes in base64")
    keyring_keys: SecretStr | None = Field(None, description="the same lines, or divided by semicolons")
    keyring: str | None = Field(None, description="name of an installed keyring (strandline.keyrings)")
    key_cache_seconds: float = Field(
        300.0,
        ge=0,
        le=MAX_KEY_CACHE_SECONDS,
        allow_inf_nan=False,
        description="how long a process keeps the unwrapped keys of an owner",
    )

    # Bounds of a put.
    max_content_bytes: int = Field(1_000_000, ge=1)
    max_metadata_bytes: int = Field(16_384, ge=2)
    max_indexed_characters: int = Field(100_000, ge=1_600, le=10_000_000)
    max_messages_per_put: int = Field(1_000, ge=1)

    # Erasures.
    receipt_key_file: Folder | None = Field(
        None, description="private Ed25519 key (PEM) that signs receipts of erasures; unset: not signed"
    )

    # Models.  The key and the base URL are read under the names that OpenAI's SDK gives them.
    openai_api_key: SecretStr | None = Field(None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str | None = Field(None, validation_alias="OPENAI_BASE_URL")
    models: Roles = Field(ModelRoles(), description="what roles have apart (schemas/model_roles.py)")
    models_file: str | None = Field(None, description="TOML: the same, a table for each role")
    text_backend: Backend = "auto"
    embedding_backend: Literal[Backend, "local-multilingual", "none"] = "auto"
    facts_model: str = "gpt-4.1-mini"
    merge_model: str | None = Field(None, description="unset: as facts_model")
    summary_model: str = "gpt-4.1-mini"
    embedding_model: str = "text-embedding-3-small"
    embedding_dimensions: int = Field(1536, ge=1, le=3900)
    embedding_query_prefix: Prefix = Field("", description='before a query that is embedded: "query: "')
    embedding_passage_prefix: Prefix = Field("", description='before a message that is embedded: "passage: "')
    model_prices: Prices = Field((), description="JSON: model to dollars per million tokens, in and out")
    model_timeout_seconds: Positive = Field(300.0, description="longest time of one model call in all")
    model_silence_seconds: Positive = Field(
        60.0, description="longest silence of a model server once its answer has begun"
    )
    query_embedding_timeout_seconds: Positive = 0.5
    summary_max_tokens: int = Field(400, ge=16)
    max_facts: int = Field(1_000, ge=0, description="live facts of an owner at most; 0: never condense")
    facts_context_tokens: int = Field(
        500, ge=0, le=4_000, description="lines that extract sees before a batch, as context; 0: none"
    )

    prompts_dir: Folder | None = Field(None, description="your own prompts, one file each: extract.md, …")

    # Custom blocks: "package.module:Class", comma-separated.
    blocks: str = ""
    max_state_bytes: int = Field(65_536, ge=2, description="of a custom block's state, as JSON")

    block_timeout_seconds: Positive = Field(
        60.0, description="longest time of one call of a custom block's code in a worker"
    )

    # Hooks that may change texts: "contacts", entry points, "package.module:callable", comma-separated.
    redact_before_storing: str = Field("", description="applied to messages and facts that are put")
    redact_before_models: str = Field("", description="applied to what text models and embedders are sent")
    redact_timeout_seconds: Positive = Field(
        2.0, description="longest time of a hook for one message, or for one call of a model"
    )
    # Workers hand flushed messages to it.
    on_overflow: str = Field("", description="your overflow handler: package.module:callable")

    # The audit trail.
    audit_key: SecretStr | None = Field(None, description="secret of the seals of the audit trail")
    audit_key_file: Folder | None = Field(None, description="keys of the seals, one a line: NAME SECRET")
    audit_anchors: str = Field(
        "", description="package.module:function, or an entry point, that keeps anchors"
    )
    audit_anchors_file: Folder | None = Field(None, description="a file that anchors are appended to")
    audit_anchor_seconds: Positive = Field(60.0, description="how often a worker hands anchors over")
    compliance: str = Field("", description="hook: package.module:function, or an entry point's name")
    compliance_timeout_seconds: Positive = 1.0
    compliance_failure: Literal["refuse", "allow"] = "refuse"

    # Sessions that deliver each turn.
    turn_delay_seconds: float = Field(
        5.0,
        ge=0,
        le=600,
        allow_inf_nan=False,
        description="how long a delivered turn waits for others to share its model calls; 0: not at all",
    )

    # The libraries.
    public_apis_only: bool = Field(
        False, description="true: nothing undocumented of psycopg, Kombu and Celery is used; slower"
    )

    # The HTTP service.
    operation_metrics: bool = Field(
        False, description="whether puts, reads and other operations are measured for Prometheus"
    )
    traces: bool = Field(False, description="whether this process makes spans of OpenTelemetry")
    metrics_host: str = Field("127.0.0.1", min_length=1, description="where metrics are served")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="its port for Prometheus; 0: any that is free; unset: no metrics"
    )
    service_host: str = Field("127.0.0.1", min_length=1, description="where it listens; others need a key")
    service_port: int = Field(8420, ge=0, le=65535, description="0: any that is free")
    service_trusted_proxies: str = Field("", description="addresses whose X-Forwarded-For is believed")
    service_mcp_hosts: str = Field(
        "", description="values of Host with which /mcp is asked; empty: loopback's, or any"
    )
    service_mcp_origins: str = Field("", description="web pages that may ask /mcp; empty: none")
    service_web_origins: str = Field("", description="web pages that may ask all else; empty: none; *: any")
    service_page_secret: SecretStr | None = Field(
        None, min_length=32, description="serves the page, and seals its sessions; unset: no page"
    )
    service_page_origins: str = Field(
        "",
        pattern=r"^( *https?://[A-Za-z0-9.:\[\]-]+/? *(,|$))*$",
        description="web pages that may show a user's own view in a frame; empty: none",
    )
    service_max_body_bytes: int = Field(1_048_576, ge=1024)
    service_body_seconds: Positive = Field(
        10.0, description="longest time for a head to arrive, for a body, or for an answer to be taken"
    )
    service_request_seconds: Positive = Field(30.0, description="longest time of a request's work")
    service_reads_at_once: int = Field(32, ge=1, le=10_000)
    service_writes_at_once: int = Field(256, ge=1, le=10_000)
    service_others_at_once: int = Field(16, ge=1, le=10_000)
    service_streams_at_once: int = Field(256, ge=0, le=10_000)
    service_key_share: float = Field(
        0.5, gt=0, le=1, description="share of each of these that one key may have"
    )
    service_namespace_share: float = Field(
        0.875, gt=0, le=1, description="share that all keys of a namespace may have together"
    )
    service_queue_length: int = Field(128, ge=0, le=100_000, description="requests of a class that may wait")
    service_queue_seconds: Positive = Field(1.0, description="longest wait of a request for its turn")
    service_drain_seconds: NotNegative = Field(
        2.0, description="after a signal: how long it answers, and says that it is not ready"
    )
    service_shutdown_seconds: Positive = Field(35.0, description="after that, for requests in hand")

    # Workers.
    log_format: LogFormat = Field("text", description="of log lines on stderr; json: an object a line")
    worker_concurrency: int = Field(16, ge=1, le=1000)
    replay_concurrency: int | None = Field(
        None, ge=0, le=1000, description="additional threads for replays; unset: a quarter as many"
    )
    replay_calls_per_second: Positive | None = Field(
        None, description="model calls of replays, per namespace, by all workers together; unset: no limit"
    )
    batch_token_budget: int = Field(8_000, ge=1)
    heartbeat_interval_seconds: Positive = 1.0
    worker_dead_after_seconds: Positive = 5.0
    lease_deadline_seconds: Positive = 600.0
    startup_wait_seconds: NotNegative = Field(
        60.0,
        description="how long a worker that starts waits for Postgres and the broker, together",
    )
    shutdown_grace_seconds: NotNegative = Field(20.0, description="after a signal, for batches in hand")
    sweep_interval_seconds: Positive = 1.0
    sweep_batch_size: int = Field(200, ge=1, le=10_000)
    # Retention: how often a worker takes a turn, and how often all sessions are gone through.
    retention_interval_seconds: Positive = 5.0
    retention_pass_seconds: Positive = 3_600.0
    retry_base_seconds: Positive = 1.0
    retry_max_seconds: Positive = 60.0
    provider_probe_seconds: Positive = Field(
        10.0, description="longest wait between two probes of a model server that is down"
    )
    max_failures: int = Field(8, ge=1, description="attempts that fail alone before a dead letter")
    max_crashes: int = Field(20, ge=1, description="attempts ended by a crash before a dead letter")
    dead_letter_retries: int = Field(
        4, ge=0, le=6, description="how often a dead letter of an unusable answer is retried by itself"
    )

    @field_validator("database_schema")
    @classmethod
    def _schema_can_be_named(cls, value: str) -> str:
        if value in RESERVED_WORDS or value.startswith("pg_") or value == "information_schema":
            raise ValueError("it is a name that Postgres keeps for itself; use another, such as strandline")
        return value

    @field_validator("database_url")
    @classmethod
    def _database_url_can_be_used(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            check_database_url(value.get_secret_value())
        return value

    @field_validator("broker_url")
    @classmethod
    def _broker_url_can_be_used(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            check_broker_url(value.get_secret_value())
        return value

    @field_validator("openai_base_url")
    @classmethod
    def _model_url_can_be_used(cls, value: str | None) -> str | None:
        return None if value is None else check_model_url(value.strip())

    @property
    def has_keyring(self) -> bool:
        """True when this process can unwrap the keys of encrypted namespaces."""
        return (self.keyring_file, self.keyring_keys, self.keyring) != (None, None, None)

    def backend(self, role: RoleName) -> BackendKind:
        """The backend of a role: the chosen one, else the configured one; facts and merge have the same."""
        if role == "query_embedding" and self.models.query_embedding.backend == "none":
            return "none"
        chosen = self.embedding_backend if role in EMBEDDING_ROLES else self.text_backend
        if chosen != "auto":
            return chosen
        return "openai" if self.role("facts" if role == "merge" else role).is_configured else "local"

    def role(self, name: RoleName) -> Role[Any]:
        """How the model of a role is asked, with all that it inherits."""
        match name:
            case "embedding" | "query_embedding":
                return self.embedding_role(name)
            case _:
                return self.text_role(name)

    def text_role(self, name: TextPurpose) -> Role[TextRole]:
        """How the text model of a role is asked, with all that it inherits."""
        is_as_facts = name == "merge" and self.merge_model is None
        return self._role(name, TextRole, "facts_model" if is_as_facts else f"{name}_model")

    def embedding_role(self, name: EmbeddingPurpose = "embedding") -> Role[EmbeddingRole]:
        """How an embedder is asked, with all that its role inherits."""
        return self._role(name, EmbeddingRole, "embedding_model")

    def _role(self, name: RoleName, kind: type[R], model: str) -> Role[R]:
        common = ServerRole.model_construct(
            base_url=self.openai_base_url,
            api_key=self.openai_api_key,
            timeout_seconds=self.model_timeout_seconds,
            silence_seconds=self.model_silence_seconds,
        )
        named = getattr(self, model), f"STRANDLINE_{model.upper()}"
        return resolve_role(self.models, name, kind, named, common)


def load_settings(spelt: Mapping[str, str] = _AS_VARIABLES, /, **overrides: object) -> Settings:
    """Read the environment once and apply ``overrides`` (field names) on top.

    ``spelt`` maps overrides to the names that the caller knows them by, if these are not the variables'.

    Raises:
        ConfigurationError: naming each variable or argument that cannot be used, or contradicts another, and
            why.
    """
    settings, refused = load_usable_settings(spelt, **overrides)
    if refused:
        raise ConfigurationError("Settings cannot be used. " + "; ".join(refused.values()))
    return settings


def load_usable_settings(
    spelt: Mapping[str, str] = _AS_VARIABLES, /, **overrides: object
) -> tuple[Settings, dict[str, str]]:
    """As ``load_settings``, with the default of each setting that cannot be used, and why it cannot.

    The sentences are by the name of the field, and begin with the variable or argument.  If settings
    contradict each other, every setting that belongs to a pair (``PAIRED``) has its default.
    """
    refused: dict[str, str] = {}
    try:
        settings = Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        refused = _describe(error, {name: spelt.get(name) for name in overrides})
        settings = Settings(**overrides | _defaults(refused))  # type: ignore[arg-type]
    pairs = find_contradictions(_pair_values(settings))
    if pairs:
        refused |= _describe_pairs(pairs, settings, refused)
        settings = Settings(**overrides | _defaults([*refused, *PAIRED]))  # type: ignore[arg-type]
    of_roles = settings.models.as_settings().items()
    return settings.model_copy(update={n: value for n, value in of_roles if n not in overrides}), refused


def _pair_values(settings: Settings) -> dict[str, float]:
    return {name: getattr(settings, name) for name in PAIRED} | settings.models.timeouts()


def _describe_pairs(pairs: Iterable[Pair], settings: Settings, refused: Collection[str]) -> dict[str, str]:
    """Why settings contradict one another, by field; a setting refused by itself is left out."""
    values = _pair_values(settings)
    chosen = {*settings.model_fields_set, *settings.models.timeouts()}
    sentences: dict[str, list[str]] = {}
    for pair in pairs:
        lower = pair.lower.partition("__")[0]
        if lower not in refused and pair.upper not in refused:
            sentences.setdefault(lower, []).append(pair.contradiction(values, chosen))
    return {name: "; ".join(parts) for name, parts in sentences.items()}


def _defaults(names: Iterable[str]) -> dict[str, object]:
    fields = Settings.model_fields
    return {name: fields[name].get_default(call_default_factory=True) for name in names}


def _describe(error: ValidationError, names: Mapping[str, str | None]) -> dict[str, str]:
    """Why settings cannot be used, by field."""
    sentences: dict[str, list[str]] = {}
    for item in error.errors(include_input=False, include_url=False):
        name = str(item["loc"][0])
        if name == "models":
            sentences.setdefault(name, []).append(describe_role_refusal(item))
            continue
        variable = names.get(name) or (name if name.isupper() else f"STRANDLINE_{name.upper()}")
        sentences.setdefault(name.lower(), []).append(f"{variable}: {describe_refusal(item)}")
    return {name: "; ".join(parts) for name, parts in sentences.items()}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two settings of which ``lower`` has to be below ``upper``, or ``may_be_equal`` to it; and why."""

    lower: str
    upper: str
    why: str
    may_be_equal: bool = False

    def holds(self, values: Mapping[str, float]) -> bool:
        lower, upper = values[self.lower], values[self.upper]
        return lower < upper or (self.may_be_equal and lower == upper)

    def contradiction(self, values: Mapping[str, float], chosen: Collection[str]) -> str:
        """A sentence that names cause, reason and remedy; ``chosen`` are the settings that were set."""
        lower, upper = (_described(name, values[name], chosen) for name in (self.lower, self.upper))
        needed = "at most" if self.may_be_equal else "below"
        return f"{lower} must be {needed} {upper}: {self.why}; lower the first, or raise the second"


PAIRS = (
    Pair(
        "heartbeat_interval_seconds",
        "worker_dead_after_seconds",
        "otherwise a living worker counts as dead between two heartbeats, and others take its lanes",
    ),
    Pair(
        "model_timeout_seconds",
        "lease_deadline_seconds",
        "otherwise the lease ends while a slow model call may still run, and others repeat the call",
    ),
    Pair(
        "block_timeout_seconds",
        "lease_deadline_seconds",
        "otherwise the lease ends while a slow call of a block may still run, and others repeat the call",
    ),
    Pair(
        "retry_base_seconds",
        "retry_max_seconds",
        "the first wait after an error cannot be longer than the longest",
        may_be_equal=True,
    ),
)
PAIRED = frozenset(name for pair in PAIRS for name in (pair.lower, pair.upper))


def find_contradictions(values: Mapping[str, float]) -> list[Pair]:
    """The pairs that do not hold; ``values`` are at least those of ``PAIRED``, with time-outs of roles."""
    (of_models,) = (pair for pair in PAIRS if pair.lower == "model_timeout_seconds")
    of_roles = [replace(of_models, lower=name) for name in values if name.startswith("models__")]
    return [pair for pair in (*PAIRS, *of_roles) if not pair.holds(values)]


def _described(name: str, value: float, chosen: Collection[str]) -> str:
    by_default = "" if name in chosen else " by default"
    # All digits: a rounded number may look equal to the compared one.
    return f"{PREFIX}{name.upper()} ({str(value).removesuffix('.0')}{by_default})"
