"""The base of what commands print under ``--json``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Report(BaseModel):
    """Base of all reports: fixed fields, no others; new ones may be added in later releases."""

    model_config = ConfigDict(frozen=True, extra="forbid")
