"""Roles of models: facts, merge, summary, the embedding of messages and the embedding of queries.

A role may have its own server, key, form and limits.  It inherits the rest from the role it is like, then
from ``default``, then from the settings for all models.  A key, headers and a query go only to the host they
were set for.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from strandline.schemas.display.refused_values import describe_refusal
from strandline.schemas.display.service_links import without_links
from strandline.schemas.display.shown_text import quote
from strandline.schemas.display.shown_url import secrets_of, shown_url
from strandline.schemas.display.url_schemes import check_model_url

TextPurpose = Literal["facts", "merge", "summary"]
EmbeddingPurpose = Literal["embedding", "query_embedding"]
RoleName = TextPurpose | EmbeddingPurpose
TEXT_ROLES: tuple[TextPurpose, ...] = ("facts", "merge", "summary")
EMBEDDING_ROLES: tuple[EmbeddingPurpose, ...] = ("embedding", "query_embedding")
ROLES: tuple[RoleName, ...] = (*TEXT_ROLES, *EMBEDDING_ROLES)

OPENAI_URL = "https://api.openai.com/v1"
PREFIX = "STRANDLINE_MODELS__"
FILE = "STRANDLINE_MODELS_FILE"
MAX_KEY_CHARACTERS = 10_000
# Above any that is meant: Postgres counts a limit in milliseconds, in 31 bits, which is 24 days.
MAX_SECONDS = 2_000_000
# Every text is embedded with its prefix; models are given a word or a sentence.
MAX_PREFIX_CHARACTERS = 500

# Settings for all models, by the fields of a role.
COMMON = {
    "base_url": "OPENAI_BASE_URL",
    "api_key": "OPENAI_API_KEY",
    "timeout_seconds": "STRANDLINE_MODEL_TIMEOUT_SECONDS",
    "silence_seconds": "STRANDLINE_MODEL_SILENCE_SECONDS",
}
_LIKE: Mapping[RoleName, tuple[str, ...]] = {
    "facts": ("facts", "default"),
    "merge": ("merge", "facts", "default"),
    "summary": ("summary", "default"),
    "embedding": ("embedding", "default"),
    "query_embedding": ("query_embedding", "embedding", "default"),
}
# These go to the host alone that they were set for.
_CREDENTIALS = frozenset({"api_key", "key_header", "headers", "query"})
# Fields of roles that stand for settings, which a recipe records and restores by their names.
AS_SETTINGS = {
    ("facts", "model"): "facts_model",
    ("merge", "model"): "merge_model",
    ("summary", "model"): "summary_model",
    ("embedding", "model"): "embedding_model",
    ("embedding", "backend"): "embedding_backend",
    ("embedding", "prefix"): "embedding_passage_prefix",
    ("query_embedding", "prefix"): "embedding_query_prefix",
    ("query_embedding", "timeout_seconds"): "query_embedding_timeout_seconds",
}
_NOT_INHERITED = frozenset({"model", "backend", "prefix"})
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


def _checked_prefix(text: str) -> str:
    """The text, if it is plain; the instructions of some models end with a new line."""
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise ValueError("it must be plain text, without control characters")
    return text


def _read_object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise ValueError('it must be a JSON object, or a table of the file: {"name": "value"}')
    return value


def _read_body(value: object) -> str:
    fields = _read_object(value)
    try:
        return json.dumps(fields, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it must hold what JSON has: no date, and no number without an end") from None


def _read_pairs(value: object) -> object:
    if isinstance(value, tuple):
        return value
    return tuple((name, _read_content(name, content)) for name, content in _read_object(value).items())


def _read_content(name: str, content: object) -> str:
    if isinstance(content, bool):
        return str(content).lower()
    if not isinstance(content, (str, int, float)):
        raise ValueError(f"{quote(name)} must be a text or a number")
    return str(content)


def _check_headers(pairs: tuple[tuple[str, SecretStr], ...]) -> tuple[tuple[str, SecretStr], ...]:
    for name, content in pairs:
        _check_header(name)
        if not is_header_text(content.get_secret_value()):
            raise ValueError(f"the header {quote(name)} must have printable ASCII characters alone")
    return pairs


def _check_header(name: str) -> str:
    if not _HEADER.fullmatch(name):
        raise ValueError("it must name HTTP headers, such as api-key")
    return name


def is_header_text(text: str) -> bool:
    """Whether a header, and so a key, can have this content."""
    return text.isascii() and text.isprintable()


def _read_key_file(value: object) -> object:
    """The key in a file, for its path; the path is never shown, since it may be a key."""
    try:
        with Path(str(value)).expanduser().open(encoding="utf-8") as file:
            return file.read(MAX_KEY_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"the file of the key cannot be read: {reason}") from None


def _read_temperature(value: object) -> object:
    try:
        if value == "none" or 0 <= float(str(value)) <= 2:
            return value if value == "none" else float(str(value))
    except ValueError:
        pass
    raise ValueError("it must be a number from 0 to 2, or none")


Positive = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Prefix = Annotated[str, Field(max_length=MAX_PREFIX_CHARACTERS), AfterValidator(_checked_prefix)]
_Url = Annotated[str, AfterValidator(lambda url: check_model_url(url.strip()))]
_Pairs = Annotated[tuple[tuple[str, SecretStr], ...], BeforeValidator(_read_pairs)]
_Name = Annotated[str, Field(min_length=1, max_length=500)]


class ServerRole(BaseModel):
    """A server, and how it is asked (docs/models.md); None: as the role that this one is like.

    ``api_key_file`` holds the key that was in the file; ``body`` is a JSON object, as text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: _Url | None = None
    api_key: SecretStr | None = None
    api_key_file: Annotated[SecretStr, BeforeValidator(_read_key_file)] | None = None
    key_header: Annotated[str, AfterValidator(_check_header)] | None = None
    headers: Annotated[_Pairs, AfterValidator(_check_headers)] | None = None
    query: _Pairs | None = None
    body: Annotated[str, BeforeValidator(_read_body)] | None = None
    timeout_seconds: Positive | None = None
    silence_seconds: Positive | None = None


class TextRole(ServerRole):
    """How a text model is asked."""

    model: _Name | None = None
    answer_form: Literal["auto", "json_schema", "json_object", "text"] | None = None
    max_tokens: int | None = Field(default=None, ge=16, le=1_000_000)
    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens", "none"] | None = None
    temperature: Annotated[float | Literal["none"], BeforeValidator(_read_temperature)] | None = None


class EmbeddingRole(ServerRole):
    """How an embedder is asked."""

    model: _Name | None = None
    backend: Literal["auto", "local", "local-multilingual", "openai", "installed", "none"] | None = None
    prefix: Prefix | None = None
    max_texts: int | None = Field(default=None, ge=1, le=256)
    max_characters: int | None = Field(default=None, ge=64, le=250_000)
    sends_dimensions: bool | None = None
    sends_encoding_format: bool | None = None


class ModelRoles(BaseModel):
    """The settings of each role; ``default`` applies to all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: ServerRole = ServerRole()
    facts: TextRole = TextRole()
    merge: TextRole = TextRole()
    summary: TextRole = TextRole()
    embedding: EmbeddingRole = EmbeddingRole()
    query_embedding: EmbeddingRole = EmbeddingRole()

    @field_validator("query_embedding")
    @classmethod
    def _is_of_the_same_backend(cls, role: EmbeddingRole) -> EmbeddingRole:
        if role.backend not in (None, "auto", "none"):
            raise ValueError("backend must be none, or left out: queries are embedded as messages are")
        return role

    def as_settings(self) -> dict[str, Any]:
        """Values that roles set in place of settings, by the settings' names."""
        named = {name: getattr(getattr(self, role), field) for (role, field), name in AS_SETTINGS.items()}
        return {name: value for name, value in named.items() if value is not None}

    def timeouts(self) -> dict[str, float]:
        """The longest time of a call that each role sets, by the variable without its prefix."""
        seconds = {role: getattr(self, role).timeout_seconds for role in ("default", *ROLES)}
        return {f"models__{role}__timeout_seconds": value for role, value in seconds.items() if value}

    def with_values(self, role: RoleName, **values: object) -> ModelRoles:
        """These roles, with other values of one."""
        return self.model_copy(update={role: getattr(self, role).model_copy(update=values)})


R = TypeVar("R", TextRole, EmbeddingRole)


@dataclass(frozen=True, slots=True)
class Role(Generic[R]):
    """A role with all that it inherits.

    Attributes:
        of: its values; ``model`` is always set, and ``api_key`` holds the key of a file as well.
        places: the variable that each value comes from.
        is_quoted: whether errors show what its server says; nothing that people wrote may be sent to it.
    """

    name: RoleName
    of: R
    places: Mapping[str, str]
    is_quoted: bool = False

    @property
    def is_configured(self) -> bool:
        """True when a key or an address names a model server."""
        return self.of.base_url is not None or self.of.api_key is not None

    @property
    def address(self) -> str:
        return self.of.base_url or OPENAI_URL

    @property
    def server(self) -> str:
        """The address as it may be shown."""
        return shown_url(self.address)

    @property
    def secrets(self) -> list[str]:
        """The parts that may not be shown."""
        pairs = (*(self.of.headers or ()), *(self.of.query or ()), ("", self.of.api_key))
        contents: list[str] = [content.get_secret_value() for _, content in pairs if content is not None]
        tokens: list[str] = [content.split()[-1] for content in contents if content.strip()]  # "Bearer …"
        return [*contents, *tokens, *secrets_of(self.address)]

    def place(self, field: str) -> str:
        """The variable that a value comes from, or is to be set by."""
        return self.places.get(field) or variable(self.name, field)


def variable(role: str, field: str) -> str:
    return f"{PREFIX}{role}__{field}".upper()


def resolve_role(
    roles: ModelRoles, name: RoleName, kind: type[R], model: tuple[str, str], common: ServerRole
) -> Role[R]:
    """A role with all that it inherits; ``model``: its name and variable; ``common``: the settings for
    all models.
    """
    if name == "query_embedding" and roles.query_embedding.model is not None:
        model = roles.query_embedding.model, model[1]
    chosen_by = (
        variable(link, "model") for link in _LIKE[name] if getattr(getattr(roles, link), "model", None)
    )
    values: dict[str, Any] = {"model": model[0]}
    places = {"model": next(chosen_by, model[1])}
    links: list[ServerRole] = [*(getattr(roles, link) for link in _LIKE[name]), common]
    urls = [next((later.base_url for later in links[n:] if later.base_url), None) for n in range(len(links))]
    for link, url, place in zip(links, urls, (*_LIKE[name], ""), strict=True):
        for field, value in link:
            to = field.removesuffix("_file")
            is_sent = to not in _CREDENTIALS or _host(url) == _host(urls[0])
            if field in _NOT_INHERITED or not is_sent:
                continue
            if value is not None and to not in values:
                values[to] = value
                places[to] = variable(place, field) if place else COMMON[field]
            elif not place and field in COMMON:
                places.setdefault(field, COMMON[field])
    if name == "query_embedding":
        # A read waits for no call of the time that other calls may take.
        places["timeout_seconds"] = "STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS"
    return Role(name, kind.model_construct(**values), places)


def _host(url: str | None) -> tuple[str, str]:
    parts = urlsplit(url or OPENAI_URL)
    return parts.scheme, parts.netloc


class RolesSource(PydanticBaseSettingsSource):
    """The roles as their file sets them; their variables override it."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        try:
            roles = read_roles(self.current_state.get("models_file"), os.environ)
        except _FileError as error:
            return {"models": error}
        return {"models": roles} if roles else {}


def read_roles(file: str | None, environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The roles as their file sets them; variables of ``environ`` override it.  Values are unchecked.

    Raises:
        ValueError: the file cannot be used; the sentence says why.
    """
    roles = _read_file(file) if file else {}
    variables: dict[str, dict[str, Any]] = {}
    for name, value in without_links(environ).items():
        if name.upper().startswith(PREFIX) and value:
            role, _, field = name.upper().removeprefix(PREFIX).lower().partition("__")
            variables.setdefault(role, {})[field] = value
    for role, fields in variables.items():
        # A key's variable also takes the place of the file that a key is in, and the reverse.
        others = {field.removesuffix("_file") for field in fields}
        of_file = roles.get(role, {}).items()
        roles[role] = {
            name: value for name, value in of_file if name.removesuffix("_file") not in others
        } | fields
    return roles


class _FileError(ValueError):
    """The file of the roles cannot be used; the sentence says why."""


def check_roles(value: object) -> object:
    """The values that ``RolesSource`` read; raises ValueError for an unreadable file, and for a text."""
    if isinstance(value, _FileError):
        raise value
    if isinstance(value, str):
        raise ValueError(f"roles have variables such as {PREFIX}FACTS__BASE_URL, and STRANDLINE_MODELS none")
    return value


def _read_file(file: str) -> dict[str, dict[str, Any]]:
    try:
        roles = tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise _FileError(f"the file cannot be read: {error.strerror}") from None
    except RuntimeError as error:  # also a RecursionError
        raise _FileError(f"the file cannot be used: {error}") from None
    except ValueError:
        raise _FileError("the file is not TOML") from None
    if not all(isinstance(values, dict) for values in roles.values()):
        raise _FileError("the file must have a table for each role, such as [facts]")
    return roles


def describe_role_refusal(item: Mapping[str, Any]) -> str:
    """The sentence on one of pydantic's errors in ``models``, with the variable of its place."""
    _, *place = map(str, item["loc"])
    names = [name if name.isidentifier() else quote(name) for name in place[:2]]
    setting = f"{PREFIX}{'__'.join(names)}".upper() if names else FILE
    if item["type"] == "extra_forbidden":
        kind = ModelRoles if len(place) == 1 else type(ModelRoles.model_fields[place[0]].default)
        near = get_close_matches(place[-1].lower(), kind.model_fields, n=1)
        known = f"did you mean {near[0]}?" if near else f"known are {', '.join(kind.model_fields)}"
        return f"{setting}: it is not a {'role' if len(place) == 1 else 'setting of this role'}; {known}"
    return f"{setting}: {describe_refusal({**item, 'loc': item['loc'][2:]})}"
