"""The bases of all that goes over HTTP: requests are strict, pages have one form, and so have problems."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import KEY_ACTOR_PREFIX, check_name, check_user_id
from strandline.schemas.values.policy import check_time_zone
from strandline.schemas.wire.report import Told

Item = TypeVar("Item")

MAX_PAGE = 1_000
CLOCKS_DIFFER = timedelta(minutes=5)
MAX_SEQ = 2**53 - 1  # what JSON's readers in other languages hold exactly


NAME_ERROR = "name"


def _in_words(check: Callable[[Any], str]) -> AfterValidator:
    def step(value: Any) -> str:
        try:
            return check(value)
        except InvalidMessageError as error:
            raise PydanticCustomError(NAME_ERROR, "{told}", {"told": error.for_clients}) from None

    return AfterValidator(step)


Short = Annotated[str, Field(min_length=1, max_length=512)]
Name = Annotated[Short, _in_words(partial(check_name, "name"))]
UserName = Annotated[Short, _in_words(check_user_id)]
TimeZone = Annotated[Short, _in_words(check_time_zone)]
Seq = Annotated[int, Field(ge=1, le=MAX_SEQ)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _not_a_key(actor: str) -> str:
    if actor.lower().startswith(KEY_ACTOR_PREFIX):
        raise ValueError("names that begin with key: are those of the service's keys")
    return actor


# Whom the caller says to act for; the key stands in the audit trail in any case.
Actor = Annotated[Name, AfterValidator(_not_a_key)]


def _check_form(fault: Literal["datetime_parsing", "date_parsing"], time: object) -> object:
    """A time or a day in ISO 8601: a mere number would be taken for seconds, or for milliseconds."""
    if isinstance(time, date) or (isinstance(time, str) and "-" in time[1:]):
        return time
    raise PydanticKnownError(fault, {"error": "it is a number"})


def _storable(moment: datetime) -> datetime:
    """A time that Postgres takes: as far from UTC as it knows zones, and of our era there as well."""
    offset = moment.utcoffset()
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("its year in UTC is not 1 to 9999") from None
    if offset is not None and abs(offset) >= timedelta(hours=16):
        raise ValueError("its offset from UTC is 16 hours or more")
    return moment


def _past(moment: datetime) -> datetime:
    """A time that is not ahead of this clock by more than clocks differ."""
    if moment > datetime.now(UTC) + CLOCKS_DIFFER:
        raise PydanticKnownError("datetime_past")
    return moment


# JSON has no time of its own: text in ISO 8601 is read.
Moment = Annotated[
    AwareDatetime,
    Field(strict=False),
    BeforeValidator(partial(_check_form, "datetime_parsing")),
    AfterValidator(_storable),
]
PastMoment = Annotated[Moment, AfterValidator(_past)]
Day = Annotated[date, Field(strict=False), BeforeValidator(partial(_check_form, "date_parsing"))]
Json = dict[str, Any]

# The media type of problems, and the prefix of their types.
PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPES = "urn:strandline:problem:"

# Headers of requests and responses, by the names that both sides use.
USER_HEADER = "Strandline-User"
COVERED_HEADER = "Strandline-Covered-Through"
CAUGHT_UP_HEADER = "Strandline-Caught-Up"
IDEMPOTENCY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"

# How a repeated request behaves.  With an Idempotency-Key: its response is `kept` for a day; or the key is
# the act's `own` name; or it is done `once`, and a repetition is refused, as its answer is not stored.
# Without a key: it does the `same`, or it `reads`.  A key is `refused` where a repetition would differ.
Idempotent = Literal["kept", "own", "once", "same", "reads", "refused"]


def example(**fields: Any) -> dict[str, Any]:
    """An example added to the schema of a body."""
    return {"examples": [fields]}


class Request(BaseModel):
    """A body that a client sends: unknown fields are refused, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Answer(Told, extra="ignore"):
    """A body that the service sends; later releases may add fields, and values of ``one_of``."""


def one_of(*values: str) -> WithJsonSchema:
    """For a text of an answer that is one of these now; later releases may add values, as fields.

    The document names them under ``x-extensible-enum``: of an ``enum`` a generated client takes no other.
    """
    return WithJsonSchema({"type": "string", "x-extensible-enum": list(values)})


class Page(Answer, Generic[Item]):
    """A page of a list; ``next_cursor`` is what ``cursor`` takes for the next page, null at the end."""

    items: list[Item]
    next_cursor: str | None = None


class WaitingOut(Answer):
    """Messages in windows, of which no memory is derived before the next delivery.

    It comes above ``flush_at_tokens`` tokens (of several sessions null), or at ``deliver_at`` if no message
    comes before.
    """

    messages: int
    sessions: int
    tokens: int | None
    flush_at_tokens: int | None
    deliver_at: datetime | None


class ProblemPlace(Answer):
    """A place in the request that cannot be used: a JSON pointer into it, and why, without quoting it."""

    pointer: str
    detail: str


class Problem(
    Answer,
    json_schema_extra=example(
        type="urn:strandline:problem:invalid",
        title="A value cannot be used",
        status=422,
        detail="`errors` says where.",
        errors=[{"pointer": "/body/messages/0/content", "detail": "It is missing."}],
    ),
):
    """An error as RFC 9457 has it; ``type`` names its kind and never changes.

    ``instance`` names one occurrence of a defect, by which the log of the service has it.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemPlace] | None = None
    instance: str | None = None


class HealthOut(Answer):
    """Whether the process answers, or may be sent requests."""

    status: str
    reason: str | None = None


class ReadinessOut(HealthOut):
    """Whether the process may be sent requests.

    ``broker``: why the broker takes no hints; memory is derived all the same, seconds later.
    """

    broker: str | None = None


class CapabilityOut(Answer):
    """A part of the service.

    ``state``: ``served``, ``missing`` if it was not set up, or ``degraded`` if it fails now.
    """

    name: str
    state: str
    reason: str | None = None


class CapabilitiesOut(HealthOut):
    """The parts of a process; ``status`` is ``degraded`` if a part fails, ``unavailable`` if requests do."""

    capabilities: list[CapabilityOut]
