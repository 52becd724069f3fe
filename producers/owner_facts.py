"""The facts of an owner: listed, searched and edited, each operation offered sync and async."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.producers.execution import async_method, sync_method
from strandline.producers.fact_parts.capture_settings import CaptureSettings
from strandline.producers.fact_parts.lookups import FactLookups
from strandline.producers.fact_parts.optimizing import FactOptimizing
from strandline.producers.fact_parts.sources import FactSources
from strandline.producers.facts.capturing import CaptureLevel
from strandline.producers.facts.edit_operations import (
    Wording,
    checked_feedback,
)
from strandline.producers.facts.importing import FactsImported, ImportedFact
from strandline.producers.facts.listing import (
    Fact,
    FactFilter,
    FactPage,
    PageRequest,
    Sort,
    checked_limit,
    get_fact,
    list_facts,
)
from strandline.producers.search.facts import FoundFact, search_end, search_facts
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner


class OwnerFacts(CaptureSettings, FactOptimizing, FactSources, FactLookups):
    """The facts of one owner, over all sessions; get it from ``memory.facts``, or make a ``Facts``.

    Edits are recorded as events of the owner, and are seen by the next read.  They outlive every derivation:
    a deleted fact does not come back from earlier messages, and a corrected one stays corrected; a fact that
    a user states again later is new. An edit waits for a worker that is writing facts of this owner.
    ``actor`` names the person, and is stored with the event.  A redaction hook of the settings is applied to
    the texts of an edit.

    All methods raise InvalidMessageError for an argument that cannot be used, or that a redaction hook
    refuses, and DatabaseUnavailableError when Postgres cannot be reached; those that edit, RedactionError if
    a hook fails, and UnknownPipelineError before any worker has ever run.
    """

    @property
    def _whom(self) -> Owner:
        return self._owner

    @property
    def _capture_level(self) -> CaptureLevel:
        return CaptureLevel(self._owner.namespace, self._owner)

    @property
    def namespace(self) -> str:
        return self._owner.namespace

    @property
    def user_id(self) -> str | None:
        """The owner, or None if a session owns its facts itself."""
        return self._owner.user_id

    @sync_method
    def get(self, fact_id: UUID | str) -> Operation[Fact | None]:
        """One fact of this owner, even if it ended; None if no fact has this id."""
        return self._record_read("facts.read", get_fact(self._owner, fact_id))

    aget = async_method(get)

    @sync_method
    def list(
        self,
        *,
        limit: int = 100,
        offset: int = 0,
        sort: Sort = "newest",
        contains: str | None = None,
        topics: Sequence[str] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        with_invalidated: bool = False,
        first_n: int | None = None,
        last_n: int | None = None,
    ) -> Operation[FactPage]:
        """A page of the live facts; ``.total`` is the number of all of them.

        A page has fewer than ``limit`` if it ends with the fact that fills 4 MB (``.is_cut``); the next one
        begins at ``offset`` and the length of this one.

        Args:
            limit: maximum number of facts, up to 1,000; 0 returns only the total.
            offset: number of facts to skip.
            sort: ``"newest"`` (said last) first, ``"oldest"`` first, or the last ``"updated"`` first.
            contains: only facts whose text contains this, ignoring case, among the first 10,000.
            topics: only facts with one of these topics.
            agent_id, team_id: only facts that were added for this agent or team.
            with_invalidated: include facts that ended, or were condensed into another.
            first_n, last_n: instead of ``limit``, ``offset`` and ``sort``, the facts said first or last, so
                many of them, in the order in which they were said; 0 gives none.
        """
        listing = list_facts(
            self._owner,
            PageRequest.check(limit, offset, sort, contains, first_n, last_n),
            FactFilter.check(topics, agent_id, team_id, with_invalidated),
        )
        return self._recorder.read(
            Act.here("facts.read"), listing, lambda act, page: replace(act, count=len(page))
        )

    alist = async_method(list)

    @sync_method
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        topics: Sequence[str] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        first_n: int | None = None,
        last_n: int | None = None,
    ) -> Operation[Sequence[FoundFact]]:
        """The live facts that match ``query`` best, best first, by their words and their sources.

        If vectors are available and the query can be embedded, the meaning of the conversation that a fact
        came from counts as much as its words; otherwise only the words count.

        Args:
            query: words or a question; of a long text, only the end is used.
            limit: maximum number of facts, up to 1,000; they end with the one that fills 4 MB.
            topics, agent_id, team_id: as for ``list``.
            first_n, last_n: instead of ``limit``, of the facts that match, up to 1,000, those said first or
                last, so many of them, in the order in which they were said; 0 gives none.
        """
        filters = FactFilter.check(topics, agent_id, team_id)
        number, embed_query = checked_limit(limit), self._resources.embed_query
        if first_n is None and last_n is None:
            hits = search_facts(self._owner, query, number, filters, embed_query)
            return self._record_read("facts.search", hits)
        end = PageRequest.check(limit, first_n=first_n, last_n=last_n)
        end_hits = search_end(self._owner, query, end, filters, embed_query)
        return self._record_read("facts.search", end_hits)

    asearch = async_method(search)

    @sync_method
    def add(
        self,
        text: str,
        *,
        topics: Sequence[str] | None = None,
        about_date: date | None = None,
        input: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        actor: str | None = None,
    ) -> Operation[Fact]:
        """Add a fact by hand and return it; if a live fact has the same words, return that one.

        ``input`` is its source, up to 8,000 characters; ``text`` has at most 1,000.  If ``about_date`` is a
        datetime, its day counts.  The fact is not derived from any session, and stays when one is reset.
        """
        wording = Wording.check(
            text, topics=topics, about_date=about_date, input=input, agent_id=agent_id, team_id=team_id
        )
        return self._edits.add(wording, actor)

    aadd = async_method(add)

    @sync_method
    def replace(
        self,
        fact_id: UUID | str,
        text: str,
        *,
        topics: Sequence[str] | None = None,
        about_date: date | None = None,
        actor: str | None = None,
        if_version: str | None = None,
    ) -> Operation[Fact | None]:
        """Give a live fact other words and return it; None if this owner has no such live fact.

        Its history stays, and so do its topics and its day unless new ones are given. If another fact already
        has the new words, that one is returned, and this one is removed. The old words do not come back from
        earlier messages.  With ``if_version``, a fact's ``.version``, it is changed only if it is still so.

        Raises:
            VersionError: it was changed meanwhile; nothing was done.
        """
        wording = Wording.check(text, topics=topics, about_date=about_date)
        return self._edits.replace(fact_id, wording, actor, if_version)

    areplace = async_method(replace)

    @sync_method
    def delete(
        self, fact_id: UUID | str, *, actor: str | None = None, if_version: str | None = None
    ) -> Operation[bool]:
        """Delete a fact and its history for good; False if this owner has no such fact.

        The messages it came from stay in their log.
        """
        return self._edits.delete(fact_id, actor, if_version)

    adelete = async_method(delete)

    @sync_method
    def clear(self, *, actor: str | None = None) -> Operation[int]:
        """Delete all facts of this owner for good; return how many were live.

        Nothing said earlier comes back as a fact, not even from messages that workers have not read yet.
        """
        return self._edits.clear(actor)

    aclear = async_method(clear)

    @sync_method
    def feedback(
        self,
        fact_id: UUID | str,
        feedback: str | None,
        *,
        actor: str | None = None,
        if_version: str | None = None,
    ) -> Operation[Fact | None]:
        """Record people's opinion of a fact (None removes it); return None if this owner has no such fact."""
        judged = checked_feedback(feedback)
        return self._edits.judge(fact_id, judged, actor, if_version)

    afeedback = async_method(feedback)

    def import_facts(self, facts: Sequence[ImportedFact]) -> FactsImported:
        """Add up to 200 facts of another system, each once: one that was changed or deleted since stays so.

        They are people's facts, and have the times that they had there.
        """
        return self._runner.run(self._edits.import_facts(facts))
