"""Why something was remembered, or not."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from strandline.pipelines.inspect.explain_message import explain_fact_alone, explain_message_alone
from strandline.schemas.wire.explanations import (
    AnyFactExplanation,
    FactExplanation,
    MessageExplanation,
    RemovedFactExplanation,
)
from strandline.service.access import Access
from strandline.service.params import FactId, MessageId, make_router
from strandline.service.route import call_of

router = make_router()


@router.get("/v1/explain/messages/{message_id}", tags=["explain"])
@Access("read", "others", ("facts", "names", "operators"), takes_user=True)
async def explain_message(
    request: Request,
    message_id: MessageId,
    session_id: Annotated[
        str | None, Query(min_length=1, max_length=512, description="Its session, if several use the id.")
    ] = None,
) -> MessageExplanation:
    """Follow a message to the memory derived from it: where it is, and what each stage made of it."""
    call = call_of(request)
    return await call.block(
        lambda database: explain_message_alone(
            database,
            message_id,
            namespace=call.caller.tenant,
            session_id=session_id,
            **call.caller.whose,
        )
    )


@router.get("/v1/explain/facts/{fact_id:uuid}", tags=["explain"], response_model=AnyFactExplanation)
@Access("read", "others", ("messages", "facts", "names", "operators"), takes_user=True)
async def explain_fact(request: Request, fact_id: FactId) -> FactExplanation | RemovedFactExplanation:
    """Follow a fact back to its messages; of a removed fact only people's operations."""
    call = call_of(request)
    return await call.block(
        lambda database: explain_fact_alone(
            database,
            str(fact_id),
            namespace=call.caller.tenant,
            **call.caller.whose,
        )
    )
