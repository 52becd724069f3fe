"""Bodies of requests, read up to a bound in bytes and in time before anything is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import jiter
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Receive, Scope

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.values.nesting import check_nesting
from strandline.schemas.values.stored_text import check_texts_within
from strandline.service.gate.places import declared_steps, pointer, steps_of_invalid
from strandline.service.gate.problems import (
    MALFORMED,
    SLOW_BODY,
    TOO_LARGE,
    ProblemError,
    invalid,
    of_validation,
)

# The rest of it is not read: the connection ends with the response.
CLOSE = {"Connection": "close"}

# A body with more bytes, or more values, is read and worked on off the event loop.
LARGE_BYTES = 16_384
LARGE_VALUES = 200
# Values of a body in all, names of fields apart: to build one costs far more than its bytes.
MAX_VALUES = 25_000

# Of a whole number; readers of JSON give up at more.
MAX_DIGITS = 4_300

# A body whose length has more digits than this is not read away after a refusal.
MAX_DISCARDED_DIGITS = 5


class ClientGone(Exception):
    """The client closed the connection before its request was complete, so it needs no answer."""


async def read_body(receive: Receive, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body.

    Raises:
        ProblemError: it is too large as it comes, or does not arrive in time.
        ClientGone: the client closed the connection.
    """
    parts = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while (message := await receive())["type"] == "http.request":
                parts += message.get("body", b"")
                if len(parts) > max_bytes:
                    raise _too_large(max_bytes)
                if not message.get("more_body"):
                    return bytes(parts)
    except TimeoutError:
        raise ProblemError(SLOW_BODY, headers=CLOSE) from None
    raise ClientGone


def read_model(kind: type[BaseModel], scope: Scope, body: bytes) -> BaseModel:
    """The value that a body is.

    Raises:
        ProblemError: it is missing, is not said to be JSON, or is not such a value.
    """
    if not body:
        raise invalid("/body", "It is missing.")
    media_type = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    ):
        raise invalid("/body", "It must be JSON, and Content-Type must say so.")
    try:
        value = kind.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["type"] == "json_invalid":
            raise _refused_value(kind, body) or ProblemError(MALFORMED) from None
        raise of_validation(({**one, "loc": ("body", *one["loc"])} for one in faults), kind) from None
    check_keys(body)
    return value


def _refused_value(kind: type[BaseModel], body: bytes) -> ProblemError | None:
    """Where it holds half a surrogate pair, a number of thousands of digits, or hundreds of levels."""
    numbers: list[str] = []

    def whole_number(digits: str) -> int | str:
        if len(digits) <= MAX_DIGITS:
            return int(digits)
        numbers.append(digits)
        return "\ud800"  # which is refused, and so found

    try:
        for name, value in read_json(body, parse_int=whole_number).items():
            check_nesting(name, value)
            check_texts_within(name, value)
            name.encode()
    except InvalidMessageError as error:
        steps = declared_steps(kind, (steps_of_invalid(error, kind) or [])[1:])
        detail = str(error.for_clients)
        if numbers:
            detail = f"A whole number in it has more than {MAX_DIGITS:,} digits; send it as text."
        return invalid(pointer(["body", *steps]), detail)
    except UnicodeEncodeError:
        return invalid("/body", "The name of a field holds a lone surrogate; leave it out.")
    except (AttributeError, ValueError, RecursionError):
        pass  # it is not JSON
    return None


def check_keys(body: bytes) -> None:
    """Raise a problem if an object in a body has a key twice: a reader before us may take the other one."""
    try:
        jiter.from_json(body, catch_duplicate_keys=True)
    except ValueError as error:  # all else that is wrong with it is found where it is read
        if "duplicate key" in str(error):
            detail = "An object in the body has a key twice; send each key once."
            raise ProblemError(MALFORMED, detail=detail) from None


def _too_large(max_bytes: int) -> ProblemError:
    detail = f"A body has at most {max_bytes:,} bytes here; send less at once."
    return ProblemError(TOO_LARGE, detail=detail, headers=CLOSE)


def announced_bytes(headers: Mapping[bytes, bytes], max_bytes: int) -> int:
    """The length of a body by its head; one that comes in chunks counts as the longest.

    Raises:
        ProblemError: it is too large.
    """
    value = headers.get(b"content-length")
    if value is None:
        return max_bytes if b"transfer-encoding" in headers else 0
    if not value.isdigit() or len(value) > 18:
        raise ProblemError(MALFORMED, headers=CLOSE)
    if int(value) > max_bytes:
        raise _too_large(max_bytes)
    return int(value)


def is_large(body: bytes) -> bool:
    """Whether work on a body would hold up the event loop."""
    return len(body) > LARGE_BYTES or body.count(b",") > LARGE_VALUES


def check_values(body: bytes) -> None:
    """Refuse a body of too many values before any is built: by its commas outside of texts."""
    if body.count(b",") >= MAX_VALUES and _commas_outside_texts(body) >= MAX_VALUES:
        detail = f"A body has at most {MAX_VALUES:,} values and fields; send less at once."
        raise ProblemError(TOO_LARGE, detail=detail)


# All but the quotation mark and the comma.
_OTHER_BYTES = bytes({*range(256)} - {*b'",'})


def _commas_outside_texts(json: bytes) -> int:
    """Each step is one call in C of a millisecond per megabyte: none holds the interpreter for long."""
    without_escapes = json.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = without_escapes.translate(None, _OTHER_BYTES)
    # Of texts without commas, and of places between two texts without one, nothing is left.
    return sum(part.count(b",") for part in marks.replace(b'""', b"").split(b'"')[::2])


def is_long(scope: Scope) -> bool:
    """Whether a request has a body that costs more to read away than a new connection."""
    headers = dict(scope["headers"])
    is_chunked = b"transfer-encoding" in headers
    return is_chunked or len(headers.get(b"content-length", b"")) > MAX_DISCARDED_DIGITS


def given_again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives a body that was read, and then what comes after it."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
