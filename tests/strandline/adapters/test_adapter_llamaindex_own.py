"""What an application adds to LlamaIndex: blocks with code of their own, and memories of their own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.workflow import Context

from strandline import ConfigurationError, StaticMemoryBlock
from strandline.adapters.llamaindex import LlamaIndexBlock, StrandlineMemory
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import prepare_stages
from tests.conftest import Rig, rows_of
from tests.support.agents.llamaindex_blocks import Holder, MentionCounter, closed, mentions
from tests.support.workers.draining import drain_everything

NAMES = ("mentions", "closed")


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


@pytest.fixture
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    place = "tests.support.agents.llamaindex_blocks"
    return load_settings(database_url=database_url, blocks=f"{place}:mentions,{place}:closed")


def test_a_subclass_of_their_block_is_folded_by_workers_and_shown_in_reads(
    rig: Rig, configured: Settings
) -> None:
    prepare_stages(rig.database, configured, NAMES)
    counter = MentionCounter(name="mentions", priority=2)
    memory = StrandlineMemory.from_defaults("s", memory_blocks=[counter, closed])
    memory.put_messages([user("Logan left."), user("Who?"), ChatMessage(role="assistant", content="Logan.")])
    assert "Logan: 0 times" in str(memory.get()[0].content)
    memory.session_memory.flush(all=True)
    drain_everything(rig.database, rig.url, configured, NAMES)
    memory.put(user("Again, where is Logan?"))
    memory.session_memory.flush(all=True)
    drain_everything(rig.database, rig.url, configured, NAMES)
    shown = str(memory.get("Where?", style="terse")[0].content)
    assert "Logan: 3 times, last by the user; asked: Where?; style: terse." in shown
    assert "0 mentions" in shown, "it does not take what leaves the window"
    assert "asked: Whose?" in str(asyncio.run(read(memory, "Whose?"))[0].content)
    assert counter.mention_count == 0, "the state is in Postgres, not in the object"
    states = rows_of(
        rig.url,
        "SELECT b.state FROM strandline.block_state b JOIN strandline.generation g USING (generation_id)"
        " WHERE pipeline = 'mentions' ORDER BY ordinal DESC LIMIT 1",
    )
    last = {"role": "user", "text": "Again, where is Logan?"}
    assert states == [({"mention_name": "Logan", "mention_count": 3, "last": last},)]
    other = StrandlineMemory.from_defaults("other", memory_blocks=[counter])
    assert "Logan: 0 times" in str(other.get("x")[0].content)
    other.session_memory.close()


async def read(memory: StrandlineMemory, text: str) -> list[ChatMessage]:
    try:
        return await memory.aget(user(text))
    finally:
        await memory.session_memory.aclose()


def test_it_shortens_itself_where_room_is_short(configured: Settings, database: Database) -> None:
    prepare_stages(database, configured, NAMES)
    memory = StrandlineMemory.from_defaults("s", memory_blocks=[mentions], token_limit=40)
    text = str(
        memory.get("a question that takes some of the room, and more of it than there is " * 3)[0].content
    )
    assert "Logan: 0 times" in text and "style" not in text
    memory.session_memory.close()


def test_arguments_that_no_block_takes_are_refused(configured: Settings) -> None:
    memory = StrandlineMemory.from_defaults("s", memory_blocks=[StaticMemoryBlock(static_content="x")])
    with pytest.raises(ConfigurationError, match="No memory block takes 'style'"):
        memory.get("x", style="terse")
    with pytest.raises(ConfigurationError, match="block_arguments is 'style'"):
        memory.session_memory.get("x", block_arguments="style")  # type: ignore[arg-type]
    memory.session_memory.close()


def test_a_field_that_is_no_json_is_named(configured: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"'live' of the memory block 'held' \(Holder\)"):
        StrandlineMemory.from_defaults("s", memory_blocks=[Holder(name="held")])
    assert "notify" not in LlamaIndexBlock(MentionCounter(name="mentions")).initial()


class Polite(StrandlineMemory):
    """A memory of an application's own: it keeps no whispers, and has something to say at the end."""

    closing: str = "Thank you."

    async def aput(self, message: ChatMessage) -> None:
        if "(whispers)" not in (message.content or ""):
            await super().aput(message)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            await self.aput(message)

    async def aget(self, input: Any = None, **kwargs: Any) -> list[ChatMessage]:
        return [*await super().aget(input, **kwargs), ChatMessage(role="system", content=self.closing)]

    def get(self, input: Any = None, **kwargs: Any) -> list[ChatMessage]:
        return [*super().get(input, **kwargs), ChatMessage(role="system", content=self.closing)]


class Listener(MockFunctionCallingLLM):
    """Answers by the number of messages that it was sent, and keeps these."""

    def __init__(self) -> None:
        super().__init__(is_chat_model=True, response_generator=self._answer)

    def _answer(self, messages: Any, **_options: Any) -> ChatMessage:
        heard.append([str(message.content) for message in messages])
        return ChatMessage(role="assistant", content=f"{len(messages)} messages.")


heard: list[list[str]] = []


async def test_a_memory_of_ones_own_works_in_an_agent_and_survives_its_context(configured: Settings) -> None:
    memory = Polite.from_defaults("own", user_id="ana", token_limit=900)
    assert isinstance(memory, Polite)
    agent = FunctionAgent(llm=Listener(), streaming=False)
    ctx = Context(agent)
    await agent.run("My boat is called Petrel.", ctx=ctx, memory=memory)
    assert heard[-1] == ["My boat is called Petrel.", "Thank you."]
    await agent.run("(whispers) No, it is not.", ctx=ctx, memory=memory)
    kept = json.loads(json.dumps(ctx.to_dict()))
    assert "Petrel" not in json.dumps(kept["state"]["state_data"]["_data"]["memory"])
    restored_ctx = Context.from_dict(agent, kept)
    restored = await restored_ctx.store.get("memory")
    assert type(restored) is Polite and restored == Polite.from_dict(memory.to_dict())
    await agent.run("What is its name?", ctx=restored_ctx)
    assert heard[-1][0] == "My boat is called Petrel." and heard[-1][-1] == "Thank you."
    assert not any("whispers" in text for text in map(str, await memory.aget_all()))
    await restored.session_memory.aclose()
    await memory.session_memory.aclose()
