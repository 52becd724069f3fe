"""Thirty turns of two users at once, each with a tool, as an agent of any framework has them.

What each says first leaves the window; a question at the end has to find it in memory, and nothing of what
the other says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from strandline import FactExtractionMemoryBlock
from tests.conftest import StartWorker, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer

TURNS = 30
QUESTION = "What do you know about me?"
# What each user says first: it becomes a fact, whose last word none but this user says.
FIRST = {
    "ana": "My boat is the Petrel and she lies in Horta.",
    "rui": "My dog is called Bolt and he fears thunder.",
}
WORDS = {"ana": "Petrel", "rui": "Bolt"}

# Of the options of a memory: a window of a few turns.
SMALL_WINDOW = {
    "token_limit": 2_000,
    "chat_history_token_ratio": 0.1,
    "token_flush_size": 60,
}


def only_facts() -> list[FactExtractionMemoryBlock]:
    return [FactExtractionMemoryBlock(max_facts=100)]


def saying(user: str, number: int) -> str:
    """What a user says in a turn, which are counted from 0."""
    if number == 0:
        return FIRST[user]
    return QUESTION if number == TURNS - 1 else f"{user} counts pier {number:02d}, and it is calm."


def sayings(user: str) -> list[str]:
    return [saying(user, number) for number in range(TURNS)]


Take = Callable[[str, str], Awaitable[None]]


class Conversations:
    """The turns of both users, with two workers, of which one is killed in the middle."""

    def __init__(
        self, database_url: str, broker_url: str, start_worker: StartWorker, model_server: ModelServer
    ) -> None:
        self.database_url = database_url
        self.options = {
            **SMALL_WINDOW,
            "database_url": database_url,
            "broker_url": broker_url,
            "memory_blocks": only_facts(),
        }
        self._workers = [
            start_worker(OPENAI_BASE_URL=model_server.base_url, OPENAI_API_KEY="none") for _worker in range(2)
        ]

    async def talk(self, take: Take) -> None:
        """Let both users take all their turns at once: ``take(user, text)`` is one of them."""
        await asyncio.gather(*(self._talk(user, take) for user in FIRST))

    async def _talk(self, user: str, take: Take) -> None:
        for number in range(TURNS - 1):
            await take(user, saying(user, number))
            if user == "ana" and number == TURNS // 2:
                self._workers[0].kill()
        # Both users wait here: then nothing is left that a read would show beside its facts.
        await asyncio.to_thread(
            wait_until,
            lambda: self.facts_about(user) and nothing_due(self.database_url),
            timeout=60,
            what=f"the fact about {WORDS[user]}",
        )
        await take(user, QUESTION)

    def facts_about(self, user: str) -> int:
        """How many live facts have the user's word."""
        ((count,),) = rows_of(
            self.database_url,
            "SELECT count(*) FROM strandline.fact WHERE live AND text LIKE %s",
            f"%{WORDS[user]}%",
        )
        return int(count)

    def check(self, last_requests: Mapping[str, Sequence[str]], form: str = "<fact>{}</fact>") -> None:
        """Check the texts of each user's last model call: the fact is in memory, and nothing of the other.

        ``form`` is that of a fact in memory.
        """
        for user, texts in last_requests.items():
            (other,) = set(FIRST) - {user}
            memory = [text for text in texts if form.format(FIRST[user]) in text]
            assert len(memory) == 1
            assert not [text for text in texts if WORDS[user] in text and text not in memory]
            assert not [text for text in texts if WORDS[other] in text or f"{other} counts" in text]
            assert QUESTION in texts[-1]
            assert self.facts_about(user) == 1, "made once"
