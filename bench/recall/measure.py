"""``python -m bench.recall``: how much of what answers a question is among the first messages found.

Every conversation is put, flushed whole and derived by the local embedder, on an embedded Postgres of its
own; then each question is a search over all the sessions of its user, once with the embedder and once by
words alone.  The figure is R@10: the share of the question's evidence among the first ten messages, averaged
over the questions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import TypedDict

from bench.environment import prepared_ground
from bench.recall.data import WHERE, Conversation, Question, conversations
from strandline import FoundMessage, Memory, VectorMemoryBlock
from strandline.producers.search.search import SearchRequest, search_messages
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session

FIRST = 10
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"
ALL = "all questions"
PUT_AT_ONCE = 200
DERIVING_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Found:
    """One question: the share of its evidence that was found, by words alone and with the embedder."""

    collection: str
    conversation: str
    category: str
    words: float
    embedder: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: R@10 in per cent of some questions of a collection."""

    collection: str
    category: str
    questions: int
    words: float
    embedder: float


class Averages(TypedDict):
    questions: int
    words: float
    embedder: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="the folder of the conversations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    arguments = parser.parse_args()
    measured = conversations(arguments.data)
    if not measured:
        print(f"There are no conversations in {arguments.data}.\n{WHERE}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        say("starting PostgreSQL")
        with prepared_ground(Path(home)) as server, server.fresh(registered=False) as ground:
            found = [one for conversation in measured for one in measure(ground.url, conversation)]
    lines = table(found)
    print(as_text(lines))
    if arguments.json is not None:
        arguments.json.write_text(as_json(lines, found), encoding="utf-8")
    return 0


def measure(url: str, conversation: Conversation) -> Iterator[Found]:
    """Put the conversation, let its messages be derived, and ask its questions."""
    say(f"{conversation.collection} {conversation.name}: {len(conversation.questions)} questions")
    with opened(url, conversation.name, remember(url, conversation)) as search:
        for question in conversation.questions:
            words, embedder = (
                share_found(question, search(question.text, embedding)) for embedding in (False, True)
            )
            yield Found(conversation.collection, conversation.name, question.category, words, embedder)


def remember(url: str, conversation: Conversation) -> str:
    """Put and flush all sessions of a conversation, and wait until they can be searched; names the last."""
    last = {}
    for number, messages in enumerate(conversation.sessions, start=1):
        memory = Memory.from_defaults(
            f"{conversation.name}-{number}",
            user_id=conversation.name,
            memory_blocks=[VectorMemoryBlock()],
            database_url=url,
            consume="background",
        )
        for start in range(0, len(messages), PUT_AT_ONCE):
            last[memory] = memory.put_messages(messages[start : start + PUT_AT_ONCE])[-1]
        memory.flush(all=True)
    for memory, seq in last.items():
        if not memory.get(wait_for=seq, timeout=DERIVING_SECONDS).caught_up:
            raise TimeoutError(f"{memory.session_id} was not derived within {DERIVING_SECONDS} s.")
    memory.close()
    return memory.session_id


@contextmanager
def opened(url: str, user_id: str, session_id: str) -> Iterator[Callable[[str, bool], list[FoundMessage]]]:
    """The search over all sessions of a user; without the embedder it is the operation below ``search``."""
    identity = identify_session("default", session_id, user_id)
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings()))
    memory = Memory.from_defaults(session_id, user_id=user_id, database_url=url)

    def search(text: str, embedding: bool) -> list[FoundMessage]:
        if embedding:
            return memory.search(text, limit=FIRST, scope="owner")
        return database.run(search_messages(SearchRequest(identity, text, FIRST, "owner", None)))

    try:
        yield search
    finally:
        memory.close()
        database.close()


def share_found(question: Question, hits: Sequence[FoundMessage]) -> float:
    """Of the messages that hold the answer, the share that is among the hits."""
    return len(question.evidence & {hit.message.id for hit in hits}) / len(question.evidence)


def table(found: Sequence[Found]) -> list[Line]:
    """The averages by collection and category, and over all questions of each collection."""
    lines = []
    for collection in dict.fromkeys(one.collection for one in found):
        of_it = [one for one in found if one.collection == collection]
        for category in sorted({one.category for one in of_it}):
            lines.append(_line(collection, category, [one for one in of_it if one.category == category]))
        lines.append(_line(collection, ALL, of_it))
    return lines


def as_text(lines: Sequence[Line]) -> str:
    """The lines for a terminal."""
    rows = [("R@10, per cent", "", "questions", "words alone", "local embedder")]
    rows += [
        (one.collection, one.category, str(one.questions), f"{one.words:.1f}", f"{one.embedder:.1f}")
        for one in lines
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_json(lines: Sequence[Line], found: Sequence[Found]) -> str:
    """The lines of the table, and the averages of each conversation."""
    names = {(one.collection, one.conversation): None for one in found}
    by_conversation = [
        {"collection": collection, "conversation": name, **_averages(of_it)}
        for collection, name in names
        if (of_it := [one for one in found if one.conversation == name])
    ]
    content = {"lines": [asdict(line) for line in lines], "conversations": by_conversation}
    return json.dumps(content, indent=2) + "\n"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _line(collection: str, category: str, found: Sequence[Found]) -> Line:
    return Line(collection, category, **_averages(found))


def _averages(found: Sequence[Found]) -> Averages:
    return {
        "questions": len(found),
        "words": round(100 * mean(one.words for one in found), 1),
        "embedder": round(100 * mean(one.embedder for one in found), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
