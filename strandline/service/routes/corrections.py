"""Corrections of a session's log: its end taken back, a message given other content."""

from __future__ import annotations

from strandline.producers.memory import SessionMemory
from strandline.schemas.wire import acts
from strandline.schemas.wire.messages import CorrectionOut, MessageOut, ReplaceMessage, RewindRequest
from strandline.schemas.wire.sessions import PopOut
from strandline.service.answering import Routes
from strandline.service.forms import message_form

routes = Routes("corrections")


@routes.answer(acts.POP_MESSAGE, "write", "writes", ("messages",))
async def pop_message(memory: SessionMemory, connection: object | None) -> PopOut:
    """Remove the newest message and give it back; null if none is left.  Its number is not used again."""
    message = await memory.apop(connection=connection)
    return PopOut(message=None if message is None else MessageOut.model_validate(message_form(message)))


routes.pass_on(
    acts.REWIND_SESSION, "write", "writes", (), CorrectionOut, to=SessionMemory.rewind, body=RewindRequest,
    about="Take back every message from a number on, with all derivations; no copy is kept.",
)  # fmt: skip
routes.pass_on(
    acts.REPLACE_CONTENT, "write", "writes", (), CorrectionOut, to=SessionMemory.replace, body=ReplaceMessage,
    about="Give a message other content at the same place; memory of the old content is derived again.",
)  # fmt: skip
