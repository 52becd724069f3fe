"""Thirty turns of an agent of each adapter that goes wrong: the next is accepted, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.support.agents.faulty.talk import EVENTS, have_talk

ADAPTERS = {
    "agents_sdk": "agents",
    "agno": "agno.session.agent",
    "langchain": "langchain_core",
    "langgraph": "langchain.agents",
    "llamaindex": "llama_index.core",
    "pydantic_ai": "pydantic_ai",
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("event", EVENTS)
# LangChain deprecates the class of the history.
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_nothing_is_lost_in_turns_that_go_wrong(adapter: str, event: str, database_url: str) -> None:
    library = ADAPTERS[adapter]
    pytest.importorskip(library, reason=f"needs {library}")
    have_talk(f"tests.support.agents.faulty.{adapter}", database_url, event)
