"""Reads of several pages, as if they were one: begun again if the log was corrected or reset meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import LogState
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message

# A log that is corrected so often while it is read is shown as the last attempt found it.
MAX_ATTEMPTS = 20


def read_unchanged(
    identity: SessionIdentity, read: Callable[[], Operation[list[Message]]]
) -> Operation[list[Message]]:
    """The messages that ``read`` finds, page by page, none of them of another state than the others.

    Puts and pops change only the end of a log, so they do not count.
    """
    messages: list[Message] = []
    for _attempt in range(MAX_ATTEMPTS):
        before = yield from fetch(LogState(**identity.keys))
        messages = yield from read()
        if before == (yield from fetch(LogState(**identity.keys))):
            break
    return messages
