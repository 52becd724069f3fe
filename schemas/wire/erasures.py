"""Erasures: requests over HTTP, and the reports of the service and ``strandline erasures``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from strandline.schemas.wire.base import Actor, Answer, Request, Short, example
from strandline.schemas.wire.report import Report


class ReaderCheckReport(Report):
    """The remaining items that one reader gave after the erasure: ``remaining`` is 0."""

    reader: str
    looked_at: int
    remaining: int


class ReceiptReport(Report):
    """A receipt; ``/receipt`` and ``--receipt`` give the bytes that can be verified, for a file outside."""

    version: int
    kind: str
    erasure_id: UUID
    number: int
    namespace: str
    owner_key: UUID
    scope_key: UUID
    requested_at: datetime
    finished_at: datetime
    release: str
    fence: dict[str, str]
    counts: dict[str, int]
    kept: dict[str, str]
    checks: list[ReaderCheckReport]
    not_covered: list[str]
    key_id: str | None
    signature: str | None


class ErasureReport(Report):
    """One erasure, or readmission, in a list."""

    number: int
    erasure_id: UUID
    kind: str
    namespace: str
    owner_key: UUID
    scope_key: UUID
    state: str
    rows_erased: int
    actor: str | None
    requested_at: datetime
    finished_at: datetime | None
    is_signed: bool


class ErasureDetailsReport(ErasureReport):
    """``strandline erasures show``: ``counts`` are rows so far, by table."""

    counts: dict[str, int]
    receipt: ReceiptReport | None


class ErasureOut(ErasureDetailsReport):
    """An erasure and how it stands; ``state`` is ``running`` until there is a receipt.

    ``is_running`` says whether the process that answers runs it; ``failed`` why it could not.  If no process
    runs it, it resumes where it was when a client asks for it again.
    """

    is_running: bool
    failed: str | None = None


Path = Annotated[list[Short], Field(min_length=1, max_length=100)]


class ErasureIn(Request, json_schema_extra=example(actor="privacy desk")):
    """The name of the person who asks for it, and items to erase as well.

    ``items_below``: paths of items of the namespace (LangGraph's store) that are the user's, each as its
    labels; it takes a key that is not one user's.  ``even_if_unknown``: erase a user also if nothing is
    stored of one of this name, which may be misspelt, so that nothing ever is.
    """

    actor: Actor | None = None
    items_below: Annotated[list[Path], Field(max_length=100)] = Field(default_factory=list)
    even_if_unknown: bool = False


class ReadmissionIn(Request, json_schema_extra=example(actor="privacy desk")):
    """The name of the person who readmits a user or a session."""

    actor: Actor | None = None


class PlannedErasureOut(Answer):
    """The rows that an erasure would delete now, by table; ``erased_by``: the erasure whose fence stands."""

    rows: dict[str, int]
    erased_by: int | None


class ErasureVerdictOut(Answer):
    """The verification of an erasure that is done.

    ``signature``: ``valid``, ``changed``, ``unsigned``, ``other_key``, or ``unchecked`` where the service has
    no key.  ``fence``: the number of the erasure that keeps the owner away; null after a readmission or a
    restore.  ``rows``: by table, what there is of the owner although it stands.
    """

    number: int
    signature: str
    fence: int | None
    rows: dict[str, int]
