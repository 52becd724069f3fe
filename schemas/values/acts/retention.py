"""Retention: how long a namespace or a session keeps each thing, as numbered acts record it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit

from strandline.schemas.errors import ActRefusedError, InvalidMessageError
from strandline.schemas.values.same_named import make_from
from strandline.schemas.values.stored_text import check_text

MAX_SECONDS = 100 * 366 * 86_400
MAX_MESSAGES = 2**40
MAX_ARCHIVE_CHARACTERS = 1_000
HANDLER = "handler"
ARCHIVE_SCHEMES = ("file", "s3", "gs", HANDLER)

# Bounds of a session and its namespace, 0 for never.
BOUNDS = ("ttl_seconds", "max_age_seconds", "max_messages")
# The ages of tables next to the log, by field.
AGES = ("answers_seconds", "calls_seconds", "traces_seconds", "ended_facts_seconds")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept.  None leaves it to the level above; of a namespace: everything is kept.

    Attributes:
        ttl_seconds: a session ends so long after its last put, with all that it holds; 0: never.
        max_age_seconds: a message leaves so long after its ``created_at``; 0: never.
        max_messages: how many of a session's newest messages stay; 0: all.
        forget_facts: whether facts lose a leaving message's part; default: they outlive it.
        archive: where messages go before they are removed: a URL (``file:///…``, ``s3://bucket/prefix``,
            ``gs://bucket/prefix``) or ``handler:NAME``; "": they are removed without.
        answers_seconds: how long models' answers are kept after their batch has ended; 0: for ever.
        calls_seconds: the same of the ledger of model calls.
        traces_seconds: how long a removed fact is recognised when derived again.
        ended_facts_seconds: how long facts are kept that ended because of others.
        keeps_important: whether messages that say that they are important stay; default: they do.
    """

    ttl_seconds: int | None = None
    max_age_seconds: int | None = None
    max_messages: int | None = None
    forget_facts: bool | None = None
    archive: str | None = None
    answers_seconds: int | None = None
    calls_seconds: int | None = None
    traces_seconds: int | None = None
    ended_facts_seconds: int | None = None
    keeps_important: bool | None = None

    def check(self, *, of_session: bool = False) -> Retention:
        """The same, if it can be stored.

        Raises:
            InvalidMessageError: naming the field that cannot be used.
        """
        bounds = dict.fromkeys(("ttl_seconds", "max_age_seconds", *AGES), MAX_SECONDS)
        for name, highest in {**bounds, "max_messages": MAX_MESSAGES}.items():
            _check_number(name, getattr(self, name), highest)
        for name in (*AGES, "keeps_important") if of_session else ():
            if getattr(self, name) is not None:
                raise InvalidMessageError(name, "applies to a whole namespace; set it for the namespace")
        for name in ("forget_facts", "keeps_important"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidMessageError(name, "must be True, False, or None for the level above")
        if self.archive is not None:
            check_archive(self.archive)
        return self

    def within(self, above: Retention, tightened: Sequence[str] = ()) -> Retention:
        """This retention with its open or merely ``tightened`` fields from the level above."""
        merged = {}
        for field in fields(self):
            own, common = getattr(self, field.name), getattr(above, field.name)
            merged[field.name] = common if own is None else own
            if field.name in tightened:
                merged[field.name] = min(filter(None, (own, common)), default=own)
        return Retention(**merged)

    def tighten(self, present: Retention, choice: Retention) -> Retention:
        """This act of a session, with the fields of a choice that are tighter than at ``present``.

        Raises:
            ActRefusedError: the choice is looser somewhere; open fields stay.
        """
        tighter: dict[str, Any] = {}
        for name in BOUNDS:
            bound, chosen = getattr(present, name) or 0, getattr(choice, name)
            if chosen is None or chosen == bound:
                continue
            if bound and not 0 < chosen < bound:
                raise _looser(name)
            tighter[name] = chosen
        if choice.forget_facts is not None and choice.forget_facts != bool(present.forget_facts):
            if not choice.forget_facts:
                raise _looser("forget_facts")
            tighter["forget_facts"] = True
        return replace(self, **tighter)

    @property
    def ages_json(self) -> str:
        """The ages of the tables next to the log, as an act stores them."""
        return json.dumps({name: value for name in AGES if (value := getattr(self, name)) is not None})

    def to_json(self) -> str:
        """Its fields, for people and logs."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


def retention_from(row: Any, ages: str = "{}") -> Retention:
    """Read an act; ages of a newer release are left out."""
    stored: dict[str, int] = json.loads(ages)
    return make_from(Retention, row, **{name: stored[name] for name in AGES if name in stored})


def _looser(name: str) -> ActRefusedError:
    sentence = f"{name} is looser than what applies; a key without the scope operate only tightens it."
    return ActRefusedError(sentence, for_clients=sentence)


def check_archive(archive: object) -> str:
    """An archive's name as an act stores it.

    Raises:
        InvalidMessageError: it is none of the kinds there are, or holds a password.
    """
    check_text("archive", archive)
    text = str(archive)
    if not text:
        return text
    if len(text) > MAX_ARCHIVE_CHARACTERS:
        raise InvalidMessageError("archive", f"is longer than {MAX_ARCHIVE_CHARACTERS:,} characters")
    scheme, colon, rest = text.partition(":")
    if scheme not in ARCHIVE_SCHEMES or not colon or not rest.strip("/"):
        raise InvalidMessageError(
            "archive",
            "must be file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, handler:NAME, or empty for none",
        )
    if scheme == HANDLER:
        return text
    parts = urlsplit(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidMessageError(
            "archive",
            "must hold no credentials and no options: these belong in the workers' environment (AWS_…)",
        )
    if scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise InvalidMessageError("archive", "must name a folder from the root: file:///FOLDER")
    return text


def _check_number(name: str, value: object, highest: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise InvalidMessageError(
            name, f"must be a whole number from 0 (never) to {highest:,}, or None for the level above"
        )
