"""Names that look like others but are not: environment variables, and fields of messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

from strandline.schemas.display.service_links import service_links
from strandline.schemas.display.shown_text import quote
from strandline.schemas.settings import Settings

PREFIX = "STRANDLINE_"

# Settings of roles, which are refused if they are unknown.
ROLES = f"{PREFIX}MODELS__"
# Read elsewhere: by the tests.
_NO_SETTINGS = frozenset({"STOP_AT", "CI_SBIN"})
logger = logging.getLogger(__name__)
_SETTABLE = ("role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata", "created_at")
# Nearer than any two fields of OpenAI's own messages.
_NEAR = 0.85
_MAX_FIELD_CHARACTERS = 20
# A message may have any number of fields, and each costs a comparison.
_MAX_FIELDS = 32


def unknown_settings(environ: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each ``STRANDLINE_…`` variable that is not a setting, with the nearest that is."""
    known = {name.upper() for name in Settings.model_fields} | _NO_SETTINGS
    for name in sorted(environ.keys() - service_links(environ)):
        # Settings are read in any case.
        spelt = name.upper()
        if not spelt.startswith(PREFIX) or spelt.removeprefix(PREFIX) in known or spelt.startswith(ROLES):
            continue
        near = get_close_matches(spelt.removeprefix(PREFIX), known - _NO_SETTINGS, n=1)
        hint = f" Did you mean {PREFIX}{near[0]}?" if near else ""
        yield f"{quote(name)} is not a setting and changes nothing.{hint}"


def name_misspelt(extra: Mapping[str, Any]) -> None:
    """Log a sentence for each field that looks misspelt, once for each name rather than per message."""
    for name in islice(extra, _MAX_FIELDS):
        if isinstance(name, str) and len(name) <= _MAX_FIELD_CHARACTERS:
            _name_if_near(name)


@lru_cache(maxsize=1024)
def _name_if_near(name: str) -> None:
    near = get_close_matches(name, _SETTABLE, n=1, cutoff=_NEAR)
    if near:
        logger.warning(
            "a message has the field %s, which is kept in extra; did you mean %s?",
            quote(name),
            quote(near[0]),
        )
