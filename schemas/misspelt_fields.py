"""Fields of a message that look like a misspelt field of Strandline's: kept like others, and logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

from strandline.schemas.display.shown_text import quote

logger = logging.getLogger(__name__)

_SETTABLE = ("role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata", "created_at")

# Nearer than any two fields of OpenAI's own messages.
_NEAR = 0.85
_MAX_FIELD_CHARACTERS = 20
# A message may have any number of fields, and each costs a comparison.
_MAX_FIELDS = 32


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
