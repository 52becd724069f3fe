"""A page of an export is bounded in bytes as well as in rows, and loses no line by it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import Erasures
from strandline.facts import Facts
from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS, MAX_TOPIC_CHARACTERS, MAX_TOPICS
from strandline.producers.exports import export, pages
from strandline.producers.facts.edit_operations import MAX_INPUT_CHARACTERS, Wording
from strandline.producers.facts.importing import MAX_FACTS_PER_IMPORT, ImportedFact
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.values.identity import identify_session
from tests.support.opened_rows import clear_only
from tests.support.servers.databases import temporary_database

LARGE, COUNT = 900_000, 12
# In UTF-8 four bytes each, the most there are.
WIDE = "𝔵"

LARGE_ROWS = """
INSERT INTO strandline.answer (shard_key, batch_id, step, model, prompt_hash, body)
    SELECT %(owner)s, gen_random_uuid(), 'answer', 'm', 'p',
        CASE WHEN n %% 2 = 0 THEN repeat('x', %(large)s)::bytea
            ELSE decode(repeat('ff', %(large)s), 'hex') END
    FROM generate_series(1, %(count)s) AS n;
INSERT INTO strandline.block_state
        (shard_key, scope_key, generation_id, ordinal, through_seq, state, batch_id)
    SELECT %(owner)s, %(session)s, (SELECT min(generation_id) FROM strandline.generation), n, n,
        jsonb_build_object('text', repeat('x', %(large)s)), gen_random_uuid()
    FROM generate_series(1, %(count)s) AS n;
"""


@pytest.fixture(scope="module")
def filled(stack: EmbeddedStack) -> Iterator[str]:
    """A user with large messages, answers, states and facts."""
    with temporary_database(stack.database_url) as url:
        memory = Memory.from_defaults("s", user_id="ann", database_url=url, token_limit=10_000_000)
        for place in range(COUNT):
            memory.put({"role": "user", "content": f"{place} " + "x" * LARGE})
        memory.put({"role": "user", "content": "the last"})
        memory.close()
        facts = Facts.for_owner(user_id="ann", database_url=url)
        for first in range(0, 2 * MAX_FACTS_PER_IMPORT, MAX_FACTS_PER_IMPORT):
            facts.import_facts([large_fact(first + n) for n in range(MAX_FACTS_PER_IMPORT)])
        facts.close()
        keys = identify_session("default", "s", "ann")
        values = {"owner": keys.shard_key, "session": keys.session_key, "large": LARGE, "count": COUNT}
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(LARGE_ROWS, values)
        yield url


def large_fact(number: int) -> ImportedFact:
    wording = Wording.check(
        f"{number} ".ljust(MAX_FACT_CHARACTERS, WIDE),
        topics=[f"{place} ".ljust(MAX_TOPIC_CHARACTERS, WIDE) for place in range(MAX_TOPICS)],
        about_date=None,
        input=WIDE * MAX_INPUT_CHARACTERS,
        agent_id=None,
        team_id=None,
    )
    return ImportedFact(UUID(int=number), wording, actor="import")


@clear_only("answers and states are made by SQL")
def test_a_page_ends_with_the_row_that_fills_it(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = export._page

    def measured(section: pages.Section, last: Any | None) -> Any:
        page = yield from read(section, last)
        sizes.append(sum(size_of(value) for row in page for value in row))
        return page

    monkeypatch.setattr(export, "_page", measured)
    erasures = Erasures.of_namespace(database_url=filled)
    lines = [json.loads(line) for line in erasures.export_user("ann")]
    erasures.close()
    counts = Counter(line["kind"] for line in lines[:-1])
    expected = {"message": COUNT + 1, "answer": COUNT, "state": COUNT, "fact": 2 * MAX_FACTS_PER_IMPORT}
    assert {kind: counts[kind] for kind in expected} == expected
    assert [line["seq"] for line in lines if line["kind"] == "message"] == list(range(1, COUNT + 2))
    assert sum(sizes) > 8 * HISTORY_PAGE_BYTES
    assert max(sizes) < HISTORY_PAGE_BYTES + 2 * LARGE


def size_of(value: object) -> int:
    """What a value takes as text, in UTF-8."""
    return len(value) if isinstance(value, bytes) else len(str(value).encode())
