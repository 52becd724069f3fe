"""The base of all that is told as JSON, and of what commands print under ``--json``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from strandline.schemas.values.same_named import make_from

# Values that a report has as text: a key of any type, and a time in ISO 8601.
Key = Annotated[str, BeforeValidator(str)]
Time = Annotated[str, BeforeValidator(datetime.isoformat)]


class Told(BaseModel):
    """Fields that are told as JSON; they may hold others as the values that these are made of."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, source: object = None, /, **others: Any) -> Self:
        """Made of what ``source`` has under the names of the fields, and of ``others``."""
        return make_from(cls, source, **others)


class Report(Told, extra="forbid"):
    """Base of all reports: fixed fields, no others; new ones may be added in later releases."""
