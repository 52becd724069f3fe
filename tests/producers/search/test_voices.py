"""Who speaks, how, and when: what speaks for a message beside its words, also before vectors cover it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline import Memory
from strandline.producers.search.hits import Hit
from strandline.producers.search.unindexed import behind_the_best
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import VECTORS_STAGE
from strandline.schemas.values.message import Message
from tests.conftest import MakeMemory
from tests.support.workers.draining import drain_everything

Remember = Callable[..., Memory]

MAY, JUNE = datetime(2023, 5, 7, 12, tzinfo=UTC), datetime(2023, 6, 7, 12, tzinfo=UTC)


@pytest.fixture(params=["indexed", "waiting"])
def remembered(
    request: pytest.FixtureRequest, make_memory: MakeMemory, database: Database, database_url: str
) -> Remember:
    """Puts messages of one text, and lets vectors cover them or not."""

    def remember(*messages: dict[str, Any]) -> Memory:
        memory = make_memory("s", memory_blocks=["vectors"], token_limit=10_000)
        memory.put_messages(list(messages))
        if request.param == "indexed":
            memory.flush(all=True)
            settings = load_settings(
                database_url=database_url, embedding_backend="local", text_backend="local"
            )
            drain_everything(database, database_url, settings, [VECTORS_STAGE])
        return memory

    return remember


def first(memory: Memory, question: str) -> int | None:
    return memory.search(question)[0].message.seq


def test_of_an_asked_date_is_what_was_said_then(remembered: Remember) -> None:
    sailed = {"role": "user", "content": "We sailed to the island with the red boat."}
    memory = remembered(sailed | {"created_at": MAY}, sailed | {"created_at": JUNE})
    assert first(memory, "Where did we sail on 7 May 2023?") == 1
    assert first(memory, "Where did we sail on 7 June 2023?") == 2
    assert first(memory, "Where did we sail in June?") == 2


def test_who_asks_for_what_is_his_own_is_given_his_own_words_first(remembered: Remember) -> None:
    memory = remembered(
        {"role": "assistant", "content": "The red boat stands in the barn."},
        {"role": "user", "content": "The red boat stands in the barn."},
    )
    assert first(memory, "Where is my boat?") == 2
    alike = memory.search("Where is the boat?")
    assert alike[0].score == pytest.approx(alike[1].score)


def test_a_named_speaker_is_given_before_others_who_are_spoken_to_by_name(remembered: Remember) -> None:
    memory = remembered(
        {"role": "user", "name": "Tom", "content": "Ida, the cello concert in Husum was loud, Ida."},
        {"role": "user", "name": "Ida", "content": "Yes, the cello concert in Husum was loud."},
    )
    assert first(memory, "What did Ida say of the cello concert?") == 2


def test_where_a_speaker_is_named_an_answer_comes_before_a_question(remembered: Remember) -> None:
    memory = remembered(
        {"role": "user", "name": "Ida", "content": "Is the old barn near the lake?"},
        {"role": "user", "name": "Ida", "content": "The old barn is near the lake."},
    )
    assert first(memory, "What did Ida say of the barn near the lake?") == 2


def test_a_standing_wish_comes_before_what_only_names_the_same(remembered: Remember) -> None:
    memory = remembered(
        {"role": "user", "content": "Recipes with grams are in the blue book of my aunt."},
        {"role": "user", "content": "Recipes are always with grams, please, as in the blue book."},
    )
    assert first(memory, "Which recipes are in the blue book?") == 2


def test_a_message_beside_the_best_of_its_session_counts_less() -> None:
    here, there = UUID(int=1), UUID(int=2)
    found = [Hit(0.8, here, (Message("user", "a", seq=1),))]
    waiting = [Hit(score, key, (Message("user", "b", seq=2),)) for key, score in ((here, 0.7), (there, 0.6))]
    assert [hit.score for hit in behind_the_best(waiting, found)] == [pytest.approx(0.63), 0.6]
