"""Requests that come again: a put's ids follow from its Idempotency-Key, other responses are kept for a day.

(The header is a convention; its draft as a standard has expired.)
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid5

from pydantic import BaseModel
from starlette.responses import Response

from strandline.pipelines.admission import admit
from strandline.producers.writing.validate import random_id
from strandline.schemas.queries.application.service import BeginKeptResponse, FindKeptResponse, KeepResponse
from strandline.schemas.values.identity import kept_request_key
from strandline.schemas.wire.base import REPLAYED_HEADER
from strandline.service.forms import json_response
from strandline.service.gate.problems import CONFLICT, KEY_REUSED, ProblemError
from strandline.service.route import Call

# Of a request that is repeated once its response was forgotten, or its day has ended.
DONE_BEFORE = "This request was done before, and its answer is no longer kept; look at what is stored now."

_PUTS = UUID("5f1b1d4e-7f0c-5a53-9c39-0b2a1c4f8d11")

# Does the work of a request, in a transaction on this connection (None: in its own), and returns its answer.
Work = Callable[[object | None], Awaitable[BaseModel]]


def message_id(call: Call, index: int) -> str:
    """The id of a put's message that has none: the same for the same Idempotency-Key and place."""
    if call.idempotency_key is None:
        return random_id()
    return str(uuid5(_PUTS, f"{index}:{call.idempotency_key}"))


async def once(
    call: Call, owner_key: UUID, work: Work, *, status: int = 200, content_of: UUID | None = None
) -> Response:
    """Answer a request once for each Idempotency-Key: the effect and its response are in one transaction.

    Args:
        content_of: the key of the session whose messages are in the response; it is forgotten with them.
            The row is that session's, so none is kept behind its fence.

    Raises:
        ErasedError: the owner, or the session that the response is of, was erased.
        ProblemError: the key was used for another request to the same route.
    """
    key = call.idempotency_key
    if key is None:
        answer = await work(None)
        return json_response(answer.model_dump(mode="json"), status)
    request_key = kept_request_key(call.caller.tenant, call.route, key)
    begin = BeginKeptResponse(
        shard_key=owner_key, request_key=request_key, session_key=content_of, request_digest=call.fingerprint
    )
    database = await call.service.resources.async_database()
    async with database.transaction() as transaction:
        await transaction.run(admit(owner_key, content_of))
        # Another request with this key waits here until the transaction ends.
        if await transaction.fetch(begin):
            body = (await work(transaction.connection)).model_dump(mode="json")
            keep = KeepResponse(
                shard_key=owner_key, request_key=request_key, status=status, body=json.dumps(body)
            )
            await transaction.fetch(keep)
            return json_response(body, status)
    rows = await database.fetch(FindKeptResponse(shard_key=owner_key, request_key=request_key))
    if rows and rows[0].request_digest != call.fingerprint:
        raise ProblemError(KEY_REUSED)
    if not rows or rows[0].body is None:
        # Its day ended between the two looks, or an erasure removed its answer since.
        raise ProblemError(CONFLICT, detail=DONE_BEFORE)
    return json_response(json.loads(rows[0].body), rows[0].status, {REPLAYED_HEADER: "true"})
