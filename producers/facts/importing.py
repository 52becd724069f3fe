"""Facts that another system kept: added as people's facts, each once, with the times that they had there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.pipelines.facts import recording
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.facts.edit_operations import Wording, redact_feedback, redact_wording
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation, claim_owner_keys, fetch
from strandline.schemas.queries.derived.facts_edit import NameFactOwner
from strandline.schemas.values.identity import Owner

# One transaction holds the locks of the owner's facts.
MAX_FACTS_PER_IMPORT = 200


@dataclass(frozen=True, slots=True)
class ImportedFact:
    """A fact of another system.

    Attributes:
        id: derived from where it stood there, so that importing it again adds nothing.
        wording: its words and details.
        actor: where it stood, for people to read.
        created_at, updated_at: with a time zone; default: the time of the import.
        feedback: people's opinion of it.
    """

    id: UUID
    wording: Wording
    actor: str
    created_at: datetime | None = None
    updated_at: datetime | None = None
    feedback: str | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The form in which the event stores it."""
        said_at = self.updated_at or self.created_at
        created_at = None if self.created_at is None else self.created_at.isoformat()
        fields = {
            "created_at": created_at,
            "valid_from": created_at,
            "said_at": None if said_at is None else said_at.isoformat(),
            "feedback": self.feedback,
        }
        return self.wording.payload | {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FactsImported:
    """The result of one call: facts that were imported before (``known``), and those added."""

    known: int
    added: int


def redact_imported(
    facts: Sequence[ImportedFact], redaction: Redaction | None
) -> Operation[Sequence[ImportedFact]]:
    """The facts as they may be stored.

    Raises: as ``redact_wording``; InvalidMessageError: they are not a list of ``ImportedFact``.
    """
    if not isinstance(facts, (list, tuple)) or not all(isinstance(fact, ImportedFact) for fact in facts):
        raise InvalidMessageError("facts", "must be a list of ImportedFact")
    if redaction is None:
        return facts
    redacted: list[ImportedFact] = []
    for fact in facts:
        wording = yield from redact_wording(fact.wording, redaction)
        feedback = yield from redact_feedback(fact.feedback, redaction)
        redacted.append(replace(fact, wording=wording, feedback=feedback))
    return redacted


def import_facts(owner: Owner, facts: Sequence[ImportedFact]) -> Operation[FactsImported]:
    """Add the facts that were not imported before; to be run as one transaction.

    Raises:
        InvalidMessageError: there are too many.
        UnknownPipelineError: no worker has registered facts in this database.
    """
    if len(facts) > MAX_FACTS_PER_IMPORT:
        raise InvalidMessageError("facts", f"must be at most {MAX_FACTS_PER_IMPORT} in one import")
    payloads = {fact.id: fact.payload for fact in facts}
    actors = {fact.id: fact.actor for fact in facts}
    yield from claim_owner_keys(owner.namespace, owner.shard_key)
    added = yield from recording.add_facts_once(owner.shard_key, payloads, actors)
    yield from fetch(NameFactOwner.of(owner))
    return FactsImported(len(payloads) - added, added)
