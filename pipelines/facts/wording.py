"""Wordings: the words and details that a person's event gives a fact, as parameters of statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypedDict

from strandline.pipelines.text.lexemes import indexed_lexemes
from strandline.schemas.values.fingerprints import fingerprint


class Words(TypedDict):
    """The words of a fact, as parameters of statements."""

    text: str
    fingerprint: bytes
    lexemes: list[str]


class Details(TypedDict):
    """The other fields that a person gives a fact, as parameters of statements."""

    topics: list[str]
    about_date: date | None
    input: str | None
    agent_id: str | None
    team_id: str | None


@dataclass(frozen=True, slots=True)
class Wording:
    """A payload as statements take it."""

    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    about_date: date | None
    valid_from: datetime | None
    created_at: datetime | None
    said_at: datetime | None
    input: str | None
    agent_id: str | None
    team_id: str | None

    @property
    def words(self) -> Words:
        return {"text": self.text, "fingerprint": self.fingerprint, "lexemes": self.lexemes}

    @property
    def details(self) -> Details:
        return {
            "topics": self.topics,
            "about_date": self.about_date,
            "input": self.input,
            "agent_id": self.agent_id,
            "team_id": self.team_id,
        }


def read_wording(payload: Mapping[str, Any]) -> Wording:
    text: str = payload["text"]
    about_date = payload.get("about_date")
    return Wording(
        text=text,
        fingerprint=fingerprint(text),
        lexemes=indexed_lexemes(text),
        topics=list(payload.get("topics") or ()),
        about_date=date.fromisoformat(about_date) if about_date else None,
        valid_from=_read_moment(payload.get("valid_from")),
        created_at=_read_moment(payload.get("created_at")),
        said_at=_read_moment(payload.get("said_at")),
        input=payload.get("input"),
        agent_id=payload.get("agent_id"),
        team_id=payload.get("team_id"),
    )


def _read_moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
