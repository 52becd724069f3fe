"""What searches find: R@10, and the sessions that they find.

A conversation's sessions are sessions of one user.  All are put, flushed whole and derived by the local
embedder; then each question is a search over all of them, once with the embedder and once by words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from bench.recall.data import Conversation, Question
from bench.recall.tables import EMBEDDER, WORDS, Score
from strandline import FoundMessage, Memory, VectorMemoryBlock
from strandline.producers.evaluation.asking import Subject
from strandline.producers.search.search import MAX_LIMIT
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session
from strandline.wiring.runtime import runtime_for

FIRST = 10
PUT_AT_ONCE = 200
DERIVING_SECONDS = 600.0

RECALL = "R@10"
ANY_SESSION, ALL_SESSIONS = "any@10", "all@10"
ANY_OF_TEN_SESSIONS, ALL_OF_TEN_SESSIONS = "any, ten sessions", "all, ten sessions"
OF_SESSIONS = (ANY_SESSION, ALL_SESSIONS, ANY_OF_TEN_SESSIONS, ALL_OF_TEN_SESSIONS)

# Given a question, and how many messages at most: their ids, best first.
Search = Callable[[str, int], Sequence[str]]


def measure_searches(url: str, conversation: Conversation) -> Iterator[Score]:
    """Put the conversation, let its messages be derived, and ask its questions."""
    places = {
        str(message["id"]): number
        for number, session in enumerate(conversation.sessions)
        for message in session
    }
    with open_searches(url, conversation.name, remember(url, conversation)) as searches:
        for question in conversation.questions:
            for method, search in searches.items():
                for figure, value in judge_search(question, search, places):
                    yield Score(
                        conversation.collection, conversation.name, question.category, figure, method, value
                    )


def remember(url: str, conversation: Conversation) -> str:
    """Put and flush all sessions of a conversation, and wait until they can be searched; names the last.

    Raises:
        TimeoutError: the worker took longer than ``DERIVING_SECONDS``.
    """
    last = {}
    for number, messages in enumerate(conversation.sessions, start=1):
        memory = Memory.from_defaults(
            f"{conversation.name}-{number}",
            user_id=conversation.name,
            memory_blocks=[VectorMemoryBlock()],
            database_url=url,
            consume="background",
        )
        last[memory] = put(memory, messages)
        memory.flush(all=True)
    try:
        for memory, seq in last.items():
            wait_until_derived(memory, seq)
    finally:
        memory.close()
    return memory.session_id


def put(memory: Memory, messages: Sequence[Mapping[str, object]]) -> int:
    """Put the messages some hundred at a time; the last one's ``seq``."""
    seq = 0
    for start in range(0, len(messages), PUT_AT_ONCE):
        seq = memory.put_messages(messages[start : start + PUT_AT_ONCE])[-1]
    return seq


def wait_until_derived(memory: Memory, seq: int) -> None:
    if not memory.get(wait_for=seq, timeout=DERIVING_SECONDS).caught_up:
        raise TimeoutError(f"{memory.session_id} was not derived within {DERIVING_SECONDS:.0f} s.")


@contextmanager
def open_searches(url: str, user_id: str, session_id: str) -> Iterator[Mapping[str, Search]]:
    """The search over all sessions of a user, with and without the embedder."""
    runtime = runtime_for(load_settings(database_url=url))
    by_words = Subject(runtime, identify_session(DEFAULT_NAMESPACE, session_id, user_id), "owner")
    embedded = replace(by_words, embed_query=runtime.embed_query)
    try:
        yield {
            WORDS: lambda text, limit: _ids(by_words.search(text, limit)),
            EMBEDDER: lambda text, limit: _ids(embedded.search(text, limit)),
        }
    finally:
        runtime.close()


def judge_search(
    question: Question, search: Search, places: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    """The figures of one question.

    Args:
        places: by id of a message, which session of the conversation it is of.
    """
    first = search(question.text, FIRST)
    yield RECALL, len(question.evidence.intersection(first)) / len(question.evidence)
    if len(set(places.values())) == 1:
        return
    needed = {places.get(one, -1) for one in question.evidence}
    of_messages = {places[one] for one in first}
    # The order of the sessions is that of their best messages, so that all messages are asked for.
    ordered = dict.fromkeys(places[one] for one in search(question.text, MAX_LIMIT))
    of_sessions = set(islice(ordered, FIRST))
    values = (needed & of_messages, needed <= of_messages, needed & of_sessions, needed <= of_sessions)
    yield from zip(OF_SESSIONS, map(float, map(bool, values)), strict=True)


def _ids(hits: Sequence[FoundMessage]) -> list[str]:
    return [str(hit.message.id) for hit in hits]
