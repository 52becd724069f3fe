"""Operations on an owner's facts: listed, searched, edited, chosen by a model, said in fewer sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import date, datetime
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.arguments import check_count, check_flag
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.execution import Resources
from strandline.producers.facts import figures as counting
from strandline.producers.facts import optimizing
from strandline.producers.facts.capturing import CaptureLevel
from strandline.producers.facts.edit_operations import Wording, checked_feedback, checked_settlement
from strandline.producers.facts.edits import FactEdits
from strandline.producers.facts.figures import MAX_TOPICS_LISTED, OwnerFigures, TopicCount
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
from strandline.producers.facts.optimizing import Optimization
from strandline.producers.model_calls import payer_of
from strandline.producers.search.choice import MAX_CONSIDERED_FACTS, ChoiceRequest, ChosenFacts, choose_facts
from strandline.producers.search.facts import FoundFact, search_end, search_facts
from strandline.producers.tokens import text_counter
from strandline.producers.writing.correcting.correct import Correcting, Replacement
from strandline.producers.writing.validate import PutLimits, PutRules
from strandline.schemas.errors import InvalidMessageError, NotFoundError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.values.doubts import Settlement
from strandline.schemas.values.identity import Owner, check_name, identify_session
from strandline.schemas.values.message import DELETED_CONTENT
from strandline.schemas.values.same_named import make_from

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FactOwner:
    """The owner of facts, the resources of the process, and the hook that is applied to texts of edits."""

    resources: Resources
    owner: Owner
    redaction: Redaction | None

    @property
    def capture_level(self) -> CaptureLevel:
        return CaptureLevel(self.owner.namespace, self.owner)

    @property
    def recorder(self) -> Recorder:
        """Runs operations on these facts with the compliance hook and the audit trail."""
        return Recorder(self.owner, self.resources.compliance, self.resources.audit_levels)

    def edits(self, actor: str | None = None, version: str | None = None) -> FactEdits:
        """Edits that ``actor`` makes, of a fact of this version alone."""
        return FactEdits(self.owner, actor, self.recorder, self.redaction, version)


def get(facts: FactOwner, fact_id: UUID | str) -> Operation[Fact | None]:
    """One fact of this owner, even if it ended; None if no fact has this id."""
    return facts.recorder.record_read("facts.read", get_fact(facts.owner, fact_id))


def list(
    facts: FactOwner,
    *,
    limit: int = 100,
    offset: int = 0,
    sort: Sort = "newest",
    contains: str | None = None,
    topics: Sequence[str] | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    with_invalidated: bool = False,
    doubtful: bool = False,
    first_n: int | None = None,
    last_n: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
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
        doubtful: only facts that may contradict another one; ``settle`` decides between them.
        first_n, last_n: instead of ``limit``, ``offset`` and ``sort``, the facts said first or last, so
            many of them, in the order in which they were said; 0 gives none.
        since, until: only facts last said not before and not after; with a time zone.
    """
    listing = list_facts(
        facts.owner,
        PageRequest.check(limit, offset, sort, contains, first_n, last_n),
        FactFilter.check(topics, agent_id, team_id, with_invalidated, doubtful, since, until),
    )
    return facts.recorder.read(
        Act.here("facts.read"), listing, lambda act, page: changed(act, count=len(page))
    )


def search(
    facts: FactOwner,
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

    If vectors are available and the query can be embedded, the meaning of the conversation that a fact came
    from counts as much as its words; otherwise only the words count.

    Args:
        query: words or a question; of a long text, only the end is used.
        limit: maximum number of facts, up to 1,000; they end with the fact that fills 4 MB.
        topics, agent_id, team_id: as for ``list``.
        first_n, last_n: instead of ``limit``, so many of the up to 1,000 matching facts, said first or last,
            in the order of saying; 0 gives none.
    """
    filters = FactFilter.check(topics, agent_id, team_id)
    number, embed_query = checked_limit(limit), facts.resources.embed_query
    if first_n is None and last_n is None:
        hits = search_facts(facts.owner, query, number, filters, embed_query)
        return facts.recorder.record_read("facts.search", hits)
    end = PageRequest.check(limit, first_n=first_n, last_n=last_n)
    end_hits = search_end(facts.owner, query, end, filters, embed_query)
    return facts.recorder.record_read("facts.search", end_hits)


def add(
    facts: FactOwner,
    text: str,
    *,
    topics: Sequence[str] | None = None,
    about_date: date | None = None,
    input: str | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    as_is: bool = False,
    actor: str | None = None,
) -> Operation[Fact]:
    """Add a fact by hand and return it; if a live fact says the same, return that one.

    If its words may contradict a live fact, it is doubtful, and its ``doubt`` names that fact: ``settle``
    decides between them.  The fact is not derived from any session, and stays when one is reset.

    Args:
        text: at most 1,000 characters.
        about_date: of a datetime its day counts.
        input: its source, up to 8,000 characters.
        as_is: do not compare it with other facts, but for their very words.
    """
    wording = Wording.check(
        text, topics=topics, about_date=about_date, input=input, agent_id=agent_id, team_id=team_id
    )
    return facts.edits(actor).add(wording, as_is=check_flag("as_is", as_is))


def replace(
    facts: FactOwner,
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
        VersionError: it was changed since; nothing was done.
    """
    wording = Wording.check(text, topics=topics, about_date=about_date)
    return facts.edits(actor, if_version).replace(fact_id, wording)


def delete(
    facts: FactOwner,
    fact_id: UUID | str,
    *,
    actor: str | None = None,
    if_version: str | None = None,
    with_messages: bool = False,
) -> Operation[bool]:
    """Delete a fact and its history for good; False if this owner has no such fact.

    The messages it came from stay in their log.  With ``with_messages`` each of them, in all chats and forks,
    has the content ``[deleted]`` instead, as by ``replace``: everything derived from them goes in the same
    transaction, other facts without other sources as well.
    """
    take_back = partial(_take_back, facts, actor) if check_flag("with_messages", with_messages) else None
    return facts.edits(actor, if_version).delete(fact_id, take_back)


def _take_back(
    facts: FactOwner, actor: str | None, sources: Mapping[UUID, Collection[int]]
) -> Operation[None]:
    owner, settings = facts.owner, facts.resources.settings
    rules = PutRules(make_from(PutLimits, settings))
    for row in (yield from fetch(SessionNames(shard_key=owner.shard_key, session_keys=sorted(sources)))):
        identity = identify_session(owner.namespace, row.session_id, owner.user_id)
        for seq in sorted(sources[row.session_key]):
            replacement = Replacement(seq, DELETED_CONTENT, rules)
            correcting = Correcting(identity, uuid4(), Act.here("replace", actor=actor))
            try:
                yield from correcting.replace_content(replacement)
            except NotFoundError:
                continue  # retention or another correction was first


def settle(
    facts: FactOwner,
    fact_id: UUID | str,
    keep: Settlement,
    *,
    actor: str | None = None,
    if_version: str | None = None,
) -> Operation[Fact | None]:
    """Decide between a doubtful fact and the fact of its ``doubt``; return the kept one, None if unknown.

    The kept fact holds in every derivation, as a person's wording; the other is removed for good.

    Args:
        fact_id: the doubtful fact's.
        keep: ``"both"`` (they do not contradict each other; the doubtful one is returned), ``"new"`` (the
            doubtful one alone) or ``"old"`` (the other alone).

    Raises:
        ConflictError: the fact is not doubtful.
        VersionError: it was changed since ``if_version``; nothing was done.
    """
    return facts.edits(actor, if_version).settle(fact_id, checked_settlement(keep))


def clear(facts: FactOwner, *, actor: str | None = None) -> Operation[int]:
    """Delete all facts of this owner for good; return how many were live.

    Nothing said earlier comes back as a fact, not even from messages that workers have not read yet.
    """
    return facts.edits(actor).clear()


def feedback(
    facts: FactOwner,
    fact_id: UUID | str,
    feedback: str | None,
    *,
    actor: str | None = None,
    if_version: str | None = None,
) -> Operation[Fact | None]:
    """Record people's opinion of a fact (None removes it); return None if this owner has no such fact."""
    return facts.edits(actor, if_version).judge(fact_id, checked_feedback(feedback))


def choose(
    facts: FactOwner,
    question: str,
    *,
    limit: int = 10,
    among: int = 200,
    topics: Sequence[str] | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    model: str | None = None,
) -> Operation[ChosenFacts]:
    """Let a model choose the live facts that help with ``question``, the most helpful first.

    This process calls the model that ``STRANDLINE_FACTS_MODEL`` names, once, and waits for it; a read
    never does.  The result has its cost; the ledger and the namespace's budget count it.

    Args:
        question: a question or request; of a long text, only the end is used.
        limit: maximum number of chosen facts, up to 1,000; with 0 the model is not asked.
        among: maximum number of facts shown to the model, up to 500: the hits of ``search``, and the newest.
        topics, agent_id, team_id: as for ``list``.
        model: another model of the same server.

    Raises:
        ModelError: the model does not answer, or not in the form asked for; or the namespace has used up
            its budget, and the model was not asked.
        ConfigurationError: no model is configured, or many have been named.
    """
    name = None if model is None else check_name("model", model)
    choosing = choose_facts(
        ChoiceRequest(
            owner=facts.owner,
            question=question,
            limit=checked_limit(limit),
            among=check_count("among", among, most=MAX_CONSIDERED_FACTS),
            filters=FactFilter.check(topics, agent_id, team_id),
            ask_model=partial(facts.resources.ask_model, model=name),
            payer=payer_of(facts.owner, facts.resources.settings),
            embed_query=facts.resources.embed_query,
        )
    )
    return facts.recorder.record_read("facts.search", choosing)


def topics(facts: FactOwner, *, limit: int = 100) -> Operation[Sequence[TopicCount]]:
    """The topics of the live facts, the most frequent first, each with its number of facts.

    ``limit`` is the maximum number of topics, up to 1,000.
    """
    topics = counting.owner_topics(facts.owner, check_count("limit", limit, most=MAX_TOPICS_LISTED))
    return facts.recorder.record_read("facts.read", topics)


def figures(facts: FactOwner) -> Operation[OwnerFigures]:
    """How many facts, sessions, messages and tokens there are of this owner, and since when."""
    return facts.recorder.record_read("facts.read", counting.owner_figures(facts.owner))


def optimize(facts: FactOwner) -> Operation[Optimization]:
    """Propose to say the facts in fewer sentences, with the tokens before and after; changes nothing.

    This process asks the model of the derivation that serves, once, and waits for its answer.  At most 100
    facts are shown, the most similar ones.  Facts that people worded or judged stay. The ledger and the
    namespace's budget count the call.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
        ModelError: the model failed, or its answer would lose facts; or the namespace has used up its
            budget, and the model was not asked.
    """
    proposing = optimizing.propose_optimization(
        payer_of(facts.owner, facts.resources.settings),
        facts.resources.build_facts_model,
        text_counter(None),
    )
    return facts.recorder.record_read("facts.read", proposing)


def apply_optimization(facts: FactOwner, optimization: Optimization) -> Operation[None]:
    """Carry out a proposal of ``optimize``, all of it or nothing.

    The parts stay on record, and a reset of their session takes a sentence apart again. A new derivation
    begins with the parts.

    Raises:
        ConflictError: a fact was added, changed or removed since the proposal; nothing was changed.
        InvalidMessageError: the proposal is of another owner.
    """
    if not isinstance(optimization, Optimization):
        raise InvalidMessageError("optimization", "must be what optimize() returned")
    if optimization.keys["shard_key"] != facts.owner.shard_key:
        raise InvalidMessageError("optimization", "is of another owner's facts")
    return facts.edits().edit(
        "facts.optimize",
        partial(optimizing.apply_optimization, optimization),
        describe=lambda act, _done: changed(act, count=len(optimization.merged)),
        text="\n".join(one.text for one in optimization.merged),
    )
