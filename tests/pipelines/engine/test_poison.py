"""Turns that are far too large: they go through, or become dead letters; nothing is retried without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.flush.plan import EVENT_BOUND
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.transcript import MAX_LINE_CHARACTERS
from strandline.pipelines.vectors.chunks import MAX_INDEXED_CHARACTERS, MAX_PIECE_CHARACTERS, chunks
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.schemas.values.message import Message
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.workers.hand_worker import CountingStage, HandWorker, counting, say, summary_lane

# Under a test's load one may rarely be met by accident; what it ends is tried again.
SECONDS_IN_TRANSACTION = 2.0


def different_words(count: int, *, begin: str) -> str:
    """No word twice, so that no cache helps with them."""
    return " ".join(f"{begin}{number:x}ing" for number in range(count))


class WaitsInTransaction(CountingStage):
    """Computes inside its transaction until the server has ended that."""

    url = ""

    def write(self, fetcher: Any, batch: Batch, work: Any, effect: Any) -> list[Lane]:
        fetcher._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 100")
        own = fetcher._connection.info.backend_pid
        is_there = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: rows_of(self.url, is_there, own) == [(0,)], timeout=120, what="the server's limit")
        return super().write(fetcher, batch, work, effect)


class SlowStatement(CountingStage):
    """Runs a statement that the server ends."""

    def write(self, fetcher: Any, batch: Batch, work: Any, effect: Any) -> list[Lane]:
        fetcher._connection.execute("SET LOCAL statement_timeout = 100")
        fetcher._connection.execute("SELECT pg_sleep(600)")
        return []


@pytest.mark.parametrize("kind", [WaitsInTransaction, SlowStatement])
def test_what_the_server_ends_at_its_limit_becomes_a_dead_letter(rig: Rig, kind: type[CountingStage]) -> None:
    memory = rig.memory("s", memory_blocks=["summary"])
    say(memory, "too much")
    stage = kind()
    if isinstance(stage, WaitsInTransaction):
        stage.url = rig.url
    worker = HandWorker(rig.database, counting(stage))
    lane = summary_lane(rig.url, "s")
    for failure in (1, 2, 3):
        assert worker.drain(lane) == "postponed"
        ((failures, error),) = rows_of(rig.url, "SELECT failures, last_error FROM strandline.lane")
        assert failures == failure
        assert error.startswith("Postgres ended a statement")
        rows_of(rig.url, "UPDATE strandline.lane SET next_attempt_at = clock_timestamp() RETURNING 1")
    assert worker.drain(lane) == "drained"
    assert nothing_due(rig.url)
    letters = rows_of(rig.url, "SELECT reason FROM strandline.dead_letter")
    assert letters == [(f"failed 3 times in a row; the last error: {error}",)]


def test_a_server_that_goes_away_condemns_nothing(rig: Rig) -> None:
    class LosesItsConnection(CountingStage):
        def write(self, fetcher: Any, batch: Batch, work: Any, effect: Any) -> list[Lane]:
            rows_of(rig.url, "SELECT pg_terminate_backend(%s)", fetcher._connection.info.backend_pid)
            return super().write(fetcher, batch, work, effect)

    say(rig.memory("s", memory_blocks=["summary"]), "one")
    worker = HandWorker(rig.database, counting(LosesItsConnection()))
    assert worker.drain(summary_lane(rig.url, "s")) == "lost"
    assert rows_of(rig.url, "SELECT failures, last_error FROM strandline.lane") == [(0, None)]


def test_of_an_oversized_message_the_first_part_is_indexed() -> None:
    text = different_words(40_000, begin="w")
    assert len(text) > 3 * MAX_INDEXED_CHARACTERS
    made = chunks([Message("tool", text, tool_call_id="c", seq=7)])
    kept = "".join(chunk.text for chunk in made).replace(" ", "")
    assert kept == text[:MAX_INDEXED_CHARACTERS].replace(" ", "")
    assert len(made) <= 2 * MAX_INDEXED_CHARACTERS / MAX_PIECE_CHARACTERS


def test_explain_says_which_part_of_a_message_is_used(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory("s", memory_blocks=["facts", "summary", "vectors"])
    text = "word " * 30_000
    memory.put({"role": "user", "content": text, "id": "long"})
    memory.put({"role": "user", "content": "short", "id": "short"})
    memory.flush(all=True)
    found = explain(database, "long")
    assert isinstance(found, MessageExplanation)
    assert found.why[1:] == (
        f"Facts and summary read it in 19 pieces of at most {MAX_LINE_CHARACTERS:,} characters.",
        f"A search finds its first {MAX_INDEXED_CHARACTERS:,} of 150,000 characters.",
    )
    short = explain(database, "short")
    assert isinstance(short, MessageExplanation)
    assert len(short.why) == 1


def large_turn(results: int) -> list[dict[str, Any]]:
    """A question, calls, and a result of 0.96 MB for each, all of different words."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for n in range(results)
    ]
    answers = [
        {
            "role": "tool",
            "tool_call_id": f"c{n}",
            "content": different_words(200_000, begin=f"{n}w")[:960_000],
        }
        for n in range(results)
    ]
    return [
        {"role": "user", "content": "Read all four books. I live in Bergen."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *answers,
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.timeout(600)
def test_a_turn_of_four_huge_results_goes_through_all_pipelines(rig: Rig) -> None:
    """With a server that ends a transaction as soon as words are sought inside it."""
    settings = load_settings(database_url=rig.url, text_backend="local", embedding_backend="local")
    options = ConnectionOptions.from_settings(rig.url, settings)
    strict = Database.connect(replace(options, idle_in_transaction_timeout=SECONDS_IN_TRANSACTION))
    memory = rig.memory("s", user_id="maren")
    memory.put_messages(large_turn(4))
    memory.put({"role": "user", "content": "Thank you."})
    events = rows_of(
        rig.url, "SELECT from_seq, through_seq, tokens, cause FROM strandline.flush_event ORDER BY 1"
    )
    assert [event[:2] for event in events] == [(seq, seq) for seq in range(1, 7)]
    assert all(tokens > EVENT_BOUND.tokens for seq, _, tokens, _ in events if 3 <= seq <= 6)
    worker = HandWorker(strict, prepare_stages(strict, settings))
    attempts = 0
    while not nothing_due(rig.url):
        worker.drain_all(rig.url)
        rows_of(rig.url, "UPDATE strandline.lane SET next_attempt_at = clock_timestamp() RETURNING 1")
        attempts += 1
        assert attempts < 15, "tried for ever"
    assert verify(strict).violations == ()
    strict.close()
    receipts = rows_of(
        rig.url, "SELECT stage, outcome, count(*) FROM strandline.receipt GROUP BY 1, 2 ORDER BY 1"
    )
    assert receipts == [(stage, "applied", len(events)) for stage in sorted(STAGES)]
    pieces = rows_of(rig.url, "SELECT count(*) FROM strandline.chunk GROUP BY from_seq")
    assert max(pieces)[0] <= 2 * MAX_INDEXED_CHARACTERS / MAX_PIECE_CHARACTERS
    assert [message.role for message in memory.get()][-1] == "user"
