"""Model calls that a producer makes for a caller who waits: under the namespace's budget, and in the ledger.

Workers record a call with the batch that it is made for.  These have no batch, so the process that makes one
counts it before, and records it before the answer is used, since it was paid for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal
from uuid import UUID, uuid4

from strandline.pipelines.models.contract import ModelAnswer, TaskName
from strandline.schemas.errors import BudgetError, ConfigurationError, TransientModelError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.prices import ModelPrice, cost_usd
from strandline.schemas.queries.work.limits import AdmitCall, RecordCall, SettleCall
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import Owner, SessionIdentity

# A call's purpose; in the ledger it stands in the place of a worker's stage.
Purpose = Literal["choose", "optimize", "summarize_last"]

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Payer:
    """For whom a model is asked: the namespace whose budget counts the call, the owner, and the prices."""

    namespace: str
    shard_key: UUID
    prices: tuple[ModelPrice, ...]


def payer_of(owner: Owner | SessionIdentity, settings: Settings) -> Payer:
    """The payer of calls for an owner, at the prices of this process."""
    return Payer(owner.namespace, owner.shard_key, settings.model_prices)


@dataclass(frozen=True, slots=True)
class PaidCall:
    """A call that is to be made, of about so many characters; the ledger has it under ``batch_id``."""

    purpose: Purpose
    step: TaskName
    make: Callable[[], ModelAnswer]
    characters: int
    batch_id: UUID | None = None


def ask_model(payer: Payer, call: PaidCall) -> Operation[ModelAnswer]:
    """Make a call, without holding a connection, and return its answer, which is recorded.

    Raises:
        BudgetError: the namespace has used up its budget, or workers hold the rest; no call was made.
        ModelError: the model failed.  The call counts for the budget, unless the provider refused it unread.
        ConfigurationError: this process can reach no such model.
    """
    tokens = call.characters // _CHARACTERS_PER_TOKEN + 1
    day = yield from _admit(payer, tokens)
    began = time.monotonic()
    try:
        answer: ModelAnswer = yield Run(call.make)
    except (ConfigurationError, TransientModelError) as error:
        if isinstance(error, ConfigurationError) or error.is_unpaid:
            yield from _settle(payer, day, calls=-1, tokens=-tokens, usd=0.0)
        raise
    seconds = time.monotonic() - began
    size = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
    cost = cost_usd(payer.prices, answer.model, **size)
    yield from fetch(
        RecordCall(
            shard_key=payer.shard_key,
            call_id=uuid4(),
            purpose=call.purpose,
            batch_id=call.batch_id or uuid4(),
            step=call.step,
            model=answer.model,
            prompt_hash=answer.prompt_hash,
            **size,
            seconds=seconds,
            cost_usd=cost,
        )
    )
    yield from _settle(payer, day, calls=0, tokens=sum(size.values()) - tokens, usd=float(cost or 0))
    return answer


def _admit(payer: Payer, tokens: int) -> Operation[date | None]:
    """The day whose budget counts the call; None if the namespace has no budget."""
    rows = yield from fetch(AdmitCall(namespace=payer.namespace, tokens=tokens))
    if rows and rows[0].day is None:
        raise BudgetError(rows[0].waits_for or "", rows[0].seconds)
    return rows[0].day if rows else None


def _settle(payer: Payer, day: date | None, *, calls: int, tokens: int, usd: float) -> Operation[None]:
    if day is not None:
        yield from fetch(SettleCall(namespace=payer.namespace, day=day, calls=calls, tokens=tokens, usd=usd))
