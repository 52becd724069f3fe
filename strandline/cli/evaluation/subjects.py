"""Finds whose memory a question asks, in which generations, and adds up what its embeddings cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from strandline.cli.evaluation.questions import LineProblem, Question
from strandline.memory import Memory
from strandline.pipelines.generations.registry import find_kept
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import session_state
from strandline.pipelines.models.local.text_model import is_local_embedder
from strandline.producers.blocks.resolve import default_blocks, owner_wide, stored_blocks
from strandline.producers.evaluation.asking import Answer, Subject
from strandline.producers.search.ranking import Vectors
from strandline.producers.tokens import count_default
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, NotFoundError
from strandline.schemas.prices import cost_usd
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import VECTORS
from strandline.wiring.runtime import Runtime


@dataclass(slots=True)
class Embeddings:
    """Embeds queries, and counts; ``usd`` None: a model has no price."""

    runtime: Runtime
    calls: int = 0
    usd: Decimal | None = Decimal(0)

    def embed(self, text: str, config: Mapping[str, Any]) -> str | None:
        vector = self.runtime.embed_query(text, config)
        if vector:
            self.calls += 1
            model, prices = str(config.get("embedder")), self.runtime.settings.model_prices
            price = cost_usd(prices, model, input_tokens=count_default(text), output_tokens=0)
            price = Decimal(0) if is_local_embedder(model) else price
            self.usd = None if price is None or self.usd is None else self.usd + price
        return vector


def vectors_of(runtime: Runtime, generation: int) -> Vectors:
    """The search parameters of a generation of vectors.

    Raises:
        UnknownReplayError: it does not exist, or it was pruned.
        ConfigurationError: it is of another pipeline.
    """
    kept = find_kept(runtime.database(), generation)
    if kept.pipeline == VECTORS:
        return Vectors(generation, kept.recipe.config)
    raise ConfigurationError(
        f"Generation {generation} is of {kept.pipeline}, and messages are searched by vectors;"
        " `strandline generations list --pipeline vectors` lists those to choose from."
    )


@dataclass(slots=True)
class Subjects:
    """Whose memories the questions ask; each is found once."""

    runtime: Runtime
    token_limit: int | None
    known: dict[tuple[str, str | None, str | None], Subject] = field(default_factory=dict)

    def find(self, line: int, asked: Question) -> tuple[Subject, Answer] | LineProblem:
        """Whom a question asks and what answers it, or why it cannot be asked."""
        place = asked.namespace or "", asked.session_id, asked.user_id
        name = "user_id" if asked.session_id is None else "session_id"
        try:
            subject = self.known.get(place) or self.known.setdefault(place, self._make(*place))
        except (NotFoundError, InvalidMessageError) as error:
            return LineProblem(line=line, field=name, reason=str(error))
        answer = Answer.of(subject, asked.evidence, asked.expected)
        if missing := [quote(one) for one in asked.evidence if one not in answer.messages]:
            reason = f"no message that may be read has the id {', '.join(missing)}"
            return LineProblem(line=line, field="evidence", reason=reason)
        return subject, answer

    def _make(self, namespace: str, session_id: str | None, user_id: str | None) -> Subject:
        database, runtime = self.runtime.database(), self.runtime
        named: dict[str, Any] = {"user_id": user_id, "namespace": namespace}
        if session_id is None and user_id is None:
            raise NotFoundError("neither a session nor a user is named, here or by --session or --user")
        if session_id is None:
            check_known(database, **named)
            memory = Memory.from_defaults(
                token_limit=self.token_limit, memory_blocks=owner_wide(default_blocks()), **named
            )
            identity = identify_session(namespace, memory.session_id, user_id)
        else:
            identity = find_session(database, session_id, **named)
            policy = session_state(database, identity).policy
            memory = Memory.from_defaults(
                session_id,
                token_limit=self.token_limit or policy.token_limit,
                memory_blocks=stored_blocks(policy.pipelines, policy.max_facts),
                **named,
            )
        scope: Any = "owner" if session_id is None else "session"
        blocks, limit = memory.memory_blocks, memory.token_limit
        subject = Subject(runtime, identity, scope, blocks=blocks, token_limit=limit)
        subject.read("")  # so that no generation pays for the first read of a session
        return subject
