"""What a run brings when it comes again, where a person has corrected what it brought before.

A person who replaces a message of a run, or takes one back, knows nothing of runs.  A framework that adds the
run again, in a retry or because the run goes on, knows nothing of the person.  So each run keeps the digests
of its messages as they were given: a message that is given as before stands as the person left it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid5

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.writing.validate import (
    PreparedMessage,
    PutLimits,
    prepare,
    redact_message,
    without_own_memory,
)
from strandline.schemas.queries.conversation.runs import RunRowsRow
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import HEAD_ROLES, Message, read_rows

# The form in which a digest is recorded: keyed where the owner's content is sealed; of a keyed one, itself.
Key = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class GivenRun:
    """The messages of a run as they are to stand, beside what was given.

    Attributes:
        messages: with the other content that a person gave them, and without those that one took back.
        digests: of each of them, as it was given.
        taken: numbers of messages that a person took back, each with the digest that was given.
    """

    messages: tuple[PreparedMessage, ...]
    digests: tuple[bytes, ...]
    taken: tuple[tuple[int, bytes], ...] = ()

    def seqs_with_taken(self, seqs: Sequence[int]) -> list[int]:
        """The numbers to record of the run, those that were taken back last."""
        return [*seqs, *(seq for seq, _digest in self.taken)]

    def digests_with_taken(self) -> list[bytes]:
        """The digests to record, in the same order."""
        return [*self.digests, *(digest for _seq, digest in self.taken)]


def given_anew(messages: Sequence[PreparedMessage], key: Key) -> GivenRun:
    """A run of which nothing was brought before."""
    return GivenRun(tuple(messages), tuple(key(message.digest) for message in messages))


def given_again(
    messages: Sequence[PreparedMessage],
    seqs: Sequence[int],
    digests: Sequence[bytes],
    rows: Mapping[int, RunRowsRow],
    key: Key,
) -> GivenRun:
    """A run that is known, as it is to stand; one of which nothing is left is as new.

    Args:
        seqs, digests: the numbers of its messages as they were recorded, and what was given then.
        rows: those of them that are in the log.
    """
    if not rows:
        return given_anew(messages, key)
    before: dict[bytes, deque[RunRowsRow | None]] = defaultdict(deque)
    for seq, digest in zip(seqs, digests, strict=True):
        before[key(digest)].append(rows.get(seq))
    standing: list[tuple[PreparedMessage, bytes]] = []
    for message in messages:
        digest = key(message.digest)
        if not before[digest]:
            standing.append((message, digest))
        elif (row := before[digest].popleft()) is not None:
            is_unchanged = key(row.digest) == digest
            standing.append((message if is_unchanged else _as_it_stands(message, row), digest))
    taken = [(seq, key(digest)) for seq, digest in zip(seqs, digests, strict=True) if seq not in rows]
    return GivenRun(
        tuple(message for message, _digest in standing),
        tuple(digest for _message, digest in standing),
        tuple(taken),
    )


def system_id(identity: SessionIdentity, digest: bytes) -> str:
    """The id of a system message that has none: it follows from the text, so that it is stored once."""
    return uuid5(identity.session_key, f"system {digest.hex()}").hex


def system_ids(identity: SessionIdentity, messages: Sequence[PreparedMessage]) -> list[str]:
    """The ids that follow from the text of a message; whoever brings one of these brings this text."""
    heads = [message for message in messages if message.role in HEAD_ROLES]
    return [message.id for message in heads if message.id == system_id(identity, message.digest)]


def with_replaced(messages: Sequence[Message], rows: Sequence[MessageRow]) -> list[Message]:
    """Messages with the content that those of the same ids have in the log."""
    contents = {row.id: message.content for row, message in zip(rows, read_rows(rows), strict=True)}
    return [
        replace(message, content=contents[message.id]) if message.id in contents else message
        for message in messages
    ]


def _as_it_stands(message: PreparedMessage, row: RunRowsRow) -> PreparedMessage:
    (stored,) = read_rows([row])
    source = replace(message.source, content=stored.content)
    return replace(message, digest=row.digest, envelope=row.envelope, source=source)


def name_messages(
    identity: SessionIdentity,
    run_id: str,
    sources: Sequence[object],
    limits: PutLimits,
    redaction: Redaction | None = None,
    blocks: Sequence[BaseMemoryBlock] = (),
) -> Iterator[Message]:
    """The messages of a run as they may be stored, with ids, by which a repeated call is the same.

    Memory that a read with ``blocks`` gave is left out.
    A system message without an id gets one of its text, so that it is stored once, whichever runs bring it.

    Raises:
        InvalidMessageError: one of them is not a message, or a redaction hook refuses it.
        RedactionError: a redaction hook failed.
    """
    for index, source in enumerate(sources):
        where = f"messages[{index}]"
        message = without_own_memory(Message.from_openai(source, where=where), blocks)
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
