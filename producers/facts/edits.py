"""How an owner's facts are edited: in the caller's transaction, or each change an act in one of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.edits import lock_facts, open_fact_lanes
from strandline.pipelines.facts.recording import (
    clear_facts,
    delete_fact,
    judge_fact,
    lock_sources,
    replace_fact,
    settle_doubt,
)
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import Recorder, is_done
from strandline.producers.facts.edit_operations import (
    Wording,
    add_fact,
    redact_feedback,
    redact_wording,
)
from strandline.producers.facts.importing import FactsImported, ImportedFact, import_facts, redact_imported
from strandline.producers.facts.listing import Fact, as_fact_id, get_fact
from strandline.schemas.errors import ConflictError, VersionError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.doubts import Settlement
from strandline.schemas.values.identity import Owner

T = TypeVar("T")
TakeBack = Callable[[Mapping[UUID, Collection[int]]], Operation[None]]
"""Takes messages back, given by session."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """Changes of an owner's facts within the caller's transaction, which records the enclosing act.

    ``actor`` names the person who makes them.
    """

    owner: Owner
    actor: str | None

    def add(self, wording: Wording, fact_id: UUID | None = None, *, as_is: bool = False) -> Operation[Fact]:
        """Add a fact; ``fact_id`` is the caller's choice, and no live fact may have it.

        It is doubtful if it may contradict a known one, unless it is added ``as_is``.

        Raises:
            ConflictError: a live fact has this id; nothing was added.
        """
        if fact_id is not None:
            yield from lock_facts(self.owner.shard_key)
            if (yield from self._live(fact_id)) is not None:
                raise ConflictError("A fact with this id has been added since; nothing was changed.")
        added_id = yield from add_fact(self.owner, wording, self.actor, fact_id=fact_id, as_is=as_is)
        fact = yield from get_fact(self.owner, added_id)
        assert fact is not None, "it was written in this transaction"  # noqa: S101
        return fact

    def replace(self, fact_id: UUID | str, wording: Wording) -> Operation[Fact | None]:
        """Give a live fact other words; None if there is no such fact."""
        payload, owner_key = wording.payload, self.owner.shard_key
        return self._change(fact_id, lambda id_: replace_fact(owner_key, id_, payload, self.actor))

    def delete(self, fact_id: UUID | str) -> Operation[bool]:
        """Delete a fact for good; False if there is no such fact."""
        id_ = as_fact_id(fact_id)
        return id_ is not None and (yield from delete_fact(self.owner.shard_key, id_, self.actor))

    def settle(self, fact_id: UUID | str, keep: Settlement) -> Operation[Fact | None]:
        """Decide between a doubtful fact and the fact it may contradict; None if it is unknown."""
        return self._change(fact_id, lambda id_: settle_doubt(self.owner.shard_key, id_, keep, self.actor))

    def judge(self, fact_id: UUID | str, feedback: str | None) -> Operation[Fact | None]:
        """Record people's opinion of a fact; None if there is no such fact."""
        return self._change(fact_id, lambda id_: judge_fact(self.owner.shard_key, id_, feedback, self.actor))

    def put(self, fact_id: UUID | None, wording: Wording, feedback: str | None) -> Operation[Fact]:
        """Add a fact under an id, or give the live fact of this id other words; then judge it.

        Equal values are left alone; without ``feedback`` a fact keeps its own.
        """
        fact: Fact | None = None
        while fact is None:
            known = None if fact_id is None else (yield from self._live(fact_id))
            if known is None:
                try:
                    fact = yield from self.add(wording, fact_id)
                except ConflictError:
                    continue  # another call was first: its fact is given these words
            elif known.text == wording.text and wording.topics in (None, known.topics):
                fact = known
            else:
                anew = replace(wording, input=None, agent_id=None, team_id=None)
                fact = yield from self.replace(known.fact_id, anew)
        if feedback in (None, fact.feedback):
            return fact
        return (yield from self.judge(fact.fact_id, feedback)) or fact

    def _change(
        self, fact_id: UUID | str, change: Callable[[UUID], Operation[UUID | None]]
    ) -> Operation[Fact | None]:
        id_ = as_fact_id(fact_id)
        changed_id = None if id_ is None else (yield from change(id_))
        return None if changed_id is None else (yield from get_fact(self.owner, changed_id))

    def _live(self, fact_id: UUID) -> Operation[Fact | None]:
        fact = yield from get_fact(self.owner, fact_id)
        return fact if fact is not None and fact.is_live else None


@dataclass(frozen=True, slots=True)
class FactEdits(FactChanges):
    """The same changes, each in one transaction, with its act in the audit trail and before the hooks.

    ``version``: that of the fact, which is changed only if it is still so; None: any version.
    """

    recorder: Recorder
    redaction: Redaction | None
    version: str | None = None

    def edit(
        self,
        kind: str,
        change: Callable[[], Operation[T]],
        describe: Callable[[Act, T], Act | None] = is_done,
        text: str | None = None,
    ) -> Operation[T]:
        """Carry out a change in one transaction, with the act in the trail, unless the hook refuses it."""
        act = Act.here(kind, actor=self.actor)
        yield from open_fact_lanes(self.owner.shard_key)
        return (yield from self.recorder.change(act, change, describe, text=text))

    def add(self, wording: Wording, fact_id: UUID | None = None, *, as_is: bool = False) -> Operation[Fact]:
        wording = yield from redact_wording(wording, self.redaction)
        adding = partial(self._plain_changes.add, wording, fact_id, as_is=as_is)
        return (yield from self.edit("facts.add", adding, text=wording.text))

    def replace(self, fact_id: UUID | str, wording: Wording) -> Operation[Fact | None]:
        wording = yield from redact_wording(wording, self.redaction)
        replacing = partial(self._plain_changes.replace, fact_id, wording)
        return (yield from self._edit_one("facts.replace", fact_id, replacing, wording.text))

    def delete(self, fact_id: UUID | str, take_back: TakeBack | None = None) -> Operation[bool]:
        """``take_back``: to be done to the fact's messages."""
        deleting = partial(self._plain_changes.delete, fact_id)
        id_ = as_fact_id(fact_id)
        if take_back is not None and id_ is not None:
            deleting = partial(self._delete_with_sources, id_, deleting, take_back)
        return self._edit_one("facts.delete", fact_id, deleting)

    def settle(self, fact_id: UUID | str, keep: Settlement) -> Operation[Fact | None]:
        settling = partial(self._plain_changes.settle, fact_id, keep)
        return self._edit_one("facts.settle", fact_id, settling)

    def clear(self) -> Operation[int]:
        """Delete all facts for good; returns how many were live."""
        clearing = partial(clear_facts, self.owner.shard_key, self.actor)
        return self.edit("facts.clear", clearing, lambda act, cleared: replace(act, count=cleared))

    def judge(self, fact_id: UUID | str, feedback: str | None) -> Operation[Fact | None]:
        feedback = yield from redact_feedback(feedback, self.redaction)
        judging = partial(self._plain_changes.judge, fact_id, feedback)
        return (yield from self._edit_one("facts.feedback", fact_id, judging, feedback))

    def put(self, fact_id: UUID | None, wording: Wording, feedback: str | None) -> Operation[Fact]:
        wording = yield from redact_wording(wording, self.redaction)
        feedback = yield from redact_feedback(feedback, self.redaction)
        return (yield from FactChanges.put(replace(self, redaction=None), fact_id, wording, feedback))

    def import_facts(self, facts: Sequence[ImportedFact]) -> Operation[FactsImported]:
        """Add facts of another system, each once."""
        facts = yield from redact_imported(facts, self.redaction)
        importing = self.edit(
            "facts.import",
            partial(import_facts, self.owner, facts),
            describe=lambda act, imported: replace(act, count=imported.added) if imported.added else None,
        )
        return (yield from importing)

    def _delete_with_sources(
        self, fact_id: UUID, deleting: Callable[[], Operation[bool]], take_back: TakeBack
    ) -> Operation[bool]:
        sources = yield from lock_sources(self.owner.shard_key, fact_id)
        is_gone = yield from deleting()
        if is_gone:
            yield from take_back(sources)
        return is_gone

    @property
    def _plain_changes(self) -> FactChanges:
        return FactChanges(self.owner, self.actor)

    def _edit_one(
        self,
        kind: str,
        fact_id: UUID | str,
        change: Callable[[], Operation[T]],
        text: str | None = None,
    ) -> Operation[T]:
        def change_version() -> Operation[T]:
            yield from lock_facts(self.owner.shard_key)
            fact = yield from get_fact(self.owner, fact_id)
            if fact is not None and fact.version != self.version:
                raise VersionError(
                    "The fact has been changed since; get it again, and repeat with its new version."
                )
            return (yield from change())

        return self.edit(kind, change if self.version is None else change_version, text=text)
