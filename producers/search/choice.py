"""Choosing facts by a model: it sees a bounded list of facts, and names the helpful ones for a question.

No read does this, since a read waits for no text model; an application asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from strandline.pipelines.models.answers import parse_choice
from strandline.pipelines.models.contract import ChooseTask, ModelAnswer, NumberedFact
from strandline.producers.facts.listing import Fact, FactFilter, PageRequest, list_facts
from strandline.producers.model_calls import PaidCall, Payer, ask_model
from strandline.producers.search.facts import checked_query, search_facts
from strandline.producers.search.ranking import EmbedQuery
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner

MAX_CONSIDERED_FACTS = 500
# A model is shown no more text than this: facts of a usual length, all of them.
MAX_CONSIDERED_CHARACTERS = 60_000

AskModel = Callable[[ChooseTask], ModelAnswer]


class ChosenFacts(list[Fact]):
    """The facts that a model chose, the most helpful first.

    Attributes:
        considered: number of facts that it was shown.
        model: its name; None if it was not asked, because there was nothing to choose.
        input_tokens, output_tokens: as the provider counts them.
    """

    def __init__(
        self,
        facts: Iterable[Fact] = (),
        *,
        considered: int = 0,
        model: str | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        super().__init__(facts)
        self.considered = considered
        self.model = model
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """A question, the owner of the facts, and the model.

    Attributes:
        limit: maximum number of chosen facts.
        among: maximum number of facts shown to the model.
    """

    owner: Owner
    question: str
    limit: int
    among: int
    filters: FactFilter
    ask_model: AskModel
    payer: Payer
    embed_query: EmbedQuery


def choose_facts(request: ChoiceRequest) -> Operation[ChosenFacts]:
    """Ask the model, without holding a connection; facts gone since are left out.

    Raises:
        InvalidMessageError: the question is not text that can be sent.
        BudgetError: the namespace has used up its budget.
        ModelError: the model failed, or its answer cannot be used.
    """
    question = checked_query(request.question)
    if not question or not request.limit or not request.among:
        return ChosenFacts()
    facts = list(_within(MAX_CONSIDERED_CHARACTERS, (yield from _candidates(request, question))))
    if not facts:
        return ChosenFacts()
    shown = sorted(facts, key=lambda fact: (fact.said_at, fact.fact_id))
    numbered = tuple(NumberedFact(n, fact.text, fact.said_at) for n, fact in enumerate(shown, 1))
    make = partial(request.ask_model, ChooseTask(question, numbered, request.limit))
    characters = len(question) + sum(len(fact.text) for fact in shown)
    answer = yield from ask_model(request.payer, PaidCall("choose", "choose", make, characters))
    chosen = [shown[n - 1].fact_id for n in parse_choice(answer.text, len(shown))][: request.limit]
    return ChosenFacts(
        (yield from _as_they_are(request, chosen)),
        considered=len(shown),
        model=answer.model,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
    )


def _candidates(request: ChoiceRequest, question: str) -> Operation[list[Fact]]:
    newest = yield from list_facts(request.owner, PageRequest(request.among), request.filters)
    if len(newest) == newest.total:
        return list(newest)
    half = (request.among + 1) // 2
    matches = yield from search_facts(request.owner, question, half, request.filters, request.embed_query)
    facts = {fact.fact_id: fact for fact in (*(match.fact for match in matches), *newest)}
    return list(facts.values())[: request.among]


def _within(characters: int, facts: Iterable[Fact]) -> Iterator[Fact]:
    for fact in facts:
        characters -= len(fact.text)
        if characters < 0:
            return
        yield fact


def _as_they_are(request: ChoiceRequest, fact_ids: Sequence[UUID]) -> Operation[list[Fact]]:
    if not fact_ids:
        return []
    page = PageRequest(len(fact_ids), sort="given")
    return (yield from list_facts(request.owner, page, request.filters, fact_ids))
