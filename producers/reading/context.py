"""The result of a read: the messages for the model, and what memory they hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, overload
from uuid import UUID

from strandline.producers.reading.call_pairs import begins_with_user, settled
from strandline.producers.tokens import count_default
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message
from strandline.schemas.values.undelivered import Undelivered

CitationKind = Literal["fact", "message", "summary"]
SectionKind = Literal["facts", "summary", "messages", "other"]


@dataclass(frozen=True, slots=True)
class Source:
    """Messages of one session that something comes from."""

    session_id: str
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GivenFact:
    """A fact that a read gave.

    Attributes:
        fact_id: for ``memory.facts.get``.
        said_at: when it was last said.
        sources: the messages that it comes from; empty if a person added it.
        score: how well it matches the query, above 0; 0 if it was not compared, since it is new, or since all
            facts have room.
        tokens: of its line.
    """

    fact_id: UUID
    text: str
    said_at: datetime
    sources: tuple[Source, ...]
    score: float
    tokens: int


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """A message that a search found, and that a read gave.

    Attributes:
        message: as it was put, with ``seq`` and ``created_at``.
        session_id: the session that it was put to.
        score: how well it matches the query, 0 to 1; comparable only within one read.
        similarity: the cosine similarity to the query; 0 if only words were compared.
        tokens: of its line.
        is_beside: whether it was given only as the neighbour of a match, whose score and similarity it then
            has.
    """

    message: Message
    session_id: str
    score: float
    similarity: float
    tokens: int
    is_beside: bool = False


@dataclass(frozen=True, slots=True)
class GivenSummary:
    """The summary that a read gave.

    Attributes:
        text: as it is given.
        through_seq: the last message that it covers.
        is_cut: whether a part of it had no room.
        tokens: of ``text``.
    """

    text: str
    through_seq: int
    is_cut: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Citation:
    """One piece of memory that a read gave, for an application that shows where an answer comes from.

    Attributes:
        number: 1, 2, …: facts, then the summary, then messages; the prompt does not show it.
        kind: ``fact``, ``message`` or ``summary``.
        text: as it was stored; data, never markup.
        id: of the fact or message; empty for a summary.
        sources: sessions and the numbers of their messages; empty for a summary, which tells of all messages
            up to ``context.summary.through_seq``.
        at: when it was said; None for a summary.
        score: as ``GivenFact`` and ``GivenMessage`` have it; 0 for a summary.
    """

    number: int
    kind: CitationKind
    text: str
    id: str
    sources: tuple[Source, ...]
    at: datetime | None
    score: float


@dataclass(frozen=True, slots=True)
class GivenSection:
    """The text of one block in the prompt.

    Attributes:
        name: of the block.
        kind: of the block's content; ``messages``: a search's hits, even facts.
        text: escaped, as it stands between the block's tags.
    """

    name: str
    kind: SectionKind
    text: str


@dataclass(frozen=True, slots=True)
class Given:
    """All that a read gave from memory; window and tail are messages of the context."""

    facts: tuple[GivenFact, ...] = ()
    hits: tuple[GivenMessage, ...] = ()
    summary: GivenSummary | None = None
    sections: tuple[GivenSection, ...] = ()


def cite(memory: Given, session_id: str) -> list[Citation]:
    """The pieces as citations, numbered: facts, then the summary, then messages."""
    pieces: list[tuple[CitationKind, str, str, tuple[Source, ...], datetime | None, float]] = [
        ("fact", fact.text, str(fact.fact_id), fact.sources, fact.said_at, fact.score)
        for fact in memory.facts
    ]
    if memory.summary is not None:
        pieces.append(("summary", memory.summary.text, "", (), None, 0.0))
    pieces += [("message", *_message(hit)) for hit in memory.hits]
    return [Citation(number, *piece) for number, piece in enumerate(pieces, start=1)]


def _message(hit: GivenMessage) -> tuple[str, str, tuple[Source, ...], datetime | None, float]:
    message = hit.message
    source = Source(hit.session_id, (message.seq or 0,))
    return message.shown_text, message.id or "", (source,), message.created_at, hit.score


def sources_of_places(places: Sequence[tuple[str, int]]) -> tuple[Source, ...]:
    """Numbers of messages by their session, in order."""
    by_session: dict[str, list[int]] = {}
    for session_id, seq in sorted(places):
        by_session.setdefault(session_id, []).append(seq)
    return tuple([Source(session_id, tuple(seqs)) for session_id, seqs in by_session.items()])


@dataclass(frozen=True, slots=True)
class TokenUse:
    """The tokens of a read by use.

    Attributes:
        limit: the tokens that the read could use.
        head: the pinned head, which is always shown.
        window: the messages of the window.
        tail: flushed messages that memory does not cover yet.
        facts: the facts' sections.
        summary: the summary's sections.
        messages: the sections of hits.
        other: the rest of the memory: sections of other blocks, their content parts, and the tags.
    """

    limit: int
    head: int = 0
    window: int = 0
    tail: int = 0
    facts: int = 0
    summary: int = 0
    messages: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The tokens of the read, as ``MemoryContext.tokens`` has them."""
        return self.head + self.window + self.tail + self.facts + self.summary + self.messages + self.other

    @property
    def free(self) -> int:
        """The tokens that nothing used; 0 if the read is over its limit."""
        return max(0, self.limit - self.total)


def sum_tokens(messages: Sequence[Message]) -> int:
    """The tokens that were counted when the messages were put."""
    return sum(message.tokens or 0 for message in messages)


def count_sections(
    sections: Sequence[GivenSection], memory_tokens: int, count_text: Callable[[str], int]
) -> dict[SectionKind, int]:
    """The tokens of the memory by kind of section, tags and parts as ``other``: ``memory_tokens`` in all."""
    counts: dict[SectionKind, int] = dict.fromkeys(("facts", "summary", "messages"), 0)
    left = memory_tokens
    for section in sections:
        if section.kind != "other":
            tokens = min(left, count_text(section.text))
            counts[section.kind] += tokens
            left -= tokens
    return counts | {"other": left}


OmissionKind = Literal[
    "tail",
    "window",
    "block_dropped",
    "block_truncated",
    "block_failed",
    "not_rendered",
    "search_text_only",
    "search_failed",
    "search_cut",
    "rerank_failed",
    "not_fed",
    "not_shared",
    "result_moved",
    "result_left_out",
    "result_added",
    "call_left_out",
    "user_added",
    "question_cut",
]


@dataclass(frozen=True, slots=True)
class Omission:
    """A part that a read left out, or could not do in full.

    Attributes:
        kind: ``tail`` (delivered messages that no block covers yet, left out), ``window`` (messages of the
            window that the caller's ``initial_token_count`` left no room for), ``block_dropped``,
            ``block_truncated``, ``block_failed``, ``not_rendered`` (the memory template does not show the
            block's text), ``search_text_only`` (no vector for the query: only words counted),
            ``search_failed``, ``search_cut`` (of a long message that was found only the beginning is
            searched), ``rerank_failed`` (the hits are in the order of the search), ``not_fed`` (no
            pipeline derives the block's memory), ``not_shared`` (the session's flushed messages do not go to
            the scope that the block searches), ``result_moved``, ``result_left_out``, ``call_left_out`` and
            ``result_added`` (a tool call or result that no provider takes as the log has it), ``user_added``
            (a line before an assistant's first message), ``question_cut`` (the middle of the question
            that the window's turn answers, which has left the window).
        name: the block's name, ``tail`` or ``window``, or the id of the tool call.
        reason: a sentence.
        from_seq: of messages, the first that is concerned.
        through_seq: of messages, the last one.
    """

    kind: OmissionKind
    name: str
    reason: str
    from_seq: int | None = None
    through_seq: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class MemoryContext(Sequence[Message]):
    """The messages for the next model call: pinned head with the memory, tail, window; a sequence.

    Attributes:
        messages: all of them, in order.
        covered_through: per pipeline of the blocks, the last ``seq`` up to which the block covers all flushed
            messages.
        caught_up: True if no flushed message is still on its way to a block (with ``wait_for``: if that
            ``seq`` was put, and no flushed message up to it is still on its way).
        omitted: the omissions and their reasons; empty when everything fits and works.
        tokens: the stored tokens of the messages, and those of the inserted memory.
        over_budget: True if ``tokens`` is above the limit, because the pinned head, the window and blocks of
            priority 0 are never cut.
        token_limit: the tokens that the read could use: the limit without ``initial_token_count``.
        window_from: ``seq`` at which the window begins.
        pinned_through: ``seq`` of the last of the system messages that begin the session; 0 without one.
        prompt_seq: ``seq`` of the message that replaced these; None: they stand.
        session_id: of the session that was read.
        time_zone: of its policy, for days of messages without an offset of their own; None: UTC.
        waiting: the session's messages that no flush has delivered yet; None: there are none.
        memory: the parts of the inserted memory; ``.facts``, ``.hits`` and ``.summary`` have its
            parts, and ``.citations()`` numbers them.
    """

    messages: tuple[Message, ...]
    covered_through: Mapping[str, int]
    caught_up: bool
    omitted: tuple[Omission, ...]
    tokens: int
    over_budget: bool
    session_id: str = ""
    memory: Given = field(default_factory=Given)
    token_limit: int = 0
    window_from: int = 1
    pinned_through: int = 0
    prompt_seq: int | None = None
    time_zone: str | None = None
    waiting: Undelivered | None = None

    @property
    def facts(self) -> tuple[GivenFact, ...]:
        """The facts that are in the prompt."""
        return self.memory.facts

    @property
    def hits(self) -> tuple[GivenMessage, ...]:
        """The messages in the prompt that a search found; window and tail are not among them."""
        return self.memory.hits

    @property
    def summary(self) -> GivenSummary | None:
        """The summary in the prompt; None: the prompt has none."""
        return self.memory.summary

    @property
    def head(self) -> tuple[Message, ...]:
        """The system messages in front, which begin the session, or what replaced them; with the memory."""
        return tuple(one for one in self.messages if self._is_head(one.seq))

    @property
    def tail(self) -> tuple[Message, ...]:
        """The flushed messages that memory does not cover yet, and the newest system message."""
        seqs = range(self.pinned_through + 1, self.window_from)
        return tuple(one for one in self.messages if one.seq in seqs and not self._is_head(one.seq))

    @property
    def window(self) -> tuple[Message, ...]:
        """The latest messages; the memory may be inserted into one."""
        first = max(self.window_from, self.pinned_through + 1)
        newest = (one for one in self.messages if one.seq is not None and one.seq >= first)
        return tuple(one for one in newest if not self._is_head(one.seq))

    def _is_head(self, seq: int | None) -> bool:
        return seq is not None and (seq <= self.pinned_through or seq == self.prompt_seq)

    def token_use(self, count_text: Callable[[str], int] = count_default) -> TokenUse:
        """What ``tokens`` are used for.

        Args:
            count_text: the tokenizer of the memory that was read.
        """
        head, tail, window = map(sum_tokens, (self.head, self.tail, self.window))
        memory_tokens = max(0, self.tokens - head - tail - window)
        sections = count_sections(self.memory.sections, memory_tokens, count_text)
        return TokenUse(
            limit=self.token_limit,
            head=head,
            window=window,
            tail=tail,
            facts=sections["facts"],
            summary=sections["summary"],
            messages=sections["messages"],
            other=sections["other"],
        )

    def citations(self) -> list[Citation]:
        """The pieces of memory in the prompt with their sources, numbered from 1."""
        return cite(self.memory, self.session_id)

    def to_openai(self, also: Collection[str] = ()) -> list[dict[str, Any]]:
        """The messages as OpenAI's chat API takes them, ready to be sent.

        A tool call at the very end whose result has not come is answered by a note here alone.

        Args:
            also: as for ``Message.to_openai``.
        """
        messages = settled(self.messages, to_send=True)
        return [form for message in messages for form in message.openai_forms(also)]

    def beginning_with_user(self) -> tuple[Message, ...]:
        """The messages as Anthropic's and Gemini's APIs want them: a user's message follows the system
        messages.

        If the log shown has no earlier one, a short line stands for it.
        """
        return begins_with_user(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return list(self.messages[index]) if isinstance(index, slice) else self.messages[index]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __str__(self) -> str:
        return "\n".join(str(message) for message in self.messages)

    def __repr__(self) -> str:
        return (
            f"MemoryContext({quantity(len(self.messages), 'message')}, {quantity(self.tokens, 'token')},"
            f" caught_up={self.caught_up}, covered_through={dict(self.covered_through)},"
            f" omitted={len(self.omitted)}, over_budget={self.over_budget})"
        )
