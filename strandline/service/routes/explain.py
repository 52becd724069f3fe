"""Why something was remembered, or not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from strandline.pipelines.inspect.explain_message import explain_fact_alone, explain_message_alone
from strandline.schemas.wire import acts
from strandline.schemas.wire.explanations import (
    AnyFactExplanation,
    FactExplanation,
    MessageExplanation,
    RemovedFactExplanation,
)
from strandline.service.answering import Routes
from strandline.service.params import FactId, MessageId
from strandline.service.route import Call

routes = Routes("explain")


@routes.answer(acts.EXPLAIN_MESSAGE, "read", "others", ("facts", "names", "operators"))
async def explain_message(
    call: Call,
    message_id: MessageId,
    session_id: Annotated[
        str | None, Field(min_length=1, max_length=512, description="Its session, if several use the id.")
    ] = None,
) -> MessageExplanation:
    """Follow a message to the memory derived from it: where it is, and what each stage made of it."""
    return await call.block(
        lambda database: explain_message_alone(
            database,
            message_id,
            namespace=call.caller.tenant,
            session_id=session_id,
            **call.caller.whose,
        )
    )


@routes.answer(
    acts.EXPLAIN_FACT, "read", "others", ("messages", "facts", "names", "operators"), AnyFactExplanation
)
async def explain_fact(call: Call, fact_id: FactId) -> FactExplanation | RemovedFactExplanation:
    """Follow a fact back to its messages; of a removed fact only people's operations."""
    return await call.block(
        lambda database: explain_fact_alone(
            database,
            str(fact_id),
            namespace=call.caller.tenant,
            **call.caller.whose,
        )
    )
