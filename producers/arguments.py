"""Arguments of a read, checked before the first statement is sent to the database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, StrandlineError
from strandline.schemas.values.content_parts import check_parts
from strandline.schemas.values.foreign_values import is_empty, plain_int, plain_number, plain_text, unreadable
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import MAX_INTEGER
from strandline.schemas.values.stored_text import check_text, check_texts_within

MAX_SEQ = 2**63 - 1


def read_query(source: object | None) -> str | Message | None:
    """The text or message to search for: text as it is, else a message; raises InvalidMessageError."""
    if source is None:
        return None
    if isinstance(source, str):
        check_text("input", source)
        return plain_text(source)
    return _read_searchable(source, "input")


def read_messages(sources: Sequence[object] | None) -> list[Message] | None:
    """Messages to search for, as values or OpenAI dicts; raises InvalidMessageError as a put does."""
    if sources is None:
        return None
    return [
        _read_searchable(source, f"messages[{index}]")
        for index, source in enumerate(listed_messages(sources))
    ]


def _read_searchable(source: object, where: str) -> Message:
    message = Message.from_openai(source, where=where)
    content: object = message.content
    try:
        if content is not None and not isinstance(content, str):
            check_parts(content, f"{where}.content")
        check_texts_within(f"{where}.content", content)
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable(where, error) from error
    return message


def listed_messages(sources: object) -> Sequence[object]:
    """Messages as a list, which is empty for None; raises InvalidMessageError if they are not a list."""
    if type(sources) is list:
        return sources
    if is_empty(sources):
        return []
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Sequence):
        raise InvalidMessageError("messages", f"must be a list of messages, not {type(sources).__name__}")
    try:
        return list(sources)
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("messages", error) from error


def check_token_count(name: str, count: object) -> int:
    """Check a number of tokens; raises ConfigurationError if it is not one."""
    return _whole(name, count, least=0, most=MAX_INTEGER)


def check_count(name: str, count: object, *, least: int = 0, most: int | None = MAX_INTEGER) -> int:
    """Check a limit, an offset or another number of things, ``most`` or any; raises ConfigurationError."""
    return _whole(name, count, least=least, most=most)


def check_seq(name: str, seq: object) -> int:
    """Check a message's ``seq``, or 0 for before the first; raises ConfigurationError if it is not one."""
    return _whole(name, seq, least=0, most=MAX_SEQ)


def check_page_size(size: object) -> int:
    """Check the number of messages in a page; raises ConfigurationError if it is not one."""
    return _whole("page_size", size, least=1, most=MAX_INTEGER)


def check_timeout(seconds: object) -> float:
    """Check how long to wait; raises ConfigurationError if it is not a number of seconds."""
    if isinstance(seconds, int) and not isinstance(seconds, bool):
        return float(min(max(plain_int(seconds), -1), MAX_INTEGER))  # of an int, any may be too large
    if not isinstance(seconds, float) or math.isnan(plain_number(seconds)):
        raise ConfigurationError(f"timeout is {quote(seconds)}; it must be a number of seconds.")
    return min(plain_number(seconds), float(MAX_INTEGER))


def check_flag(name: str, value: object) -> bool:
    """Check that ``value`` is True or False; raises ConfigurationError if it is neither."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {quote(value)}; it must be True or False.")
    return value


def _whole(name: str, value: object, *, least: int, most: int | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        number = plain_int(value)
        if number >= least and (most is None or number <= most):
            return number
    bound = "on" if most is None else f"to {most:,}"
    raise ConfigurationError(f"{name} is {quote(value)}; it must be a whole number from {least} {bound}.")


def check_moment(name: str, value: object) -> datetime:
    """A time in UTC, as near as Python can; raises ConfigurationError if it is none, or has no time zone."""
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{name} is {quote(value)}; it must be a datetime with a time zone")
    try:
        if value.utcoffset() is not None:
            return value.astimezone(UTC)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if value.year > 1 else datetime.min.replace(tzinfo=UTC)
    except Exception as error:  # the edge to foreign code: a time zone of the caller's
        raise unreadable(name, error) from error
    raise ConfigurationError(f"{name} has no time zone; add one, such as +00:00")
