"""Context recall: how much of a question's evidence stands in the prompt that a plain ``get`` gives.

Each conversation is one session of a ``Memory`` with all defaults but the token limit; a limit is part of
the session's policy, on which its window and its flushes depend, so that each limit has its own session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.recall.data import Conversation
from bench.recall.searches import wait_until_derived
from bench.recall.tables import EMBEDDER, WORDS, Score
from strandline import Memory, MemoryContext
from strandline.producers.evaluation.asking import Subject, count_standing, forms_of
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session
from strandline.wiring.runtime import runtime_for

GIVEN, ALL_GIVEN = "context recall", "all evidence"
TOKENS, OVER = "tokens", "reads over the limit"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a memory gave for a question: the texts of its messages, and how many tokens it says they are."""

    texts: Sequence[str]
    tokens: int


# Given a question.
Read = Callable[[str], Prompt]
# Given a database, a conversation and a token limit: by method, what reads a memory that holds it.
Open = Callable[[str, Conversation, int], AbstractContextManager[Mapping[str, Read]]]


def measure_contexts(url: str, conversation: Conversation, token_limit: int, open_reads: Open) -> list[Score]:
    """Ask the conversation's questions, and look for their evidence in what is given."""
    forms = {str(one["id"]): forms_of(one["content"]) for one in flatten(conversation)}
    scores = []
    with open_reads(url, conversation, token_limit) as reads:
        for question in conversation.questions:
            evidence = [forms.get(one, frozenset()) for one in question.evidence]
            for method, read_for in reads.items():
                prompt = read_for(question.text)
                scores += [
                    Score(
                        conversation.collection,
                        conversation.name,
                        question.category,
                        figure,
                        method,
                        value,
                        token_limit,
                    )
                    for figure, value in judge_prompt(evidence, prompt, token_limit).items()
                ]
    return scores


def judge_prompt(evidence: Sequence[frozenset[str]], prompt: Prompt, token_limit: int) -> dict[str, float]:
    """The figures of one prompt.

    Args:
        evidence: of each message that is needed, the forms in which it may stand there.
    """
    share = count_standing(evidence, prompt.texts) / len(evidence)
    return {
        GIVEN: share,
        ALL_GIVEN: float(share == 1),
        TOKENS: prompt.tokens,
        OVER: float(prompt.tokens > token_limit),
    }


def flatten(conversation: Conversation) -> list[dict[str, Any]]:
    """The messages of all its sessions, in order."""
    return [message for session in conversation.sessions for message in session]


def put_singly(memory: Memory, messages: Sequence[dict[str, Any]]) -> int:
    """Put one message after the other, as a chat does; the last one's ``seq``.

    At small limits, what the window holds in the end depends on how many are put at once.
    """
    seq = 0
    for message in messages:
        seq = memory.put(message)
    return seq


@contextmanager
def open_memory(url: str, conversation: Conversation, token_limit: int) -> Iterator[Mapping[str, Read]]:
    """A session of ours, read with and without the embedder."""
    name = f"{conversation.name}-in-{token_limit}"
    memory = Memory.from_defaults(
        name, user_id=name, token_limit=token_limit, database_url=url, consume="background"
    )
    runtime = runtime_for(load_settings(database_url=url))
    by_words = Subject(
        runtime,
        identify_session(DEFAULT_NAMESPACE, name, name),
        blocks=memory.memory_blocks,
        token_limit=token_limit,
    )
    embedded = replace(by_words, embed_query=runtime.embed_query)
    try:
        wait_until_derived(memory, put_singly(memory, flatten(conversation)))
        yield {
            WORDS: lambda question: _prompt(by_words.read(question)),
            EMBEDDER: lambda question: _prompt(embedded.read(question)),
        }
    finally:
        memory.close()
        runtime.close()


def _prompt(context: MemoryContext) -> Prompt:
    return Prompt([message.text for message in context], context.tokens)
