"""Environment variables that look like settings but are not: most are misspelt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from strandline.schemas.display.service_links import service_links
from strandline.schemas.display.shown_text import quote
from strandline.schemas.settings import Settings

PREFIX = "STRANDLINE_"

# Settings of roles, which are refused if they are unknown.
ROLES = f"{PREFIX}MODELS__"
# Read elsewhere: by the tests.
_NO_SETTINGS = frozenset({"STOP_AT", "CI_SBIN"})


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
