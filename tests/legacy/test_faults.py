"""Thirty turns of an agent of Agno 1 and of TFrameX that goes wrong, as of the other adapters."""

from __future__ import annotations

import pytest

from tests.support.agents.faulty.talk import EVENTS, have_talk


@pytest.mark.parametrize("adapter", ["agno_v1", "tframex"])
@pytest.mark.parametrize("event", EVENTS)
def test_nothing_is_lost_in_turns_that_go_wrong(adapter: str, event: str, database_url: str) -> None:
    have_talk(f"tests.legacy.faulty.{adapter}", database_url, event)
