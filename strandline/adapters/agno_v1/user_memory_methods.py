"""The methods of a memory of Agno 1 that are about user memories."""

from __future__ import annotations

import asyncio

from agno.memory.v2.memory import Message as AgnoMessage
from agno.memory.v2.schema import UserMemory

from strandline.adapters.agno_v1.fact_making import RunTexts, change_sentence, conversation_of
from strandline.adapters.agno_v1.fact_searching import Questions, relevant_facts, search_memories
from strandline.adapters.agno_v1.messages import message_of
from strandline.adapters.agno_v1.session_users import SessionUsers
from strandline.adapters.agno_v1.user_memories import UserMemories, check_memory


class UserMemoryMethods:
    """Methods of ``RunMemory``."""

    user_memories: UserMemories
    _users: SessionUsers
    _texts: RunTexts
    _questions: Questions
    _max_memories: int
    _wait_seconds: float | None

    def expect(self, question: str, user_id: str | None = None) -> None:
        """Say what the next run of this thread or task is about; it does no I/O.

        The memories in the prompt of that run are then those that fit it, if not all can be shown.  Agno asks
        for them without saying what they are for.

        Raises:
            ConfigurationError: the memory serves another user.
        """
        self._questions.expect(self._users.of_call(user_id), question)

    def get_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        """The facts of a user, oldest first: all, or ``max_memories`` of them.

        These are some of the newest, and those that fit what ``expect`` was given, or else what the user said
        in the last run that was added here.
        """
        user = self._users.of_call(user_id)
        facts = self.user_memories.facts_of(user)
        chosen = relevant_facts(facts, self._questions.take(user), self._max_memories)
        return self.user_memories.of_facts(user, chosen)

    def get_user_memory(self, memory_id: str, user_id: str | None = None) -> UserMemory | None:
        """A fact of a user; None if this user has none with this id."""
        return self.user_memories.get(self._users.of_call(user_id), memory_id)

    def add_user_memory(
        self, memory: UserMemory, user_id: str | None = None, refresh_from_db: bool = True
    ) -> str:
        """Add a fact by hand and return its id: the memory's own, if it has one.

        Raises:
            OwnerError: another user has a memory with this id.
            InvalidMessageError: it cannot be stored.
        """
        stored_id = self.user_memories.put(self._users.of_call(user_id), check_memory(memory))
        memory.memory_id = stored_id
        return stored_id

    def replace_user_memory(
        self, memory_id: str, memory: UserMemory, user_id: str | None = None, refresh_from_db: bool = True
    ) -> str | None:
        """Give a fact other words; None if this user has none with this id."""
        user = self._users.of_call(user_id)
        if self.user_memories.get(user, memory_id) is None:
            return None
        check_memory(memory).memory_id = memory_id
        return self.user_memories.put(user, memory)

    def delete_user_memory(
        self, memory_id: str, user_id: str | None = None, refresh_from_db: bool = True
    ) -> None:
        """Delete a fact of a user for good; nothing happens if this user has none with this id."""
        self.user_memories.delete(memory_id, self._users.of_call(user_id))

    def search_user_memories(
        self,
        query: str | None = None,
        limit: int | None = None,
        retrieval_method: str | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> list[UserMemory]:
        """Facts of a user: ``last_n``, ``first_n``, ``agentic`` (a model chooses), ``semantic`` (a search).

        Raises:
            ConfigurationError: the method is another one, or needs a query, or no model is configured.
            ModelError: the model did not answer.
        """
        user = self._users.of_call(user_id)
        facts = search_memories(self.user_memories.facts_of(user), query, limit, retrieval_method)
        return self.user_memories.of_facts(user, facts)

    def create_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> str:
        """Have facts made of messages; those of a run that was added are made from the run, and only once.

        Raises:
            InvalidMessageError: there is no message, or one cannot be stored.
        """
        user = self._users.of_call(user_id)
        conversation = conversation_of(message, messages)
        if self._texts.take(user, conversation):
            return "Memories are made from the run itself."
        sources = [message_of(one) for one in conversation]
        return change_sentence(
            self.user_memories.facts_of(user).create_from(sources, wait=self._wait_seconds)
        )

    async def acreate_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> str:
        """Async twin of ``create_user_memories``."""
        return await asyncio.to_thread(self.create_user_memories, message, messages, user_id)

    def update_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Have the facts of this user changed as ``task`` asks for, such as "forget my address"."""
        facts = self.user_memories.facts_of(self._users.of_call(user_id))
        return change_sentence(facts.instruct(task, wait=self._wait_seconds))

    async def aupdate_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Async twin of ``update_memory_task``."""
        return await asyncio.to_thread(self.update_memory_task, task, user_id)
