"""The lines just before a batch, which tell extract who and what its messages speak of.

A flush cuts wherever the window crosses its mark: the question may be in one event, and "he said yes" in the
next.  A batch names these lines when it is made (``begin_batch_v1``), so that a replay sees the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.transcript import full_text, shown_name
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.work.lanes import ContextMessages
from strandline.schemas.values.message import Message, by_local_clock, read_rows


def load_context(fetcher: Fetcher, batch: Batch, max_tokens: int) -> tuple[TranscriptLine, ...]:
    """The lines before a batch's first event, oldest first, numbered up to 0: no answer can cite them.

    ``max_tokens`` is what the recipe allows (0: none); the oldest line is cut at its beginning if the lines
    hold more.
    """
    if not max_tokens:
        return ()
    rows = fetcher.fetch(ContextMessages(shard_key=batch.lane.shard_key, batch_id=batch.batch_id))
    messages = [
        by_local_clock(message, row.time_zone) for row, message in zip(rows, read_rows(rows), strict=True)
    ]
    shown = [(message, text) for message, text in _fit(messages, max_tokens) if text.strip()]
    return tuple(
        TranscriptLine(1 - place, message.role, shown_name(message), text, message.created_at)
        for place, (message, text) in zip(range(len(shown), 0, -1), reversed(shown), strict=True)
        if message.created_at is not None
    )


def _fit(messages: Sequence[Message], max_tokens: int) -> Iterator[tuple[Message, str]]:
    """Each message with the text that there is room for, newest first."""
    room = max_tokens
    for message in reversed(messages):
        if room <= 0:
            return
        yield message, _cut_beginning(full_text(message), message.tokens or 0, room)
        room -= message.tokens or 0


def _cut_beginning(text: str, tokens: int, max_tokens: int) -> str:
    """The end of a text of so many tokens, as much of it as ``max_tokens`` are."""
    if tokens <= max_tokens:
        return text
    kept = len(text) * max_tokens // tokens
    return f"…{text[len(text) - kept :]}"
