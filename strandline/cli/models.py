"""``strandline models``: how each role's model is asked, where that is set, and whether it answers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.command import CommandGroup, Output
from strandline.cli.doctor.checks import DoctorReport
from strandline.cli.doctor.command import show_checks
from strandline.cli.doctor.models import check_role
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.model_roles import (
    AS_SETTINGS,
    EMBEDDING_ROLES,
    FILE,
    OPENAI_URL,
    PREFIX,
    ROLES,
    RoleName,
    variable,
)
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.wire.report import Report


@click.group("models", cls=CommandGroup)
def command() -> None:
    """Show how the model of each role is asked, and try it.

    The roles are facts, merge, summary, embedding (of messages) and query_embedding.
    """


# Defaults without a setting; nothing for the others.
_DEFAULTS = {
    "base_url": OPENAI_URL,
    "api_key": "not set",
    "answer_form": "auto",
    "max_tokens": "as the task needs",
    "max_tokens_field": "auto",
    "temperature": "0",
    "max_texts": "256",
    "max_characters": "250000",
    "sends_dimensions": "to text-embedding-3",
    "sends_encoding_format": "true",
}


class ValueReport(Report):
    """A value of a role; ``set_by`` is the variable that it comes from, None for a default."""

    name: str
    value: str
    set_by: str | None


class RoleReport(Report):
    """How a role's model is asked; of a key only that it is set, of headers and fields only the names."""

    role: str
    backend: str
    values: list[ValueReport]


class RolesReport(Report):
    """``strandline models show``."""

    roles: list[RoleReport]


@command.add_offline("show", RolesReport)
def show_command() -> Output:
    """Show server, model, form and limits of each role, and the variable that each comes from."""
    settings = load_settings()
    report = RolesReport(roles=[_role(settings, role) for role in ROLES])
    return Output(report, _lines(report))


@command.add_offline("check", DoctorReport)
def check_command() -> Output:
    """Ask the model of each role as a worker or a read does; exits with 1 if there is a problem."""
    settings = load_settings()
    return show_checks(check_role(settings, role, role, call=True) for role in ROLES)


def _role(settings: Settings, name: RoleName) -> RoleReport:
    role, kind = settings.role(name), settings.backend(name)
    values = {field: (value, role.place(field)) for field, value in role.of}
    for (of_role, field), setting in AS_SETTINGS.items():
        if of_role == name and field in ("prefix", "timeout_seconds"):
            is_own = getattr(getattr(settings.models, name), field) is not None
            place = variable(name, field) if is_own else f"STRANDLINE_{setting.upper()}"
            values[field] = getattr(settings, setting), place
    if name in EMBEDDING_ROLES:
        values["dimensions"] = settings.embedding_dimensions, "STRANDLINE_EMBEDDING_DIMENSIONS"
    reports = [
        ValueReport(name=field, value=shown, set_by=None if value is None else _source(place))
        for field, (value, place) in values.items()
        if kind == "openai" and (shown := _shown(field, value))
    ]
    return RoleReport(role=name, backend=kind, values=reports)


def _shown(field: str, value: Any) -> str:
    """A value for display: whether a key is set; of headers, query and further fields only the names."""
    if value is None:
        return _DEFAULTS.get(field, "")
    match field:
        case "api_key":
            return "set"
        case "headers" | "query":
            return ", ".join(name for name, _ in value)
        case "body":
            return ", ".join(json.loads(value))
        case "base_url":
            return shown_url(value)
        case "prefix":
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            return shown.removesuffix(".0") if isinstance(value, float) else shown


def _source(place: str) -> str:
    """The variable of a value, or of the file that it is in."""
    is_set = place in (name.upper() for name, content in os.environ.items() if content)
    return FILE if place.startswith(PREFIX) and not is_set else place


def _lines(report: RolesReport) -> Iterator[str]:
    for role in report.roles:
        yield f"{role.role}: {role.backend}"
        for value in role.values:
            yield f"  {value.name}: {value.value}" + (f" ({value.set_by})" if value.set_by else "")
