"""What doctor looks at in the settings: names that mean nothing, and values no worker could start with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.cli.doctor.reports import CheckReport
from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.redaction.loading import load_hooks
from strandline.producers.redacting import SETTING
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.misspelt_settings import unknown_settings
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import OVERFLOW, PIPELINES

# What a check goes by.  With a default in place of one of these it would look at something else.
PLACES = {
    "database": {"database_url", "database_schema", "database_pooler", "embedded", "home"},
    "broker": {"broker_url", "embedded", "home"},
    "models": {"models", "models_file", "text_backend", "embedding_backend", "embedding_dimensions"},
}


def check_settings(
    settings: Settings, refused: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[CheckReport]:
    """Unknown names are warnings, since they may be meant for another release; what stops a worker is not.

    Args:
        settings: as they can be used.
        refused: why others cannot, by field.
    """
    for sentence in refused.values():
        yield CheckReport(name="settings", result="problem", found=sentence)
    for sentence in unknown_settings(environ):
        yield CheckReport(name="settings", result="warning", found=sentence)
    for sentence in dict.fromkeys(_unusable(settings)):
        yield CheckReport(name="settings", result="problem", found=sentence)


def not_checked(name: str, refused: Mapping[str, str]) -> CheckReport | None:
    """The report on what cannot be looked for, because a setting that says where cannot be used."""
    if not PLACES[name] & refused.keys():
        return None
    return CheckReport(name=name, result="warning", found="not checked, since its settings cannot be used")


def _unusable(settings: Settings) -> Iterator[str]:
    """Why the pipelines cannot be built with these settings, as a worker says when it starts."""
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
