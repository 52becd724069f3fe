"""How an owner's facts are edited: each change in one transaction, with its act in the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.editing.recording import clear_facts, delete_fact, judge_fact
from strandline.pipelines.facts.fact_lanes import lock_facts, open_fact_lanes
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import is_done
from strandline.producers.fact_parts.recorded import Recorded
from strandline.producers.facts.edit_operations import (
    Wording,
    add_fact,
    redact_feedback,
    redact_wording,
    replace_fact,
)
from strandline.producers.facts.importing import FactsImported, ImportedFact, import_facts, redact_imported
from strandline.producers.facts.listing import Fact, as_fact_id, get_fact
from strandline.schemas.errors import VersionError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner

T = TypeVar("T")


class FactEditing(Recorded):
    """Operations of ``OwnerFacts``."""

    _owner: Owner
    _redaction: Redaction | None

    def _edit(
        self,
        kind: str,
        change: Callable[[], Operation[T]],
        actor: str | None = None,
        describe: Callable[[Act, T], Act | None] = is_done,
        text: str | None = None,
    ) -> Operation[T]:
        """Carry out a change in one transaction, with the act in the audit trail."""
        act = Act.here(kind, actor=actor)
        yield from open_fact_lanes(self._owner.shard_key)
        return (yield from self._recorder.change(act, change, describe, text=text))

    def _add_fact(self, wording: Wording, actor: str | None) -> Operation[Fact]:
        wording = yield from redact_wording(wording, self._redaction)
        adding = partial(self._add_operation, wording, actor)
        return (yield from self._edit("facts.add", adding, actor, text=wording.text))

    def _replace_fact(
        self, fact_id: UUID | str, wording: Wording, actor: str | None, version: str | None
    ) -> Operation[Fact | None]:
        wording = yield from redact_wording(wording, self._redaction)
        replacing = self._if_version(
            fact_id, version, partial(self._replace_operation, fact_id, wording, actor)
        )
        return (yield from self._edit("facts.replace", replacing, actor, text=wording.text))

    def _delete_fact(self, fact_id: UUID | str, actor: str | None, version: str | None) -> Operation[bool]:
        deleting = self._if_version(fact_id, version, partial(self._delete_operation, fact_id, actor))
        return self._edit("facts.delete", deleting, actor)

    def _clear_facts(self, actor: str | None) -> Operation[int]:
        clearing = partial(clear_facts, self._owner.shard_key, actor)
        return self._edit("facts.clear", clearing, actor, lambda act, cleared: replace(act, count=cleared))

    def _judge_fact(
        self, fact_id: UUID | str, feedback: str | None, actor: str | None, version: str | None
    ) -> Operation[Fact | None]:
        feedback = yield from redact_feedback(feedback, self._redaction)
        judging = self._if_version(fact_id, version, partial(self._judge_operation, fact_id, feedback, actor))
        return (yield from self._edit("facts.feedback", judging, actor, text=feedback))

    def _import_facts(self, facts: Sequence[ImportedFact]) -> Operation[FactsImported]:
        facts = yield from redact_imported(facts, self._redaction)
        importing = self._edit(
            "facts.import",
            partial(import_facts, self._owner, facts),
            describe=lambda act, imported: replace(act, count=imported.added) if imported.added else None,
        )
        return (yield from importing)

    def _if_version(
        self, fact_id: UUID | str, version: str | None, change: Callable[[], Operation[T]]
    ) -> Callable[[], Operation[T]]:
        return change if version is None else partial(self._change_version, fact_id, version, change)

    def _change_version(
        self, fact_id: UUID | str, version: str, change: Callable[[], Operation[T]]
    ) -> Operation[T]:
        """Carry a change out if the fact is still as the caller saw it; under the owner's lock."""
        yield from lock_facts(self._owner.shard_key)
        fact = yield from get_fact(self._owner, fact_id)
        if fact is not None and fact.version != version:
            raise VersionError(
                "The fact was changed meanwhile; get it again, and repeat with its new version."
            )
        return (yield from change())

    def _add_operation(self, wording: Wording, actor: str | None) -> Operation[Fact]:
        fact_id = yield from add_fact(self._owner, wording, actor)
        fact = yield from get_fact(self._owner, fact_id)
        assert fact is not None, "it was written in this transaction"  # noqa: S101
        return fact

    def _replace_operation(
        self, fact_id: UUID | str, wording: Wording, actor: str | None
    ) -> Operation[Fact | None]:
        id_ = as_fact_id(fact_id)
        if id_ is None:
            return None
        replacement_id = yield from replace_fact(self._owner.shard_key, id_, wording, actor)
        return None if replacement_id is None else (yield from get_fact(self._owner, replacement_id))

    def _delete_operation(self, fact_id: UUID | str, actor: str | None) -> Operation[bool]:
        id_ = as_fact_id(fact_id)
        if id_ is None:
            return False
        return (yield from delete_fact(self._owner.shard_key, id_, actor))

    def _judge_operation(
        self, fact_id: UUID | str, feedback: str | None, actor: str | None
    ) -> Operation[Fact | None]:
        id_ = as_fact_id(fact_id)
        if id_ is None:
            return None
        judged_id = yield from judge_fact(self._owner.shard_key, id_, feedback, actor)
        return None if judged_id is None else (yield from get_fact(self._owner, judged_id))
