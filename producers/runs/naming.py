"""The ids of a run's messages, by which a repeated call is known to be the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import uuid5

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.runs.given import system_id
from strandline.producers.writing.own_memory import without_own_memory
from strandline.producers.writing.validate import PutLimits, prepare, redact_message
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import HEAD_ROLES, Message


def name_messages(
    identity: SessionIdentity,
    run_id: str,
    sources: Sequence[object],
    limits: PutLimits,
    redaction: Redaction | None = None,
) -> Iterator[Message]:
    """The messages of a run as they may be stored, with ids, by which a repeated call is the same.

    A system message without an id gets one of its text, so that it is stored once, whichever runs bring it.

    Raises:
        InvalidMessageError: one of them is not a message, or a redaction hook refuses it.
        RedactionError: a redaction hook failed.
    """
    for index, source in enumerate(sources):
        where = f"messages[{index}]"
        message = without_own_memory(Message.from_openai(source, where=where))
        if message is None:
            continue
        if redaction is not None:
            message = redact_message(message, where, limits, redaction)
        if message.id is not None:
            yield message
        elif message.role in HEAD_ROLES:
            yield replace(message, id=system_id(identity, prepare(message, where, limits).digest))
        else:
            name = f"run {len(run_id)} {run_id} {index}"
            yield replace(message, id=uuid5(identity.session_key, name).hex)
