"""What people and tools do meanwhile: facts that are edited, sessions that are reset, turns that are huge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from strandline import Facts, Memory
from strandline.schemas.errors import DatabaseUnavailableError
from tests.chaos.conversation import digest_of
from tests.chaos.judging.journal import Ack
from tests.chaos.judging.recoveries import Connection

T = TypeVar("T")

WRITER = "campaign"
LINES = 6
# More than an owner ever has here.
MOST_FACTS = 1_000
RESULTS, RESULT_WORDS = 4, 110_000
# For so long facts are waited for; the model may be away meanwhile.
DERIVED_WITHIN_SECONDS = 90.0
REPEATED_FOR_SECONDS = 120.0

NOTHING_DUE = """
SELECT EXISTS (SELECT FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
        WHERE s.session_id = %(session)s)
    AND NOT EXISTS (SELECT FROM strandline.due d JOIN strandline.session s USING (shard_key, session_key)
        WHERE s.session_id = %(session)s)
"""


class GivenUpError(Exception):
    """A call was repeated for long, and Postgres was away each time."""


@dataclass
class Conversation:
    """A session that the campaign itself puts to, on its own connection to Postgres."""

    url: str
    session: str
    user: str | None

    @property
    def memory(self) -> Memory:
        return Memory.from_defaults(self.session, user_id=self.user, database_url=self.url)

    @property
    def facts(self) -> Facts:
        assert self.user is not None
        return Facts.for_owner(user_id=self.user, database_url=self.url)

    def put(self, messages: Sequence[dict[str, Any]]) -> list[Ack]:
        """Put them and deliver them; what was acknowledged."""
        numbered = [one | {"id": f"{self.session}.{WRITER}.{n}"} for n, one in enumerate(messages, 1)]
        began = time.monotonic()
        seqs = repeated(lambda: self.memory.put_messages(numbered))
        took = time.monotonic() - began
        repeated(lambda: self.memory.flush(all=True))
        return [
            Ack(
                self.session,
                WRITER,
                number,
                message["id"],
                digest_of(message["role"], message["content"]),
                seq,
                began + took,
                took,
                took,
            )
            for number, (message, seq) in enumerate(zip(numbered, seqs, strict=True), 1)
        ]

    def is_derived(self, connection: Connection) -> bool:
        """Whether it was flushed, and nothing of it is due any more."""
        ((derived,),) = connection.execute(NOTHING_DUE, {"session": self.session})
        return bool(derived)

    def lines(self) -> list[str]:
        """What its user says: each line once in a campaign, and each a fact."""
        return [f"Shelf {number} of {self.session} holds a rope and a lamp." for number in range(LINES)]

    def live_texts(self) -> set[str]:
        """The owner's facts."""
        return {fact.text for fact in repeated(partial(self.facts.list, limit=MOST_FACTS))}


def repeated(call: Callable[[], T]) -> T:
    """The call's result; repeated while Postgres is away, so it must be a call that may be repeated."""
    deadline = time.monotonic() + REPEATED_FOR_SECONDS
    while time.monotonic() < deadline:
        try:
            return call()
        except DatabaseUnavailableError:
            time.sleep(0.2)
    raise GivenUpError


def huge_turn() -> Iterator[dict[str, Any]]:
    """A turn of a user whose tool returns four times nearly a megabyte, each in different words."""
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for number in range(RESULTS)
    ]
    yield {"role": "user", "content": "Read the four files of my boat, and tell me what is in them."}
    yield {"role": "assistant", "content": None, "tool_calls": calls}
    for number, call in enumerate(calls):
        words = " ".join(f"w{number}x{place}" for place in range(RESULT_WORDS))
        yield {"role": "tool", "content": words[:960_000], "tool_call_id": call["id"]}
    yield {"role": "assistant", "content": "They hold many words."}
