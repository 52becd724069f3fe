"""What is looked up about an owner's facts beside lists and searches: a model's choice, topics, figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.arguments import check_count
from strandline.producers.execution import OperationRunner, Resources, async_method, sync_method
from strandline.producers.fact_parts.recorded import Recorded
from strandline.producers.facts.figures import (
    MAX_TOPICS_LISTED,
    OwnerFigures,
    TopicCount,
    owner_figures,
    owner_topics,
)
from strandline.producers.facts.listing import FactFilter, checked_limit
from strandline.producers.model_calls import payer_of
from strandline.producers.search.choice import (
    MAX_CONSIDERED_FACTS,
    ChoiceRequest,
    ChosenFacts,
    choose_facts,
)
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner, check_name


class FactLookups(Recorded):
    """The methods of ``OwnerFacts`` that neither list nor edit."""

    def __init__(self, resources: Resources, owner: Owner, redaction: Redaction | None = None) -> None:
        self._resources = resources
        self._redaction = resources.redaction if redaction is None else redaction
        self._owner = owner
        self._runner = OperationRunner(resources)

    @sync_method
    def choose(
        self,
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
        never does.  The result says what it cost; the ledger and the namespace's budget count it.

        Args:
            question: a question or request; of a long text, only the end is used.
            limit: maximum number of chosen facts, up to 1,000; with 0 the model is not asked.
            among: maximum number of facts that the model is shown, up to 500: those that ``search`` finds,
                and the newest.
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
                owner=self._owner,
                question=question,
                limit=checked_limit(limit),
                among=check_count("among", among, most=MAX_CONSIDERED_FACTS),
                filters=FactFilter.check(topics, agent_id, team_id),
                ask_model=partial(self._resources.ask_model, model=name),
                payer=payer_of(self._owner, self._resources.settings),
                embed_query=self._resources.embed_query,
            )
        )
        return self._record_read("facts.search", choosing)

    achoose = async_method(choose)

    @sync_method
    def topics(self, *, limit: int = 100) -> Operation[Sequence[TopicCount]]:
        """The topics of the live facts, the most frequent first, each with its number of facts.

        ``limit`` is the maximum number of topics, up to 1,000.
        """
        topics = owner_topics(self._owner, check_count("limit", limit, most=MAX_TOPICS_LISTED))
        return self._record_read("facts.read", topics)

    atopics = async_method(topics)

    @sync_method
    def figures(self) -> Operation[OwnerFigures]:
        """How many facts, sessions, messages and tokens there are of this owner, and since when."""
        return self._record_read("facts.read", owner_figures(self._owner))

    afigures = async_method(figures)
