"""What doctor looks at in the settings: names that mean nothing, and values no worker could start with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.cli.reports import CheckReport
from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.generations.recipe import recipe_for
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.misspelt_settings import unknown_settings
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import PIPELINE_STAGES


def check_settings(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckReport]:
    """Unknown names are warnings, since they may be meant for another release; what stops a worker is not."""
    for sentence in unknown_settings(environ):
        yield CheckReport(name="settings", result="warning", found=sentence)
    for sentence in dict.fromkeys(_unusable(settings)):
        yield CheckReport(name="settings", result="problem", found=sentence)


def _unusable(settings: Settings) -> Iterator[str]:
    """Why the pipelines cannot be built with these settings, as a worker says when it starts."""
    try:
        blocks = tuple(load_blocks(settings.blocks))
    except ConfigurationError as error:
        yield str(error)
        return
    for pipeline in (*PIPELINE_STAGES, *blocks):
        try:
            recipe_for(pipeline, settings)
        except ConfigurationError as error:
            yield str(error)
