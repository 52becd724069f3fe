"""The result of a read: the messages for the model, and information about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from strandline.producers.reading.given import Citation, Given, GivenFact, GivenMessage, GivenSummary, cite
from strandline.producers.reading.history.call_pairs import begins_with_user, settled
from strandline.producers.reading.token_use import TokenUse, count_sections, sum_tokens
from strandline.producers.tokens import count_default
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message

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
            (a line before what would begin the conversation), ``question_cut`` (the middle of the question
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
        memory: what the memory in the messages consists of; ``.facts``, ``.hits`` and ``.summary`` have its
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
        """The summary in the prompt; None if there is none."""
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
        """The messages as Anthropic's and Gemini's APIs want them: the first that is no system message is a
        user's. Where the log shown has none before it, that is a short line which says that it begins here.
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
