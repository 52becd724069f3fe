"""Why a value of a setting is refused, in words that do not show it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from strandline.schemas.display.shown_text import quote

_WHOLE_NUMBER = "{subject} must be a whole number"
_NUMBER = "{subject} must be a number"
_YES_OR_NO = "{subject} must be true or false"

# By pydantic's error types; braces other than ``subject`` are filled from the error's context.
_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "int_parsing": _WHOLE_NUMBER,
        "int_type": _WHOLE_NUMBER,
        "int_from_float": _WHOLE_NUMBER,
        "int_parsing_size": "{subject} is too large a number",
        "float_parsing": _NUMBER,
        "float_type": _NUMBER,
        "decimal_parsing": _NUMBER,
        "decimal_type": _NUMBER,
        "finite_number": "{subject} must be a finite number",
        "bool_parsing": _YES_OR_NO,
        "bool_type": _YES_OR_NO,
        "literal_error": "{subject} must be {expected}",
        "greater_than": "{subject} must be above {gt:,.10g}",
        "greater_than_equal": "{subject} must be at least {ge:,.10g}",
        "less_than": "{subject} must be below {lt:,.10g}",
        "less_than_equal": "{subject} must be at most {le:,.10g}",
        # Settings have one pattern, that of the schema.
        "string_pattern_mismatch": "{subject} must be a name of at most 51 lower-case letters, digits and"
        " underscores that does not begin with a digit",
        "string_type": "{subject} must be text",
        "string_too_short": "{subject} is empty",
        "string_too_long": "{subject} must have at most {max_length:,} characters",
        "path_type": "{subject} must be a path",
        "missing": "{subject} is missing",
        "extra_forbidden": "{subject} is not a known field",
    }
)


def describe_refusal(item: Mapping[str, Any]) -> str:
    """One of pydantic's errors in our words; errors of kinds that settings never had keep pydantic's.

    An error inside a value, such as in the price of a model, names the field there.
    """
    sentence = _SENTENCES.get(item["type"])
    if sentence is None:
        return str(item["msg"]).removeprefix("Value error, ")
    inner = item["loc"][1:]
    subject = quote(str(inner[-1])) if inner else "it"
    return sentence.format(subject=subject, **item.get("ctx", {}))
