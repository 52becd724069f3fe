"""Text that Postgres can store: without NUL and lone surrogates, checked before anything is sent."""

from __future__ import annotations

from strandline.schemas.display.field_paths import values_in
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.foreign_values import plain_text


def check_text(field: str, value: object) -> None:
    """Raise InvalidMessageError, naming ``field`` and the position, if ``value`` cannot be stored as text."""
    if not isinstance(value, str):
        raise InvalidMessageError(field, f"must be a string, not {type(value).__name__}")
    value = plain_text(value)
    position = value.find("\x00")
    if position >= 0:
        raise InvalidMessageError(
            field,
            f"holds a NUL character at position {position}; remove it, because Postgres cannot store it in"
            " text",
            for_clients=f"It holds a NUL character at position {position}; leave it out.",
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(
            field,
            f"holds a lone surrogate at position {error.start}; decode the text properly,"
            " or drop it with value.encode('utf-8', 'ignore').decode()",
            for_clients=f"It holds a lone surrogate at position {error.start}; leave it out.",
        ) from None


def check_texts_within(field: str, value: object) -> None:
    """Check every string inside a JSON-like value, keys included; names the field by its path.

    Paths are made for a value alone that holds a fault: there may be a quarter of a million values in a put.
    """
    if not _is_storable(value):
        for path, inner in values_in(field, value):
            if isinstance(inner, str):
                check_text(path, inner)


def _is_storable(value: object) -> bool:
    if isinstance(value, str):
        value = plain_text(value)
        return "\x00" not in value and (value.isascii() or is_encodable(value))
    if isinstance(value, dict):
        return all(_is_storable(str(key)) and _is_storable(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_storable, value))
    return True


def is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
